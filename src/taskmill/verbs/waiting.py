"""Follow tasks: wait for their end, listen to events, and count for the metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from taskmill.errors import StoreError, StoreLost, TimedOut
from taskmill.model.arguments import check_arguments
from taskmill.model.durations import Duration, optional_milliseconds
from taskmill.model.options import checked_id
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.status import Ending, Status
from taskmill.verbs.browsing import BrowseMethods
from taskmill.verbs.components import Components, checked_text

if TYPE_CHECKING:
    from taskmill.core.ports import Store  # noqa: F401 - named in quotes
    from taskmill.model.events import Event
    from taskmill.observe.bus import Listener
    from taskmill.observe.counters import Counters
    from taskmill.runtime.gauges import Gauges

E = TypeVar("E", bound="Event")

DISK_RETRY = 1.0
"""Seconds to wait before checking again whether an ending is on disk."""


class WaitMethods(Components, BrowseMethods["Store"]):
    """Methods that need an open scheduler, not only its store."""

    async def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until a task has ended, in this process or another, and return its record."""
        from taskmill.define.current import current

        self._opened()
        limit = optional_milliseconds(timeout, "timeout")
        until = None if limit is None else self._clock.monotonic() + limit / 1000
        ended = self._waiters.expect(checked_id(id))
        running = current.get()
        handler = None if running is None else running.task.id
        began = self._clock.monotonic()
        warn_at = None if handler is None and self._is_dispatched else began + self._wait_warnings.patience()
        try:
            while True:
                ended.clear()
                record = await self.get(id)
                wake_at = [until, self._deadline(record)]
                if isinstance(record, HistoryRecord) and await self._has_ended(record):
                    if await self._is_on_disk(id):
                        return record
                    wake_at.append(self._clock.monotonic() + DISK_RETRY)
                if until is not None and (now := self._clock.monotonic()) >= until:
                    # Imported here, because most programs need no text about a timeout.
                    from taskmill.policy.wording import span_text

                    self._wait_warnings.timed_out(now - began, is_dispatched=self._is_dispatched)
                    raise TimedOut(f"task {id} has not ended after {span_text(limit or 0)}")
                self._neighbours.watch()
                with self._wait_warnings.waiting(handler):
                    wakes_at = min((at for at in (*wake_at, warn_at) if at is not None), default=None)
                    await self._clock.wait(ended, wakes_at)
                    if warn_at is not None and self._clock.monotonic() >= warn_at:
                        warn_at = None
                        await self._warn_if_stuck(id, handler)
        finally:
            self._waiters.leave(id)

    async def _warn_if_stuck(self, id: int, handler: int | None) -> None:
        """Warn a caller that has waited for a while if the task cannot start."""
        if not self._is_dispatched:
            self._wait_warnings.no_dispatcher(id)
        elif handler is not None and self._loop is not None:
            record, rules = await self.get(id), self._rules(await self._store.controls())
            attempts = self._loop.attempts
            # Another node may run it.
            if isinstance(record, TaskRecord) and record.status is Status.PENDING:
                running = [attempt.task for attempt in (*attempts.open.values(), *attempts.lingering)]
                self._wait_warnings.no_slot(record, running, rules)

    async def _has_ended(self, record: HistoryRecord) -> bool:
        """True if the ending is final.

        Only a dispatcher, if there is one, decides that a task has expired, because it knows of clock steps.
        """
        if record.ending is not Ending.EXPIRED or not self._is_dispatched:
            return True
        return bool(await self._store.ended_among([record.id]))

    async def _is_on_disk(self, id: int) -> bool:
        """True if the ending of a task survives a power cut; False while the disk is full."""
        try:
            await self._store.durable()
        except StoreLost:
            raise
        except StoreError as wrong:
            from taskmill.core.logs import logger

            message = "task %d has ended, but that is not on disk yet; retrying in %g s: %s"
            logger.error(message, id, DISK_RETRY, wrong, extra={"task_id": id})
            return False
        return True

    def _deadline(self, record: TaskRecord | HistoryRecord) -> float | None:
        """Return when the deadline of a task ends it, on the monotonic clock; ``None`` if something dispatches."""
        if record.expires_at is None or self._is_dispatched:
            return None
        left = (record.expires_at - self._clock.now()).total_seconds()
        return self._clock.monotonic() + left if left > 0 else None

    @overload
    def events(
        self, *, domain: str | None = None, type: str | None = None, since: int | None = None
    ) -> Listener[Event]: ...
    @overload
    def events(
        self, *kinds: type[E], domain: str | None = None, type: str | None = None, since: int | None = None
    ) -> Listener[E]: ...
    @check_arguments
    def events(
        self, *kinds: type[Any], domain: str | None = None, type: str | None = None, since: int | None = None
    ) -> Listener[Any]:
        """Listen from now on; return an async iterator over the given kinds of events, or over all.

        ``since`` is the ``seq`` of an event of this scheduler: the iterator continues after that event. If the events
        after it are no longer known, the first event is ``EventsMissed``.
        """
        self._opened()
        for name, value in (("domain", domain), ("type", type)):
            if value is not None:
                checked_text(value, name)
        listener = self._bus.listen(kinds, domain, type, since)
        self._remote_events.follow()
        return listener

    def _end_events(self) -> None:
        """End all event streams, and end each new one as soon as it is created, because the program shuts down."""
        if self._is_open:
            self._bus.end_listeners()

    # For taskmill.metrics

    def _counters(self) -> Counters:
        """Return the counters of this scheduler; counting starts with the first call."""
        counters = self._settings.counters
        if counters is None:
            from taskmill.observe.counters import Counters

            counters = self._settings.counters = Counters()
            if self._is_open:
                self._connect_counters()
        return counters

    def _connect_counters(self) -> None:
        if self._settings.counters is not None:
            self._bus.counters = self._settings.counters
            self._store.measure(self._settings.counters)

    def _gauges(self) -> Gauges:
        """Return the current gauges of this process; safe to call from any thread, at any time."""
        from taskmill.runtime.gauges import read_gauges

        loop = self._loop if self._is_open else None
        machine_watch = self._session.machine_watch if loop is not None else None
        watch = None if machine_watch is None else machine_watch.watch
        return read_gauges(self._settings, loop, watch, self._clock.now_ms())
