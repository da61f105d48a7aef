"""Move a queue with its history to another store, as ``taskmill move`` does.

::

    moved = move("tasks.db", "postgresql://ann@db.example/app")

A move may be killed at any moment. Called again with the same arguments, it resumes where it stopped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator

from taskmill.core.clock import SystemClock
from taskmill.errors import ConfigError
from taskmill.store.moving import journey
from taskmill.store.moving.endpoint import Endpoint
from taskmill.store.moving.journey import Moved, Step
from taskmill.store.opening import open_endpoint

__all__ = ["Moved", "Step", "move", "undo"]


def move(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    watch: Callable[[Step], None] = lambda _step: None,
) -> Moved:
    """Move everything from one store to another, or resume such a move; return when the target is the queue.

    This blocks until the move is complete; from an event loop, call it in a thread. ``watch`` is called with the
    progress.
    """
    with _taken(source, "source", must_exist=True) as origin, _taken(target, "target", origin) as goal:
        return journey.move(origin, goal, SystemClock().now_ms, watch)


def undo(source: str | os.PathLike[str], target: str | os.PathLike[str] | None) -> str:
    """Abort an unfinished move, so that the source is the queue again; return the name of the intended target.

    Use ``target=None`` only if the target is lost for good: the source is then reopened as it was when it was moved.
    """
    with _taken(source, "source", must_exist=True) as origin:
        if target is None:
            return journey.undo(origin, None)
        with _taken(target, "target", origin, must_exist=True) as goal:
            return journey.undo(origin, goal)


@contextlib.contextmanager
def _taken(
    store: str | os.PathLike[str], what: str, other: Endpoint | None = None, *, must_exist: bool = False
) -> Generator[Endpoint, None, None]:
    name = os.fspath(store) if isinstance(store, str | os.PathLike) else None
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} must be a file name or 'postgresql://…', not {store!r}")
    endpoint = open_endpoint(name, must_exist=must_exist)
    try:
        if other is not None:
            journey.check_apart(other, endpoint)
        endpoint.take()
        yield endpoint
    finally:
        endpoint.close()
