"""The named points at which a child can be made to kill itself.

Nothing in the engine knows about them: the child replaces a function of its own copy by one that calls the original
and, at the n-th call, sends SIGKILL to its own process just before or just after.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NoReturn


@dataclass(frozen=True)
class Point:
    """``moment`` of the n-th call of ``place``; ``most`` is an n that a busy round still reaches."""

    name: str
    place: str
    moment: Literal["before", "after", "between"]
    most: int


POINTS = [
    # A transaction: its statements are done, the log is not written; the log is on disk, nobody has been told.
    Point("before a commit", "taskmill.store.sqlite.writer:Writer._commit", "before", 60),
    Point("after a commit", "taskmill.store.sqlite.writer:Writer._commit", "after", 60),
    Point("committed, not forced to the disk", "taskmill.store.sqlite.log_file:LogFile.sync", "before", 30),
    Point("on the disk, nobody told", "taskmill.store.sqlite.log_file:LogFile.sync", "after", 30),
    Point("commit known to the loop", "taskmill.store.sqlite.writer:Writer._batch_committed", "before", 40),
    # Submitting.
    Point("rows inserted, not committed", "taskmill.store.sqlite.inbox:insert", "after", 25),
    Point("submission stored, caller not told", "taskmill.verbs.parts:Parts._handle", "before", 25),
    # A turn of the loop: verdicts and claims.
    Point("before a turn is written", "taskmill.store.sqlite.ledger:commit_turn", "before", 40),
    Point("turn written, not committed", "taskmill.store.sqlite.ledger:commit_turn", "after", 40),
    Point("turn committed, nothing started", "taskmill.runtime.dispatcher:Dispatcher._apply", "before", 40),
    Point("turn committed and applied", "taskmill.runtime.dispatcher:Dispatcher._apply", "after", 40),
    Point("tasks moved to history, not committed", "taskmill.store.sqlite.ledger:end_tasks", "after", 20),
    # An attempt.
    Point("claimed, handler not started", "taskmill.runtime.workshop:Workshop.launch", "before", 30),
    Point("handler scheduled", "taskmill.runtime.workshop:Workshop.launch", "after", 30),
    Point("outcome known, not judged", "taskmill.runtime.workshop:Workshop._hand_on", "before", 30),
    Point("state about to be saved", "taskmill.store.sqlite.store:SqliteStore.save", "before", 8),
    Point("state saved, handler not told", "taskmill.store.sqlite.store:SqliteStore.save", "after", 8),
    # Control.
    Point("cancellation written, not committed", "taskmill.store.sqlite.ledger:cancel", "after", 6),
    Point("cancellation stored, caller not told", "taskmill.store.sqlite.store:SqliteStore.cancel", "after", 6),
    Point("on_cancel about to start", "taskmill.runtime.workshop:Workshop._start_hook", "before", 3),
    Point("on_cancel started", "taskmill.runtime.workshop:Workshop._start_hook", "after", 3),
    Point("dead letter revived, not committed", "taskmill.store.sqlite.ledger:revive", "after", 2),
    Point("dead letter revived, caller not told", "taskmill.store.sqlite.store:SqliteStore.revive", "after", 2),
    # Opening and recovery.
    Point("file created, empty", "taskmill.store.sqlite.store:create_file", "after", 1),
    Point("before recovery", "taskmill.store.sqlite.ledger:recover", "before", 2),
    Point("recovery written, not committed", "taskmill.store.sqlite.ledger:recover", "after", 2),
    Point("recovery committed", "taskmill.store.sqlite.store:SqliteStore.recover", "after", 2),
    # Upkeep.
    Point("history pruned, not committed", "taskmill.store.sqlite.ledger:prune", "after", 2),
    Point("before a checkpoint", "taskmill.store.sqlite.writer:Writer._checkpoint", "before", 2),
    Point("checkpoint copied, lock held", "taskmill.store.sqlite.log_file:LogFile.checkpoint", "after", 2),
    Point("after a checkpoint", "taskmill.store.sqlite.writer:Writer._checkpoint", "after", 2),
]

MIGRATION = Point("inside a migration", "taskmill.store.sqlite.migrate:statements", "between", 1)
"""Between two statements of the migration of a new file; the n-th call here is the n-th statement."""

BY_NAME = {point.name: point for point in [*POINTS, MIGRATION]}


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()
    raise AssertionError("a killed process went on")


def arm(name: str, nth: int) -> None:
    """Make this process die at the n-th time it comes to the named point."""
    point = BY_NAME[name]
    owner, attribute, original = _found(point.place)
    calls = itertools.count(1)

    def is_time() -> bool:
        return next(calls) == nth

    if point.moment == "between":
        setattr(owner, attribute, _SPECIAL[point.name](original, is_time))
    elif inspect.iscoroutinefunction(original):
        setattr(owner, attribute, _around_coroutine(original, is_time, point.moment))
    else:
        setattr(owner, attribute, _around(original, is_time, point.moment))


def missing_places() -> list[str]:
    """Points that the engine no longer has."""
    missing: list[str] = []
    for point in [*POINTS, MIGRATION]:
        try:
            _found(point.place)
        except AttributeError:
            missing.append(point.place)
    return missing


def _found(place: str) -> tuple[Any, str, Any]:
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    return owner, attribute, getattr(owner, attribute)


def _around(original: Callable[..., Any], is_time: Callable[[], bool], moment: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def around(*args: Any, **kwargs: Any) -> Any:
        now = is_time()
        if now and moment == "before":
            die()
        result = original(*args, **kwargs)
        if now:
            die()
        return result

    return around


def _around_coroutine(original: Callable[..., Any], is_time: Callable[[], bool], moment: str) -> Callable[..., Any]:
    @functools.wraps(original)
    async def around(*args: Any, **kwargs: Any) -> Any:
        now = is_time()
        if now and moment == "before":
            die()
        result = await original(*args, **kwargs)
        if now:
            die()
        return result

    return around


def _inside_checkpoint(original: Callable[..., Any], is_time: Callable[[], bool]) -> Callable[..., Any]:
    class Deadly:
        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def execute(self, sql: str) -> Any:
            self._connection.execute(sql).fetchone()
            die()

    @functools.wraps(original)
    def checkpoint(writer: Any) -> Any:
        if is_time():
            writer._checkpointer = Deadly(writer._checkpointer)
        return original(writer)

    return checkpoint


def _inside_migration(original: Callable[..., Any], is_time: Callable[[], bool]) -> Callable[..., Any]:
    @functools.wraps(original)
    def statements(sql: str) -> Iterator[str]:
        for statement in original(sql):
            if is_time():
                die()
            yield statement

    return statements


_SPECIAL = {"checkpoint copied, lock held": _inside_checkpoint, "inside a migration": _inside_migration}
