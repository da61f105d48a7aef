"""Start Python programs by forking a process that has imported taskmill, instead of starting a new interpreter.

A new interpreter spends 0.1 to 0.3 s of CPU on imports. Where a test is about what a program does, :class:`Popen` and
:func:`run` start it from the server of this process (:mod:`tests.warm_server`). They take the arguments of their
namesakes in :mod:`subprocess`. What the server cannot imitate is started as a new interpreter: other programs, other
options and variables of the interpreter, inherited descriptors. Tests about start-up and imports use ``subprocess``.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OPTIONS = {("-X", "faulthandler"), ("-W", "error"), ("-W", "ignore")}
VARIABLES = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"})
"""The variables of the interpreter that the server imitates; with others, and those of the loader, it is not used."""


class _Server:
    def __init__(self) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_server", str(other.fileno())],
                pass_fds=[other.fileno()],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
            )

    def start(self, order: dict[str, Any], streams: Sequence[int]) -> tuple[int, socket.socket]:
        """Return the id of a new process, and the socket on which its wait status will arrive."""
        answers, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            socket.send_fds(self._channel, [json.dumps(order).encode()], [*streams, other.fileno()])
        if not (pid := answers.recv(8)):
            raise RuntimeError("the server of warm processes has ended")
        return int.from_bytes(pid, "little"), answers

    def end(self) -> None:
        self._channel.close()
        self._process.wait()


@functools.cache
def _server(process: int) -> _Server:
    server = _Server()
    atexit.register(lambda: server.end() if os.getpid() == process else None)
    return server


def _order(command: Any, environment: Mapping[str, str]) -> tuple[list[str], list[str]] | None:
    """Return the options and the program of a command, or None if a new interpreter is needed."""
    if not isinstance(command, list) or command[0] != sys.executable or not hasattr(os, "pidfd_open"):
        return None
    if any(name.startswith(("PYTHON", "LD_")) and name not in VARIABLES for name in environment):
        return None
    options, program = list[str](), [os.fspath(word) for word in command[1:]]
    while tuple(program[:2]) in OPTIONS:
        options += program[:2]
        del program[:2]
    is_known = len(program) > 0 and (program[0] in ("-m", "-c") or not program[0].startswith("-"))
    return (options, program) if is_known else None


class Popen(subprocess.Popen[Any]):
    """A process that is forked from the server of this one, if the command allows it."""

    _answers: socket.socket | None = None

    def _execute_child(self, args: Any, *rest: Any) -> None:
        _, preexec, _, inherited, folder, given, _, _, shell, *streams = rest
        start_new_session = bool(streams[11])
        environment = dict(os.environ if given is None else given)
        order = _order(args, environment)
        if order is None or preexec is not None or inherited or shell:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        read, _, _, written, _, complained = streams[:6]
        self.pid, self._answers = _server(os.getpid()).start(
            {
                "options": order[0],
                "program": order[1],
                "environment": environment,
                "folder": os.fspath(os.getcwd() if folder is None else folder),
                "new_session": start_new_session,
            },
            [own if stream == -1 else stream for own, stream in enumerate((read, written, complained))],
        )
        self._child_created = True
        self._close_pipe_fds(*streams[:6])  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._answers is None:
            found: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return found
        if wait_flags & os.WNOHANG and not select.select([self._answers], [], [], 0)[0]:
            return 0, 0
        with self._answers:
            status = self._answers.recv(8)
        if not status:
            raise RuntimeError("the server of warm processes has ended")
        return self.pid, int.from_bytes(status, "little")

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._answers is None:
            code: int | None = super()._internal_poll(*given, **named)  # type: ignore[misc]
            return code
        # Another thread that waits holds the lock until the process has ended.
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                pid, status = (0, 0) if self.returncode is not None else self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    check: bool = False,
    capture_output: bool = False,
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done
