"""Announce starts, progress, failures and endings of tasks that other processes run, derived from the store.

No process writes a row for an event. While there is a listener, and another process has committed, the running tasks
and the latest rows of history and of the errors are compared with what was read before. Reads are at least
:data:`LOOK_INTERVAL` apart, and each is bounded: ``EventsMissed`` counts the endings and failures that do not fit.

An ending becomes visible some time after its instant: a transaction takes time, and the clocks of machines differ. So
each read looks back for :data:`LOOK_BACK_MS`, and :class:`Announced` drops what was announced before, here or by an
earlier read. Endings and failures are announced once they are durable, like those of this process.

A dead letter that was revived before a read is no longer in history. Its ending is derived from the error of its last
attempt, which is kept.

While this process dispatches an SQLite file, no other process runs tasks of it, and nothing is read.
"""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import msgspec

from taskmill.core.logs import logger
from taskmill.core.ports import Clock, Store
from taskmill.errors import StoreError
from taskmill.model.cluster import FailedElsewhere, WorkElsewhere
from taskmill.model.durations import elapsed, to_ms
from taskmill.model.progress import StoredProgress, TaskProgress, readable_progress
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.status import Ending
from taskmill.observe.announced import Announced
from taskmill.observe.bus import EventBus
from taskmill.runtime.neighbours import Neighbours

LOOK_INTERVAL = 0.1
"""The shortest time between two reads, in seconds."""
LOOK_ANYWAY = 0.5
"""Seconds after which this process checks whether it dispatches now, and whether there is still a listener."""
LOOK_BACK_MS = 10_000
"""How far back each read looks for endings and failures that have become visible late."""
ROUNDING_MS = 1
"""By how much the instant of an ending in the store may be too early."""
MOST_ANNOUNCED = 1_000
"""The largest number of endings, and of failures, that are announced after one read; earlier ones are missed."""

_decode_progress = msgspec.json.Decoder(StoredProgress).decode


class _Seen(NamedTuple):
    """The result of the last read."""

    since: int
    """When listening began; what happened before is not announced."""
    looked_at: int
    progress: dict[int, str | None]
    """The progress of each running task."""


