"""The error of a scheduler that a forked process has inherited open."""

from __future__ import annotations

from taskmill.errors import InvalidState


def forked(opened_in: int) -> InvalidState:
    """Return the error for a scheduler that is used in a fork of the process that opened it."""
    return InvalidState(
        f"this scheduler was opened in process {opened_in}, and its threads and connections do not survive a fork; "
        "close it before the fork and open one in each process: in a web server, when a worker starts; with "
        "multiprocessing, in the function that the child runs, or use the start method 'spawn'"
    )
