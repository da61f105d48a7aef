"""Report commits: to the loop, to event listeners, to callers that wait for a task, and to the log.

Every commit of this process is published once, through :class:`Commits`, to a list of followers. The dispatch loop
follows commits to keep its picture of the queue current. :class:`Announcer` follows them to emit events and to wake
waiting callers. New tasks are announced as soon as they are committed. Endings are announced once they are durable, so
that no listener sees an ending that a power cut can undo.

``TaskAged`` is the one event without a commit: aging is computed, not written. While something listens for it,
:class:`AgingWatch` asks the store at intervals which tasks have become more urgent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import msgspec

from taskmill.core.cron_port import Fired
from taskmill.core.logs import about, logger
from taskmill.core.ports import Dispatches, Durable
from taskmill.dispatch.shares import Reallocation
from taskmill.errors import StoreError
from taskmill.model.attempt import End, MakeWay, Return, TryAgain, Wait
from taskmill.model.commit import NO_COMMIT, Commit
from taskmill.model.controls import Pause, Scope, ScopeKind
from taskmill.model.durations import elapsed, from_ms
from taskmill.model.progress import readable_progress
from taskmill.model.status import COMPLETED, Ending
from taskmill.model.task import Claimed, Crossing, Described, Lane, NewTask
from taskmill.model.turn import Judged, TurnResult
from taskmill.observe.bus import EventBus
from taskmill.policy.aging import lines_ahead, wait_until_ms
from taskmill.policy.rules import Rules, pause_scopes
from taskmill.runtime.task_log import is_on, log_attempts, log_ended, log_start

if TYPE_CHECKING:
    from taskmill.runtime.attempt import Attempt

T = TypeVar("T")

AGING_INTERVAL_MS = 1000
"""The shortest time between two reads of aged tasks, so that a backlog in which many tasks age costs little."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Follower = Callable[[Commit, int, bool], None]
"""Called with a commit, the time at which it was made, and True if it is durable already."""


async def to_the_end(step: Coroutine[Any, Any, T]) -> T:
    """Await a step that commits something and then announces it.

    If the caller is cancelled, it ends after the step: what is committed would never be announced otherwise. If it is
    cancelled again, it does not wait any longer.
    """
    running = asyncio.get_running_loop().create_task(step)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled() and (wrong := running.exception()) is not None:
            logger.error("a cancelled run could not finish a step: %s", wrong)
        raise


class Commits:
    """The followers of this process's commits, in the order in which they are called."""

    def __init__(self) -> None:
        self._followers: list[Follower] = []

    def join(self, follower: Follower) -> None:
        """Call ``follower`` for every commit from now on, before the followers that joined earlier."""
        self._followers.insert(0, follower)

    def leave(self, follower: Follower) -> None:
        self._followers.remove(follower)

    def publish(self, commit: Commit, now: int, *, durable: bool) -> None:
        """Call the followers with a commit, unless it changed nothing that concerns them."""
        if commit != NO_COMMIT:
            for follow in self._followers:
                follow(commit, now, durable)


class Waiters:
    """The callers that wait for tasks to end; each is woken when the ending of its task is committed."""

    def __init__(self) -> None:
        self._events: dict[int, asyncio.Event] = {}
        self._waiting: dict[int, int] = {}
        """How many callers wait, by task id."""

    def expect(self, id: int) -> asyncio.Event:
        """Return an event that is set when the task has ended; call :meth:`leave` afterwards."""
        self._waiting[id] = self._waiting.get(id, 0) + 1
        return self._events.setdefault(id, asyncio.Event())

    def leave(self, id: int) -> None:
        self._waiting[id] -= 1
        if not self._waiting[id]:
            del self._waiting[id], self._events[id]

    def ended(self, ids: Iterable[int]) -> None:
        """Wake the callers that wait for these tasks."""
        if self._events:
            for id in ids:
                if (event := self._events.get(id)) is not None:
                    event.set()

    def __bool__(self) -> bool:
        return bool(self._events)

    @property
    def ids(self) -> list[int]:
        """The tasks that callers wait for and that are not known to have ended."""
        return [id for id, event in self._events.items() if not event.is_set()]


