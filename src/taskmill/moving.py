"""Moving a queue with its history to another store: what ``taskmill move`` does, for programs.

::

    moved = move("tasks.db", "postgresql://ann@db.example/app")

It may be killed at any moment and called again with the same words: it goes on where it was.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator

from taskmill.clock import SystemClock
from taskmill.errors import ConfigError
from taskmill.store.moving import journey
from taskmill.store.moving.journey import Moved, Step
from taskmill.store.moving.place import Place
from taskmill.store.opening import open_place

__all__ = ["Moved", "Step", "move", "undo"]


def move(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    watch: Callable[[Step], None] = lambda _step: None,
) -> Moved:
    """Move everything from one store to another, or go on with that; returns when the target is the queue.

    Blocks for as long as it takes; from an event loop call it in a thread. ``watch`` is told how far it is.
    """
    with _taken(source, "source", must_exist=True) as origin, _taken(target, "target", origin) as goal:
        return journey.move(origin, goal, SystemClock().now_ms, watch)


def undo(source: str | os.PathLike[str], target: str | os.PathLike[str] | None) -> str:
    """Give up a move that has not ended: the source is the queue again. Returns where it was to go.

    Without a ``target``, which must be lost for good then, the source is opened as it was when it was moved.
    """
    with _taken(source, "source", must_exist=True) as origin:
        if target is None:
            return journey.undo(origin, None)
        with _taken(target, "target", origin, must_exist=True) as goal:
            return journey.undo(origin, goal)


@contextlib.contextmanager
def _taken(
    store: str | os.PathLike[str], what: str, other: Place | None = None, *, must_exist: bool = False
) -> Generator[Place, None, None]:
    name = os.fspath(store) if isinstance(store, str | os.PathLike) else None
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what} must be a file name or 'postgresql://…', not {store!r}")
    place = open_place(name, must_exist=must_exist)
    try:
        if other is not None:
            journey.check_apart(other, place)
        place.take()
        yield place
    finally:
        place.close()
