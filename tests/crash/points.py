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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from taskmill.model.attempt import TryAgain

COMMIT = "taskmill.store.sqlite.writer:Writer._commit"


def judges_finalize(_connection: Any, turn: Any, *_: Any) -> bool:
    """True if a turn records the outcome of a ``finalize``."""
    return any(judged.task.finalizes for judged in turn.judged)


def begins_firings(_connection: Any, tasks: Any, *_: Any) -> bool:
    """True if attempts of firings of cron tasks begin."""
    return any(task.cron is not None for task in tasks)


def replaces_firings(_connection: Any, _chosen: Any, _ids: Any, olds: Any, *_: Any) -> bool:
    """True if occurrences replace firings that wait for a retry."""
    return bool(olds)


def retries_firings(_connection: Any, verdicts: Any, *_: Any) -> bool:
    """True if firings of cron tasks have failed and are retried."""
    return any(judged.task.cron is not None and isinstance(judged.verdict, TryAgain) for judged in verdicts)


@dataclass(frozen=True)
class Point:
    """``moment`` of the n-th call of ``place``; ``most`` is an n that a busy round still reaches.

    ``committing`` and ``committed`` are the moments before and after the next commit, the one that makes the writes
    of the call durable. If a place has ``only``, only the calls for which that is true count.
    """

    name: str
    place: str
    moment: Literal["before", "after", "between", "committing", "committed"]
    most: int
    only: Callable[..., bool] | None = None


POINTS = [
    # A transaction: its statements are done, the log is not written; the log is on disk, nothing is announced.
    Point("before a commit", COMMIT, "before", 60),
    Point("after a commit", COMMIT, "after", 60),
    Point("committed, not forced to the disk", "taskmill.store.sqlite.log:LogFile.sync", "before", 30),
    Point("on the disk, unannounced", "taskmill.store.sqlite.log:LogFile.sync", "after", 30),
    Point("commit known to the loop", "taskmill.store.sqlite.writer:Writer._batch_committed", "before", 40),
    # Submitting.
    Point("rows inserted, not committed", "taskmill.store.sql.inbox:insert", "after", 25),
    Point("submission stored, caller not told", "taskmill.verbs.components:Components._handle", "before", 25),
    # A turn of the loop: verdicts and claims.
    Point("before a turn is written", "taskmill.store.sql.ledger:commit_turn", "before", 40),
    Point("turn written, not committed", "taskmill.store.sql.ledger:commit_turn", "after", 40),
    Point("turn committed, nothing started", "taskmill.runtime.loop:DispatchLoop._apply", "before", 40),
    Point("turn committed and applied", "taskmill.runtime.loop:DispatchLoop._apply", "after", 40),
    Point("tasks moved to history, not committed", "taskmill.store.sql.ledger:end_tasks", "after", 20),
    # An attempt.
    Point("claimed, handler not started", "taskmill.runtime.attempts:Attempts.launch", "before", 30),
    Point("handler scheduled", "taskmill.runtime.attempts:Attempts.launch", "after", 30),
    Point("outcome known, not judged", "taskmill.runtime.attempts:Attempts._hand_on", "before", 30),
    Point("state about to be saved", "taskmill.store.sqlite.store:SqliteStore.save", "before", 8),
    Point("state saved, handler not told", "taskmill.store.sqlite.store:SqliteStore.save", "after", 8),
    # Control.
    Point("cancellation written, not committed", "taskmill.store.sql.ledger:cancel", "after", 6),
    Point("cancellation stored, caller not told", "taskmill.store.sqlite.store:SqliteStore.cancel", "after", 6),
    Point("on_cancel about to start", "taskmill.runtime.attempts:Attempts._start_hook", "before", 3),
    Point("on_cancel started", "taskmill.runtime.attempts:Attempts._start_hook", "after", 3),
    Point("dead letter revived, not committed", "taskmill.store.sql.history:revive", "after", 2),
    Point("dead letter revived, caller not told", "taskmill.store.sqlite.store:SqliteStore.revive", "after", 2),
    # Opening and recovery.
    Point("file created", "taskmill.store.sqlite.store:create_database", "after", 1),
    Point("before recovery", "taskmill.store.sql.recovering:recover", "before", 2),
    Point("recovery written, not committed", "taskmill.store.sql.recovering:recover", "after", 2),
    Point("recovery committed", "taskmill.store.sqlite.store:SqliteStore.recover", "after", 2),
    # Upkeep.
    Point("history pruned, not committed", "taskmill.store.sql.history:prune", "after", 2),
    Point("before a checkpoint", "taskmill.store.sqlite.writer:Writer._checkpoint", "before", 2),
    Point("checkpoint copied, lock held", "taskmill.store.sqlite.log:LogFile.checkpoint", "after", 2),
    Point("after a checkpoint", "taskmill.store.sqlite.writer:Writer._checkpoint", "after", 2),
]