class Announcer:
    """Emits events, wakes waiting callers and writes the log, always after the commit."""

    def __init__(self, store: Durable, bus: EventBus, waiters: Waiters) -> None:
        self._store = store
        self._bus = bus
        self._waiters = waiters

    # Commits

    def follow(self, commit: Commit, now: int, durable: bool) -> None:
        """Announce new tasks at once, and everything else once it is durable."""
        self._submitted(commit)
        if commit.is_announced:
            if durable:
                self._committed(commit, now)
            else:
                self.once_durable(lambda: self._committed(commit, now))

    @property
    def is_awaited(self) -> bool:
        """True if there are listeners, or callers that wait for tasks to end."""
        return self._bus.is_heard or bool(self._waiters)

    def once_durable(self, announce: Callable[[], None]) -> None:
        """Call ``announce`` once everything committed so far would survive a power cut."""
        if self.is_awaited:
            self._store.when_durable(announce)
        else:
            # Without listeners and waiters, one flush may serve many turns.
            announce()
            self._store.make_durable_soon()

    def _submitted(self, commit: Commit) -> None:
        if not self._bus.is_heard:
            self._bus.skip("TaskSubmitted", len(commit.fresh))
            if commit.blocked:
                self._bus.skip("TaskBlocked", len(commit.blocked))
        else:
            for id, task in commit.fresh:
                described = _described(id, task)
                self._bus.about("TaskSubmitted", described)
                if id in commit.blocked:
                    self._bus.about("TaskBlocked", described)

    def _committed(self, commit: Commit, now: int) -> None:
        for scope in commit.pauses_ended:
            self.scope_resumed(scope)
        for ended in commit.ended:
            self._ended(ended.task, ended.end, ended.duration_ms, commit.successors, now)
            if is_on():
                log_ended(ended.task, ended.end, ended.duration_ms)
        for task in commit.unblocked:
            self._bus.about("TaskUnblocked", task)
        for task in commit.occurrences:
            self._bus.about("TaskSubmitted", task)
        for task in commit.resumed:
            self._bus.about("TaskResumed", task)
        for skipped in commit.skipped:
            self._bus.about("RecurringSkipped", skipped.task, count=skipped.count)

    # Turns

    def dispatched(self, task: Claimed) -> None:
        if is_on():
            log_start(task)
        if (counters := self._bus.counters) is not None:
            counters.dispatched(task)
        self._bus.about("TaskDispatched", task, attempt=task.attempt)

    def judged(self, verdicts: Sequence[Judged], result: TurnResult) -> None:
        """Announce verdicts that are durable."""
        if (counters := self._bus.counters) is not None:
            counters.attempts_over(verdicts)
        if is_on():
            log_attempts(verdicts, result)
        is_silent = not self.is_awaited
        completed = 0
        for judged in verdicts:
            task = judged.task
            match judged.verdict:
                case End() if task.id in result.waiting:
                    pass  # Its children end first.
                case End() as end if is_silent and end.ending is COMPLETED:
                    completed += 1
                case End() as end:
                    self._ended(task, end, judged.duration_ms, result.commit.successors, result.now)
                case TryAgain(error, due_at):
                    after = timedelta(milliseconds=0 if due_at is None else max(0, due_at - result.now))
                    self._bus.about("TaskFailed", task, error=error, will_retry=True, retry_after=after)
                case Wait():
                    if task.id in result.waiting:
                        self._bus.about("TaskWaiting", task, children=result.waiting[task.id])
                case MakeWay():
                    if task.id not in result.waiting:
                        self._bus.about("TaskPreempted", task)
                case Return():
                    pass  # No event: nothing has happened to the task.
        self._bus.skip("TaskCompleted", completed)

    def _ended(
        self, task: Claimed | Described, end: End, duration_ms: int | None, successors: Mapping[int, int], now: int
    ) -> None:
        match end.ending:
            case Ending.COMPLETED:
                if self._bus.is_heard:
                    duration = timedelta(milliseconds=duration_ms or 0)
                    self._bus.about("TaskCompleted", task, result=_decode(end.result or "null"), duration=duration)
                else:
                    self._bus.skip("TaskCompleted", 1)
            case Ending.FAILED:
                self._bus.about("TaskFailed", task, error=end.error or "", will_retry=False, retry_after=None)
            case Ending.DEAD_LETTER:
                self._bus.about("TaskFailed", task, error=end.error or "", will_retry=False, retry_after=None)
                said = task.id, task.type, end.error
                logger.error("task %d (%s) is a dead letter: %s", *said, extra=about(task))
                self._bus.about("TaskDeadLettered", task, error=end.error)
            case Ending.CANCELLED:
                self._bus.about("TaskCancelled", task)
            case Ending.SUPERSEDED:
                self._bus.about("TaskSuperseded", task, new_task_id=successors.get(task.id))
            case Ending.EXPIRED:
                age = elapsed(from_ms(task.created_at), from_ms(now))
                self._bus.about("TaskExpired", task, dedup_key=task.key, age=age)
            case Ending.DEPENDENCY_FAILED:
                self._bus.about("TaskDependencyFailed", task, error=end.error or "")
            case _:
                assert_never(end.ending)
        self._waiters.ended([task.id])

    def outcome_dropped(self, task: Claimed) -> None:
        message = "attempt %d of task %d (%s) no longer holds its token; its outcome is dropped"
        logger.warning(message, task.attempt, task.id, task.type, extra=about(task))

    def progressed(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            if attempt.progress is not None:
                self._bus.about("TaskProgressed", attempt.task, progress=readable_progress(attempt.progress))

    def reallocated(self, changes: list[Reallocation]) -> None:
        """Announce changed shares and clear the list."""
        for change in changes:
            self._bus.announce("GroupAllocationChanged", **change._asdict())
        changes.clear()

    # Single changes

    def revived(self, task: Described) -> None:
        self._bus.about("TaskSubmitted", task)

    def fired(self, fired: Fired, zone: tzinfo) -> None:
        occurrence = from_ms(fired.occurrence).astimezone(zone)
        self._bus.about("CronFired", _described(fired.id, fired.task), name=fired.name, occurrence=occurrence)

    def paused(self, task: Described) -> None:
        self._bus.about("TaskPaused", task)

    def resumed(self, task: Described) -> None:
        self._bus.about("TaskResumed", task)

    def scope_paused(self, scope: Scope, until: datetime | None) -> None:
        logger.info("%s %r is paused", *scope)
        if scope.kind is ScopeKind.GROUP:
            self._bus.announce("GroupPaused", group=scope.name, until=until)

    def scope_resumed(self, scope: Scope) -> None:
        logger.info("%s %r is resumed", *scope)
        if scope.kind is ScopeKind.GROUP:
            self._bus.announce("GroupResumed", group=scope.name)

    def weight_changed(self, group: str, previous_weight: float, new_weight: float) -> None:
        self._bus.announce("GroupWeightChanged", group=group, previous_weight=previous_weight, new_weight=new_weight)

    @property
    def wants_aging(self) -> bool:
        """True if something listens for ``TaskAged``."""
        return self._bus.is_wanted("TaskAged")

    def aged(self, task: Described, now: int) -> None:
        self._bus.about("TaskAged", task, wait_duration=timedelta(milliseconds=now - task.aged_from))


class AgingWatch:
    """Announces ``TaskAged`` while something listens for it.

    A task is announced when its effective priority crosses a line: a named level or the urgent line. For each lane and
    each line, the tasks that crossed it since the last read are one range of the lane's index.
    """

    def __init__(self, store: Dispatches, announcer: Announcer) -> None:
        self._store = store
        self._announcer = announcer
        self._read_at: int | None = None
        """Up to when crossings were announced; None while nothing listens."""
        self._version = -1
        self._pauses: frozenset[tuple[Scope, Pause]] = frozenset()
        """The pauses in force, and those whose time is not given back yet."""
        self._changed_at: dict[Scope, int] = {}
        """When each pause changed since the last read. The end of a pause moves the earlier crossings of its
        tasks, so only later ones are read."""
        self.next_read: int | None = None

    def clock_stepped(self, by_ms: int) -> None:
        """Shift the times of reads by a step of the wall clock: the waits of tasks keep their length."""
        if self._read_at is not None and self.next_read is not None:
            self._read_at += by_ms
            self.next_read += by_ms
            self._changed_at = {scope: at + by_ms for scope, at in self._changed_at.items()}

    def is_due(self, rules: Rules, now: int) -> bool:
        if rules.declared.aging is None or not self._announcer.wants_aging:
            self._read_at = self.next_read = None
            return False
        if self._read_at is None:
            self._read_at = self.next_read = now
        if self._version != rules.controls.version:
            self._version = rules.controls.version
            before, self._pauses = (
                self._pauses,
                frozenset((*rules.controls.pauses.items(), *rules.controls.ended_pauses)),
            )
            if changed := {scope for scope, _ in before ^ self._pauses}:
                self._changed_at |= dict.fromkeys(changed, now)
                self.next_read = now
        return self.next_read is not None and self.next_read <= now

    async def announce_aged(self, rules: Rules, lanes: Iterable[Lane], now: int) -> None:
        """Announce the tasks that have crossed a line since the last call."""
        aging = rules.declared.aging
        assert aging is not None  # noqa: S101 - otherwise no read is due
        since = now if self._read_at is None else self._read_at

        def changed_at(scope: Scope) -> int:
            return self._changed_at.get(scope, since)

        crossings = [
            Crossing(lane, max(since, *map(changed_at, pause_scopes(lane.group, lane.type))) - wait, now - wait)
            for lane in lanes
            if not any(pause.holds(now) for pause in rules.pauses(lane.group, lane.type).values())
            if not rules.owed(lane.group, lane.type)
            for line in lines_ahead(aging, lane.urgency)
            if (wait := wait_until_ms(aging, lane.urgency, line)) is not None
        ]
        # A task that begins to wait now crosses no line before this.
        self.next_read = now + aging.grace_ms + aging.interval_ms
        try:
            crossed, following = await self._store.crossings(crossings)
        except StoreError as wrong:
            logger.error("aged tasks could not be read, retrying in %g s: %s", AGING_INTERVAL_MS / 1000, wrong)
            self.next_read = now + AGING_INTERVAL_MS
            return
        self._read_at = now
        self._changed_at.clear()
        for task in crossed:
            self._announcer.aged(task, now)
        for crossing, aged_from in zip(crossings, following, strict=True):
            if aged_from is not None:
                crosses_at = aged_from + now - crossing.until
                self.next_read = min(self.next_read, max(crosses_at, now + AGING_INTERVAL_MS))


def _described(id: int, task: NewTask) -> Described:
    return Described(
        id=id,
        type=task.type,
        key=task.key,
        label=task.label,
        group=task.group,
        priority=task.priority,
        urgency=task.priority,
        tags=_encode(task.tags).decode() if task.tags else None,
        created_at=task.created_at,
        aged_from=max(task.queued_at, task.created_at),
    )
