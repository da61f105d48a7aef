"""The mark of a worker process, which runs handlers for the scheduler that started it.

A worker imports the modules of the program to find a handler. They may construct schedulers, which is harmless; opening
one is refused, because a second program would run inside the worker.
"""

from __future__ import annotations

from taskmill.errors import InvalidState

NO_SCHEDULER = "a worker process has none; in its handlers use ctx.spawn or ctx.spawn_sibling"

is_worker = False
"""True in a worker process."""


def begin() -> None:
    """Mark this process as a worker process."""
    global is_worker  # noqa: PLW0603 - it concerns the whole process
    is_worker = True


def refuse_to_open() -> None:
    """Raise ``InvalidState`` in a worker process."""
    if is_worker:
        raise InvalidState(
            "a scheduler cannot be opened in a worker process, which loads the program only to find a handler; "
            'open it under `if __name__ == "__main__":` or in a function'
        )
