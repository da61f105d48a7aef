"""The address by which a worker process imports a handler: its module and its qualified name.

The address is made from the registered function, never from stored data. A handler of the program's own script is in
``__main__``, which is a different module in every process. Its address says how to load that script again under the
name ``__mp_main__``, as :mod:`multiprocessing` does when it spawns.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from taskmill.define.task import Task, TaskType
from taskmill.errors import ConfigError

MAIN = "__main__"
MAIN_AGAIN = "__mp_main__"


class HandlerAddress(msgspec.Struct, frozen=True):
    """The address of one handler. ``main_name`` or ``main_path`` is set if its module is ``__main__``."""

    type_name: str
    module: str
    name: str
    main_name: str | None = None
    main_path: str | None = None


def check_loadable(function: Callable[..., Any], type_name: str) -> None:
    """Raise ``ConfigError`` if another process could not load the module of the handler or find the handler there.

    This can be checked while a handler is being defined, before its module has a name for it.
    """
    if sys.platform == "win32" or getattr(sys, "frozen", False):
        raise ConfigError(
            f'{type_name}: run_in="process" needs Linux or macOS and an ordinary Python interpreter; '
            "leave run_in out and write the handler with def, which runs it in a thread"
        )
    name = getattr(function, "__qualname__", "<nameless>")
    if "<" in name:
        raise ConfigError(
            f'{type_name}: run_in="process" needs a function at the top level of a module; '
            f"another process cannot import {name}"
        )
    address = address_of(function, type_name)
    if address.module == MAIN and not _can_load_again(address):
        raise ConfigError(
            f'{type_name}: run_in="process" cannot find {name} in an interactive session or a __main__.py; '
            "move it to a module of its own"
        )


def check_importable(function: Callable[..., Any], type_name: str) -> None:
    """Raise ``ConfigError`` if another process could not import the handler."""
    check_loadable(function, type_name)
    address, name = address_of(function, type_name), function.__qualname__
    module = sys.modules.get(address.module)
    if module is None or _plain(_look_up(module, name)) is not function:
        raise ConfigError(
            f'{type_name}: run_in="process" finds a handler by its name, and {address.module}.{name} is something else'
        )


def address_of(function: Callable[..., Any], type_name: str) -> HandlerAddress:
    if function.__module__ != MAIN:
        return HandlerAddress(type_name, function.__module__, function.__qualname__)
    main = sys.modules[MAIN]
    path: str | None = getattr(main, "__file__", None)
    return HandlerAddress(
        type_name,
        MAIN,
        function.__qualname__,
        main_name=main.__spec__.name if main.__spec__ else None,
        main_path=os.path.abspath(path) if path else None,
    )


def find_handler(address: HandlerAddress) -> TaskType:
    """Return the registered handler at this address, importing its module if needed."""
    module = _main_again(address) if address.module == MAIN else importlib.import_module(address.module)
    found = _look_up(module, address.name)
    if isinstance(found, Task):
        return found.type
    if callable(found):
        # Registered under another name than its own: `fast = domain.task(run_in="process")(compute)`.
        return TaskType(address.type_name, found, {}, None)
    raise ConfigError(f"{address.type_name}: a worker process found no {address.name} in {address.module}")


def _can_load_again(address: HandlerAddress) -> bool:
    if address.main_name is not None:
        return address.main_name.rpartition(".")[2] != MAIN
    return address.main_path is not None and os.path.isfile(address.main_path)


def _main_again(address: HandlerAddress) -> ModuleType:
    if MAIN_AGAIN not in sys.modules:
        # Imported here, so that only handlers in scripts pay for it.
        from multiprocessing import spawn

        if address.main_name is not None:
            spawn.prepare({"init_main_from_name": address.main_name})
        else:
            spawn.prepare({"init_main_from_path": address.main_path})
    return sys.modules[MAIN_AGAIN]


def _look_up(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _plain(found: Any) -> Any:
    return found.type.function if isinstance(found, Task) else found
