"""A Python that has imported everything and forks: the server behind :mod:`tests.warm_python`.

It has one thread and no event loop. A forked child gets the arguments, environment, working folder and standard streams
of the request, and runs the program in a new ``__main__``, as a new interpreter would. The child ends as every Python
does; the server reports its process id at once and its wait status at its end.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
import types
import warnings
from pathlib import Path
from typing import Any, NamedTuple

LARGEST = 1 << 18
STREAMS = 3


class Order(NamedTuple):
    """The program to run, and the descriptors of its standard streams."""

    options: list[str]
    program: list[str]
    environment: dict[str, str]
    folder: str | None
    new_session: bool
    streams: list[int]


def load() -> None:
    """Import what most programs of the tests import: the package, without the page and the help for tests."""
    import taskmill

    for found in pkgutil.walk_packages(taskmill.__path__, "taskmill."):
        if found.name.split(".")[1] not in ("__main__", "testing", "web"):
            importlib.import_module(found.name)


def served(channel: socket.socket) -> Order | None:
    """Serve requests; return the order in a forked child, and None in the server when its user has ended."""
    with selectors.DefaultSelector() as events:
        events.register(channel, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is not channel:
                    _bury(key)
                    events.unregister(key.fileobj)
                    continue
                message, descriptors, _, _ = socket.recv_fds(channel, LARGEST, STREAMS + 1)
                if not message:
                    return None
                pid = os.fork()
                if pid == 0:
                    return Order(**json.loads(message), streams=descriptors[:STREAMS])
                for descriptor in descriptors[:STREAMS]:
                    os.close(descriptor)
                answers = socket.socket(fileno=descriptors[STREAMS])
                answers.send(pid.to_bytes(8, "little"))
                events.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answers))


def _bury(key: selectors.SelectorKey) -> None:
    pid, answers = key.data
    _, status = os.waitpid(pid, 0)
    with answers, contextlib.suppress(BrokenPipeError):
        answers.send(status.to_bytes(8, "little"))
    os.close(key.fd)


def run(order: Order, path: list[str]) -> None:
    """Become the program that was ordered."""
    if order.new_session:
        os.setsid()
    for number, descriptor in enumerate(order.streams):
        os.dup2(descriptor, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    if order.folder is not None:
        os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    _open_streams(is_buffered="PYTHONUNBUFFERED" not in order.environment)
    given = order.environment.get("PYTHONPATH")
    sys.path[:] = [*(map(os.path.abspath, given.split(os.pathsep)) if given else []), *path]
    sys.dont_write_bytecode = bool(order.environment.get("PYTHONDONTWRITEBYTECODE"))
    _obey(order.options)
    importlib.invalidate_caches()
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    first, *rest = order.program
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv[:] = rest
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.path.insert(0, str(Path(first).resolve().parent))
        sys.argv[:] = order.program
        main.__file__ = os.path.abspath(first)
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


def _open_streams(*, is_buffered: bool) -> None:
    """Open the standard streams as the interpreter does: output goes out by lines on a terminal."""
    for number, name, errors in ((0, "stdin", "strict"), (1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        raw: Any = io.FileIO(number, "wb" if number else "rb", closefd=False)
        by_lines = name == "stderr" or raw.isatty()
        if not number:
            raw = io.BufferedReader(raw)
        elif is_buffered:
            raw = io.BufferedWriter(raw)
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=by_lines, write_through=not is_buffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _obey(options: list[str]) -> None:
    """Do what the interpreter does for its options; the client asks for no others."""
    for kind, value in zip(options[::2], options[1::2], strict=True):
        if kind == "-W":
            sys.warnoptions.append(value)
            warnings._processoptions([value])  # type: ignore[attr-defined]
        elif value == "faulthandler":
            faulthandler.enable()


def end(order: Order, path: list[str]) -> None:
    """Run the program, and end as an interpreter does, except that the memory of the server is not taken apart."""
    code = 0
    try:
        run(order, path)
    except SystemExit as leaving:
        code = _exit_code(leaving.code)
    except BaseException as wrong:
        sys.excepthook(type(wrong), wrong, wrong.__traceback__)
        code = -signal.SIGINT if isinstance(wrong, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError) as wrong:
        print(f"Exception ignored in: {sys.stdout!r}\n{type(wrong).__name__}: {wrong}", file=sys.stderr)
        code = 120
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _exit_code(given: object) -> int:
    if given is None or isinstance(given, int):
        return (given or 0) & 0xFF
    print(given, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.path.pop(0)
    load()
    gc.collect()
    gc.freeze()
    as_new = list(sys.path)
    if (ordered := served(socket.socket(fileno=int(sys.argv[1])))) is not None:
        end(ordered, as_new)