FAMILY_POINTS = [
    # Spawning.
    Point("children about to be stored", "taskmill.store.sqlite.store:SqliteStore.spawn", "before", 8),
    Point("children stored, spawner not told", "taskmill.store.sqlite.store:SqliteStore.spawn", "after", 8),
    Point("spawned, not adopted", "taskmill.store.sql.families:adopt", "before", 8),
    Point("adopted, not stored", "taskmill.store.sql.families:adopt", "after", 8),
    Point("children stored, not committed", "taskmill.store.sql.inbox:spawn", "after", 8),
    Point("children committed", "taskmill.store.sql.inbox:spawn", "committed", 8),
    # Waiting for children, and what the last of them does.
    Point("handler done, parent does not wait yet", "taskmill.store.sql.families:await_children", "before", 5),
    Point("parent waits, not committed", "taskmill.store.sql.families:await_children", "after", 5),
    Point("parent waits", "taskmill.store.sql.families:await_children", "committed", 5),
    Point("last child ended, parent not woken", "taskmill.store.sql.families:_step", "before", 5),
    Point("parent woken, not committed", "taskmill.store.sql.families:_step", "committing", 5),
    Point("parent woken, unannounced", "taskmill.store.sql.families:_step", "committed", 5),
    # Finalize.
    Point("finalize about to start", "taskmill.runtime.attempts:Attempts._start_finalize", "before", 4),
    Point("finalize scheduled", "taskmill.runtime.attempts:Attempts._start_finalize", "after", 4),
    Point("children read for finalize", "taskmill.store.sqlite.store:SqliteStore.children", "after", 4),
    Point("inside finalize", "tests.crash.family_work:within_finalize", "before", 4),
    Point("finalize over, not judged", "taskmill.store.sql.ledger:commit_turn", "before", 3, judges_finalize),
    Point("finalize judged, not committed", "taskmill.store.sql.ledger:commit_turn", "after", 3, judges_finalize),
    Point("finalize about to be committed", "taskmill.store.sql.ledger:commit_turn", "committing", 3, judges_finalize),
    Point("finalize committed, unannounced", "taskmill.store.sql.ledger:commit_turn", "committed", 3, judges_finalize),
    # Failing and stopping together.
    Point("family about to fail", "taskmill.store.sql.families:fail", "before", 2),
    Point("family fails, not committed", "taskmill.store.sql.families:fail", "after", 2),
    Point("family fails, no stop requested", "taskmill.store.sql.families:fail", "committed", 2),
    Point("tree about to be stopped", "taskmill.store.sql.families:stop_trees", "before", 4),
    Point("tree marked, not committed", "taskmill.store.sql.families:stop_trees", "after", 4),
    Point("tree marked, no stop requested", "taskmill.store.sql.families:stop_trees", "committed", 4),
    Point("inside a hook", "tests.crash.family_work:within_hook", "before", 3),
    # Dependencies.
    Point("dependents stored, not linked", "taskmill.store.sql.dependencies:link", "before", 4),
    Point("dependents linked, not committed", "taskmill.store.sql.dependencies:link", "after", 4),
    Point("dependents linked, caller not told", "taskmill.store.sql.dependencies:link", "committed", 4),
    Point("dependents not told of an ending", "taskmill.store.sql.dependencies:follow", "before", 20),
    Point("dependents told of an ending", "taskmill.store.sql.dependencies:follow", "after", 20),
    # Series.
    Point("series begun, not committed", "taskmill.store.sql.series:begin", "after", 2),
    Point("occurrence ended, series not told", "taskmill.store.sql.series:follow", "before", 20),
    Point("next occurrence about to be made", "taskmill.store.sql.series:_advance", "before", 5),
    Point("next occurrence made, not committed", "taskmill.store.sql.series:_advance", "after", 5),
    Point("next occurrence made, unannounced", "taskmill.store.sql.series:_advance", "committed", 5),
    # Endings of every origin.
    Point("tasks about to end", "taskmill.store.sql.ledger:end_tasks", "before", 20),
    Point("ended with all that follows, not committed", "taskmill.store.sql.ledger:end_tasks", "committing", 20),
    Point("replaced, not ended", "taskmill.store.sql.inbox:end_tasks", "before", 6),
    Point("replaced and ended, not committed", "taskmill.store.sql.inbox:end_tasks", "after", 6),
    # Recovery.
    Point("recovered, parents not checked", "taskmill.store.sql.families:wake_childless", "before", 2),
    Point("recovered, parents checked", "taskmill.store.sql.families:wake_childless", "after", 2),
]
"""Points that only families, dependents and series reach."""

