"""Read records, counts, statistics, snapshots, events and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import msgspec

from taskmill.core.logs import logger
from taskmill.define.current import current
from taskmill.errors import ConfigError, StoreError, StoreLost, TaskNotFound
from taskmill.model.controls import EVERYTHING, ScopeKind
from taskmill.model.durations import Duration, optional_milliseconds
from taskmill.model.explanation import Explanation
from taskmill.model.filters import FilterOptions, checked_filters
from taskmill.model.machine import UNSEEN, NodeMachine
from taskmill.model.records import HistoryRecord, TaskGraph, TaskRecord, TypeStats
from taskmill.model.snapshot import Schedule, Snapshot
from taskmill.model.status import Ending, Status
from taskmill.verbs.components import Components, checked_id, checked_text

if TYPE_CHECKING:
    from taskmill.model.cluster import NodeAtWork
    from taskmill.model.events import Event
    from taskmill.observe.bus import Listener
    from taskmill.observe.counters import Counters
    from taskmill.policy.rules import Rules
    from taskmill.runtime.gauges import Gauges

E = TypeVar("E", bound="Event")

DISK_RETRY = 1.0
"""Seconds to wait before checking again whether an ending is on disk."""


class ReadMethods(Components):
    """Methods that read and change nothing."""

    async def get(self, id: int) -> TaskRecord | HistoryRecord:
        """Return the task with this id, active or ended; raise ``TaskNotFound`` if there is none."""
        self._opened()
        record = await self._store.get(checked_id(id))
        if record is None:
            raise TaskNotFound(f"no task has the id {id}")
        return self._with_live_progress(record)

    async def find(self, type: str, key: str) -> TaskRecord | HistoryRecord | None:
        """Return the active task with this key, else the last one that ended, else ``None``."""
        self._opened()
        record = await self._store.find(checked_text(type, "type"), checked_text(key, "key"))
        return None if record is None else self._with_live_progress(record)

    async def tasks(self, **filters: Unpack[FilterOptions]) -> list[TaskRecord]:
        """Return active tasks, oldest first."""
        self._opened()
        await self._store_beginnings()
        return [self._live(record) for record in await self._store.tasks(checked_filters(filters))]

    async def history(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Return ended tasks, newest first."""
        self._opened()
        return await self._store.history(checked_filters(filters))

    async def count(self, **filters: Unpack[FilterOptions]) -> int:
        """Count the active tasks that match or, with an ending as ``status``, the ended ones."""
        self._opened()
        await self._store_beginnings()
        return await self._store.count(checked_filters(filters))

    async def stats(self, type: str) -> TypeStats:
        """Return statistics of a task type over all its ended tasks."""
        self._opened()
        return await self._store.stats(checked_text(type, "type"))

    async def tag_values(self, key: str) -> dict[str, int]:
        """Return each value of a tag among active tasks with its count, most frequent first."""
        self._opened()
        return await self._store.tag_values(checked_text(key, "key"))

    async def dead_letters(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Return dead letters, newest first."""
        if "status" in filters:
            raise ConfigError("dead_letters takes no status; use history(status=...) for other endings")
        filters["status"] = Ending.DEAD_LETTER
        return await self.history(**filters)

    async def snapshot(self) -> Snapshot:
        """Return a snapshot of running and waiting tasks, groups, pauses, rates, pressure, schedules and nodes."""
        # Imported here, because most programs never call this.
        from taskmill.verbs.snapshots import groups_of, node_snapshot, rates_of, unhandled_of

        self._opened()
        await self._store_beginnings()
        load = await self._store.load_of_groups()
        rules, now = self._rules(load.controls), self._clock.now_ms()
        running, nodes = await self._store.running_tasks()
        rules = self._with_all_slots(rules, nodes)
        unknown = await self._unknown(type for _, type in load.waiting)
        return Snapshot(
            running=[self._live(record) for record in running],
            counts=await self._store.counts(),
            groups=groups_of(load, rules, now, unknown),
            unhandled=unhandled_of(load, unknown),
            paused=rules.is_paused(EVERYTHING),
            paused_groups=sorted(rules.paused(ScopeKind.GROUP, now)),
            paused_domains=sorted(rules.paused(ScopeKind.DOMAIN, now)),
            rates=rates_of(rules, now),
            pressure=await self._pressures(),
            schedules=[*await self._store.schedules(), *await self._cron_schedules(now)],
            max_concurrency=rules.declared.max_concurrency,
            is_shared=rules.is_shared,
            dispatching=self._loop is not None,
            has_dispatcher=self._loop is not None or self._store.dispatcher_is_alive(),
            nodes=[node_snapshot(node) for node in nodes],
        )

    async def _cron_schedules(self, now: int) -> list[Schedule]:
        rows = await self._store.cron_rows()
        if not rows:
            return []
        from taskmill.verbs.snapshots import cron_schedule

        zone = self._clock.zone()
        return [cron_schedule(row, now, zone) for row in rows]

    async def explain(self, id: int) -> Explanation:
        """Explain why a task waits: every hold with its numbers, the tasks ahead of it, and its estimated start."""
        # Imported here, because most programs never call this.
        from taskmill.policy.explaining import about_ended, explain
        from taskmill.policy.paused_time import clocks, has_expired

        self._opened()
        await self._store_beginnings()
        found = await self._store.situation(checked_id(id))
        if found is None:
            return about_ended(await self.get(id))
        situation, around, controls = found
        now = self._clock.now_ms()
        if has_expired(situation, clocks(situation, self._rules(controls), now), now):
            return about_ended(await self.get(id))
        around.is_dispatching = self._is_dispatched
        around.unknown_types = await self._unknown([situation.type, *(type for _, type in around.waiting)])
        around.machines = await self._machines()
        rules = self._rules(controls)
        if self._store.is_cluster:
            rules = self._with_all_slots(rules, (await self._store.running_tasks())[1])
        return explain(situation, around, rules, self._clock.now_ms())

    def _with_all_slots(self, rules: Rules, nodes: Sequence[NodeAtWork]) -> Rules:
        """Return the rules with the slots of all live nodes together."""
        slots = sum(node.slots for node in nodes if node.is_alive and not node.is_here)
        if not self._store.is_cluster or not slots:
            return rules
        if self._loop is not None:
            slots += rules.declared.max_concurrency
        from taskmill.policy.rules import Rules

        return Rules(msgspec.structs.replace(rules.declared, max_concurrency=slots), rules.controls)

    async def _unknown(self, types: Iterable[str]) -> frozenset[str]:
        """Return the types without a handler on any dispatching node; if none dispatches, those never registered."""
        unknown = frozenset(types)
        if self._loop is not None:
            unknown = frozenset(type for type in unknown if self._registry.find(type) is None)
            if not self._store.is_cluster:
                return unknown
        if not unknown:
            return unknown
        handled = await self._store.handled_types() if self._is_dispatched else None
        return unknown.difference(await self._store.published_types() if handled is None else handled)

    async def _pressures(self) -> Mapping[str, float]:
        """Return the pressure by source; if several nodes have a source, the highest value."""
        machine_watch = self._session.machine_watch
        here = (
            dict(machine_watch.watch.pressures) if machine_watch is not None and machine_watch.watch is not None else {}
        )
        found = [here, *(each.machine.pressures for each in await self._machines() if not each.is_here)]
        names = sorted({name for pressures in found for name in pressures})
        return {name: max(pressures.get(name, 0.0) for pressures in found) for name in names}

    async def _machines(self) -> list[NodeMachine]:
        """Return the readings of each dispatching node, this one included."""
        machine_watch = self._session.machine_watch
        here = NodeMachine(None, UNSEEN if machine_watch is None else machine_watch.machine, is_here=True)
        if not self._store.is_cluster:
            return [here] if self._loop is not None else list(await self._store.machines())
        return [here._replace(node=each.node) if each.is_here else each for each in await self._store.machines()]

    async def graph(self, id: int) -> TaskGraph:
        """Return the tasks connected to a task: parents, children, dependencies and dependents."""
        self._opened()
        await self._store_beginnings()
        graph = await self._store.graph(checked_id(id))
        if graph is None:
            raise TaskNotFound(f"no task has the id {id}")
        return graph

    async def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until a task has ended, in this process or another, and return its record."""
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
                    self._wait_warnings.timed_out(now - began, is_dispatched=self._is_dispatched)
                    raise TimeoutError(f"task {id} has not ended after {timeout}")
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

    @property
    def _is_dispatched(self) -> bool:
        return self._loop is not None or self._store.dispatcher_is_alive()

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
            logger.error("task %d has ended, but that is not on disk yet; retrying in %g s: %s", id, DISK_RETRY, wrong)
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

    async def facts(self, *, integrity: bool = False) -> Mapping[str, Any]:
        """Return facts about the store, for ``taskmill doctor``; with ``integrity``, check every page of a file."""
        self._opened()
        return await self._store.facts(integrity=integrity)

    def _with_live_progress(self, record: TaskRecord | HistoryRecord) -> TaskRecord | HistoryRecord:
        return self._live(record) if isinstance(record, TaskRecord) else record

    async def _store_beginnings(self) -> None:
        """Make the store show every task that runs here as running."""
        if self._loop is not None:
            await self._loop.store_beginnings()

    def _live(self, record: TaskRecord) -> TaskRecord:
        """Return the record with the handler's latest progress, if it runs here."""
        if self._loop is None:
            return record
        return self._loop.attempts.with_live_progress(record)

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
