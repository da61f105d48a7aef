"""The process that runs this code: its id and name, and the error of a scheduler that was open when it was forked."""

from __future__ import annotations

import os

from taskmill.errors import InvalidState

_id = os.getpid()


def this_process() -> int:
    """Return the id of this process. It is known without a system call, because every ``submit`` asks for it."""
    return _id


def _forked_now() -> None:
    global _id  # noqa: PLW0603 - it concerns the whole process
    _id = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked_now)


def node_name(process: int | str | None = None) -> str:
    """Return the name of a node: this host and a process, by default this one."""
    # Imported here, because most commands name no node.
    import socket

    return f"{socket.gethostname()}:{_id if process is None else process}"


def forked(opened_in: int) -> InvalidState:
    """Return the error for a scheduler that is used in a fork of the process that opened it."""
    return InvalidState(
        f"this scheduler was opened in process {opened_in}, and its threads and connections do not survive a fork; "
        "close it before the fork and open one in each process: in a web server, when a worker starts; with "
        "multiprocessing, in the function that the child runs, or use the start method 'spawn'"
    )