CRON_POINTS = [
    # Declaring.
    Point("cron tasks about to be declared", "taskmill.store.sql.cron_firing:begin", "before", 1),
    Point("cron tasks declared, not committed", "taskmill.store.sql.cron_firing:begin", "after", 1),
    Point("cron tasks declared, unannounced", "taskmill.store.sql.cron_firing:begin", "committed", 1),
    Point("cron tasks declared, none fired", "taskmill.runtime.cron_clock:CronClock.begin", "after", 1),
    # Firing.
    Point("cron tasks about to be fired", "taskmill.store.sql.cron_firing:fire", "before", 4),
    Point("cron tasks fired, not committed", "taskmill.store.sql.cron_firing:fire", "after", 4),
    Point("cron tasks fired, unannounced", "taskmill.store.sql.cron_firing:fire", "committed", 4),
    Point("cron tasks fired, unannounced", "taskmill.store.sqlite.store:SqliteStore.fire_cron", "after", 4),
    Point("cron tasks fired and announced", "taskmill.runtime.cron_clock:CronClock._fire", "after", 4),
    Point("retry not yet replaced", "taskmill.store.sql.cron_firing:_replace", "before", 2, replaces_firings),
    Point("retry replaced, not committed", "taskmill.store.sql.cron_firing:_replace", "after", 2, replaces_firings),
    Point("retry replaced, unannounced", "taskmill.store.sql.cron_firing:_replace", "committed", 2, replaces_firings),
    # Outcomes of a firing.
    Point("firing begun, not committed", "taskmill.store.sql.cron:claimed", "after", 6, begins_firings),
    Point("firing begun, unannounced", "taskmill.store.sql.cron:claimed", "committed", 6, begins_firings),
    Point("retry noted, not committed", "taskmill.store.sql.cron:returned", "after", 4, retries_firings),
    Point("retry noted, unannounced", "taskmill.store.sql.cron:returned", "committed", 4, retries_firings),
    Point("firing ended, not noted", "taskmill.store.sql.cron:follow", "before", 6),
    Point("firing ended, not committed", "taskmill.store.sql.cron:follow", "after", 6),
    Point("firing ended, unannounced", "taskmill.store.sql.cron:follow", "committed", 6),
]
"""Points that only cron tasks reach."""

CRON_RECOVERY_POINTS = [
    Point("interruption noted, not committed", "taskmill.store.sql.cron:interrupted", "after", 1),
    Point("interruption noted, unannounced", "taskmill.store.sql.cron:interrupted", "committed", 1),
]
"""Points that only the successor reaches of a process that died while a cron task ran."""

MIGRATION = Point("inside a migration", "taskmill.store.sqlite.migrate:statements", "between", 1)
"""Between two statements of the migration of a new file; the n-th call here is the n-th statement."""

ALL = [*POINTS, *FAMILY_POINTS, *CRON_POINTS, *CRON_RECOVERY_POINTS, MIGRATION]
BY_NAME = {point.name: point for point in ALL}


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()
    raise AssertionError("a killed process went on")


def arm(name: str, nth: int) -> None:
    """Make this process die when it reaches the named point for the n-th time."""
    point = BY_NAME[name]
    owner, attribute, original = _found(point.place)
    calls = itertools.count(1)

    def is_time(*args: Any) -> bool:
        return (point.only is None or point.only(*args)) and next(calls) == nth

    if point.moment == "between":
        setattr(owner, attribute, _SPECIAL[point.name](original, is_time))
    elif point.moment in ("committing", "committed"):
        setattr(owner, attribute, _until_commit(original, is_time, point.moment))
    elif inspect.iscoroutinefunction(original):
        setattr(owner, attribute, _around_coroutine(original, is_time, point.moment))
    else:
        setattr(owner, attribute, _around(original, is_time, point.moment))


def count(points: Iterable[Point]) -> Counter[str]:
    """Count, from now on, how often this process reaches each of these points, without dying."""
    reached: Counter[str] = Counter()

    def tallied(point: Point, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def around(*args: Any, **kwargs: Any) -> Any:
            if point.only is None or point.only(*args):
                reached[point.name] += 1
            return original(*args, **kwargs)

        return around

    for point in points:
        owner, attribute, original = _found(point.place)
        setattr(owner, attribute, tallied(point, original))
    return reached


def missing_places() -> list[str]:
    """Return the points that the engine no longer has."""
    missing: list[str] = []
    for point in ALL:
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


def _around(original: Callable[..., Any], is_time: Callable[..., bool], moment: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def around(*args: Any, **kwargs: Any) -> Any:
        now = is_time(*args)
        if now and moment == "before":
            die()
        result = original(*args, **kwargs)
        if now:
            die()
        return result

    return around


def _around_coroutine(original: Callable[..., Any], is_time: Callable[..., bool], moment: str) -> Callable[..., Any]:
    @functools.wraps(original)
    async def around(*args: Any, **kwargs: Any) -> Any:
        now = is_time(*args)
        if now and moment == "before":
            die()
        result = await original(*args, **kwargs)
        if now:
            die()
        return result

    return around


def _until_commit(original: Callable[..., Any], is_time: Callable[..., bool], moment: str) -> Callable[..., Any]:
    """Die at the commit of the transaction that the call is part of."""
    writer, attribute, commit = _found(COMMIT)
    is_due = False

    @functools.wraps(original)
    def around(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_due
        is_due = is_time(*args) or is_due
        return original(*args, **kwargs)

    @functools.wraps(commit)
    def committed(*args: Any) -> None:
        if is_due and moment == "committing":
            die()
        commit(*args)
        if is_due:
            die()

    setattr(writer, attribute, committed)
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