class RemoteEvents:
    """Reads the work of other processes while there is a listener."""

    def __init__(
        self, store: Store, clock: Clock, bus: EventBus, neighbours: Neighbours, is_dispatching: Callable[[], bool]
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._neighbours = neighbours
        self._is_dispatching = is_dispatching
        self._following: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._since = 0
        self._seen: _Seen | None = None

    def follow(self) -> None:
        """Start to read; this stops by itself some time after the last listener has left."""
        if self._following is None and self._store.is_shared:
            # A dispatcher has ended tasks itself, perhaps in this millisecond; they are not news of another process.
            self._since = self._clock.now_ms() + (1 if self._is_dispatching() else -ROUNDING_MS)
            self._bus.announced = Announced()
            self._following = asyncio.get_running_loop().create_task(self._follow(), name="taskmill-remote-events")
            self._neighbours.heard = self._woken.set
            self._neighbours.watch()

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow(self) -> None:
        try:
            while self._bus.is_heard:
                self._woken.clear()
                await self._look()
                await asyncio.sleep(LOOK_INTERVAL)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_ANYWAY):
                        await self._woken.wait()
        finally:
            self._following = self._seen = self._neighbours.heard = self._bus.announced = None

    async def _look(self) -> None:
        try:
            await self._look_once()
        except StoreError as wrong:
            logger.error("events of other processes could not be read, trying again: %s", wrong)
            self._woken.set()

    async def _look_once(self) -> None:
        is_alone = self._is_dispatching() and not self._store.is_cluster
        if is_alone and self._seen is None:
            # Endings of this process are announced when they are committed. Another process may take over at any time.
            self._since = self._clock.now_ms()
            self._announced.forget(self._since, frozenset())
            return
        now = self._clock.now_ms()
        seen = self._seen or _Seen(self._since, self._since, {})
        found = await self._store.work_elsewhere(seen.looked_at - LOOK_BACK_MS, seen.looked_at)
        await self._announce(found, seen, now)
        # After this process has taken over, one last read has found what the previous dispatcher did.
        self._seen = None if is_alone else _Seen(seen.since, now, {task.id: task.progress for task in found.running})
        if self._seen is not None:
            self._announced.forget(now, frozenset(self._seen.progress))

    @property
    def _announced(self) -> Announced:
        assert self._bus.announced is not None  # noqa: S101 - set while events are followed
        return self._bus.announced

    async def _announce(self, found: WorkElsewhere, seen: _Seen, now: int) -> None:
        endings, failures = await self._news(found, seen, now)
        # Before the starts of later attempts are noted.
        begun = {
            (each.id, each.attempt)
            for each in failures
            if self._has_begun_since(each.id, each.attempt, _began_at(each), seen, now)
        }
        started = {
            task.id for task in found.running if self._is_new_start(task.id, task.attempt, task.started_at, seen)
        }
        moved = {task.id: task.progress for task in found.running if task.progress != seen.progress.get(task.id)}
        if not self._seen:
            # Progress from before listening began is not news.
            moved = {id: progress for id, progress in moved.items() if id in started}
        ids = {*endings, *started, *moved, *(each.id for each in failures)}
        if not ids:
            return
        records = await self._store.records(sorted(ids))
        for failure in failures:
            record = records.get(failure.id)
            if record is not None and self._is_new_failure(failure, now):
                if (failure.id, failure.attempt) in begun:
                    self._bus.about_elsewhere("TaskDispatched", record, attempt=failure.attempt)
                self._announce_failure(failure, record)
        for id, ended_at in endings.items():
            record = records.get(id)
            if not isinstance(record, HistoryRecord) or to_ms(record.ended_at) != ended_at:
                continue  # It was revived meanwhile; what it did since is left to the next read.
            if self._announced.is_new_ending(id, ended_at):
                self._announce_end(record, seen, now)
        for task in found.running:
            record = records.get(task.id)
            if record is None:
                continue
            if task.id in started:
                self._bus.about_elsewhere("TaskDispatched", record, attempt=task.attempt)
            if task.id in moved and (progress := _readable(task.progress)) is not None:
                self._bus.about_elsewhere("TaskProgressed", record, progress=progress)

    async def _news(self, found: WorkElsewhere, seen: _Seen, now: int) -> tuple[dict[int, int], list[FailedElsewhere]]:
        """Return what to announce, in the order in which it happened: endings, as ids and instants, and failures."""
        announced = self._announced
        ended = [
            (ended_at, id)
            for ended_at, id in found.ended
            if ended_at >= seen.since and announced.may_be_new_ending(id, ended_at)
        ]
        failed = [
            each
            for each in found.failed
            if each.at >= seen.since and announced.may_be_new_failure(each.id, each.attempt)
        ]
        too_many, too_many_failed = ended[MOST_ANNOUNCED:], failed[MOST_ANNOUNCED:]
        for ended_at, id in too_many:
            announced.is_new_ending(id, ended_at)
        for each in reversed(too_many_failed):
            self._is_new_failure(each, now)
        if ended or failed:
            await self._store.durable()
        if missed := len(too_many) + len(too_many_failed) + found.left_out:
            self._bus.announce("EventsMissed", count=missed)
        endings = {id: ended_at for ended_at, id in reversed(ended[:MOST_ANNOUNCED])}
        return endings, failed[:MOST_ANNOUNCED][::-1]

    def _is_new_start(self, id: int, attempt: int, started_at: int, seen: _Seen) -> bool:
        return self._announced.is_new_start(id, attempt, self._clock.now_ms()) and started_at >= seen.since

    def _has_begun_since(self, id: int, attempt: int, began_at: int, seen: _Seen, now: int) -> bool:
        """True if an attempt that is over began and ended between two reads.

        One that began earlier was announced, and may be forgotten already.
        """
        is_recent = began_at >= max(seen.since, now - 2 * LOOK_BACK_MS)
        return is_recent and self._is_new_start(id, attempt, began_at, seen)

    def _is_new_failure(self, failure: FailedElsewhere, now: int) -> bool:
        is_last = failure.retry_ms is None
        return self._announced.is_new_failure(failure.id, failure.attempt, now, is_last=is_last)

    def _announce_failure(self, failure: FailedElsewhere, record: TaskRecord | HistoryRecord) -> None:
        error, delay = failure.error, failure.retry_ms
        after = None if delay is None else timedelta(milliseconds=delay)
        self._bus.about_elsewhere("TaskFailed", record, error=error, will_retry=delay is not None, retry_after=after)
        if delay is None:
            # Only dead letters are revived.
            self._bus.about_elsewhere("TaskDeadLettered", record, error=error)

    def _announce_end(self, record: HistoryRecord, seen: _Seen, now: int) -> None:
        about, bus = record, self._bus
        if record.started_at is not None:
            started_at = round(record.started_at.timestamp() * 1000)
            if self._has_begun_since(record.id, record.attempt, started_at, seen, now):
                bus.about_elsewhere("TaskDispatched", about, attempt=record.attempt)
            if record.progress is not None and record.progress != _readable(seen.progress.get(record.id)):
                bus.about_elsewhere("TaskProgressed", about, progress=record.progress)
        match record.ending:
            case Ending.COMPLETED:
                duration = record.duration or timedelta()
                bus.about_elsewhere("TaskCompleted", about, result=record.result, duration=duration)
            case Ending.FAILED | Ending.DEAD_LETTER:
                error = record.error or ""
                self._announced.is_new_failure(record.id, record.attempt, now)
                bus.about_elsewhere("TaskFailed", about, error=error, will_retry=False, retry_after=None)
                if record.ending is Ending.DEAD_LETTER:
                    bus.about_elsewhere("TaskDeadLettered", about, error=record.error)
            case Ending.CANCELLED:
                bus.about_elsewhere("TaskCancelled", about)
            case Ending.SUPERSEDED:
                bus.about_elsewhere("TaskSuperseded", about, new_task_id=None)
            case Ending.EXPIRED:
                age = elapsed(record.created_at, record.ended_at)
                bus.about_elsewhere("TaskExpired", about, dedup_key=record.key, age=age)
            case Ending.DEPENDENCY_FAILED:
                bus.about_elsewhere("TaskDependencyFailed", about, error=record.error or "")


def _began_at(failure: FailedElsewhere) -> int:
    return failure.at - (failure.duration_ms or 0)


def _readable(stored: str | None) -> TaskProgress | None:
    """Return stored progress; None if there is none or it is damaged."""
    try:
        return None if stored is None else readable_progress(_decode_progress(stored))
    except (msgspec.MsgspecError, UnicodeError):
        return None
