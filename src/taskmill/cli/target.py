"""``module:scheduler``: the name of a Scheduler object in the user's own code."""

from __future__ import annotations

import importlib
import os
import sys

from taskmill import Scheduler
from taskmill.cli.refusal import WRONG, Refusal
from taskmill.cli.words import first_line


def find_scheduler(target: str) -> Scheduler:
    """Import the module, with the current directory on its path, and take the scheduler it names."""
    module_name, colon, attribute = target.partition(":")
    names = [*module_name.split("."), *attribute.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise Refusal(f"name the scheduler as module:attribute, such as app.tasks:scheduler; got {target!r}", WRONG)
    found: object = _module(module_name)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise Refusal(f"module {module_name} has no {attribute}", WRONG) from None
    if not isinstance(found, Scheduler):
        raise Refusal(f"{target} is not a Scheduler but {_kind(found)}", WRONG)
    return found


def _module(name: str) -> object:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as wrong:
        missing = wrong.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise Refusal(f"there is no module {name} in {here} or on Python's path", WRONG) from None
        raise Refusal(f"importing {name} failed: it needs the module {missing}", WRONG) from wrong
    except Exception as wrong:
        text = f"{type(wrong).__name__}: {first_line(str(wrong))}"
        raise Refusal(f"importing {name} failed: {text}", WRONG) from wrong


def _kind(found: object) -> str:
    return "a class" if isinstance(found, type) else f"of type {type(found).__name__}"
