"""Read records, counts, statistics, snapshots and explanations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from taskmill.errors import ConfigError, TaskNotFound
from taskmill.model.controls import EVERYTHING, ScopeKind
from taskmill.model.durations import FIRST_INSTANT_MS, Duration, instant, milliseconds
from taskmill.model.filters import FilterOptions, checked_filters
from taskmill.model.options import checked_id
from taskmill.model.records import ErrorGroup, HistoryRecord, TaskGraph, TaskRecord, TypeStats
from taskmill.model.status import Ending, Status
from taskmill.verbs.components import OpenStore, ReadComponents, checked_text, in_thread

if TYPE_CHECKING:
    from taskmill.model.cluster import NodeAtWork
    from taskmill.model.explanation import Explanation
    from taskmill.model.machine import NodeMachine
    from taskmill.model.published import PublishedType
    from taskmill.model.queue_state import WholeQueue
    from taskmill.model.snapshot import Schedule, Snapshot
    from taskmill.policy.rules import Rules


def _since_ms(since: object, now: int) -> int:
    if since is None:
        return FIRST_INSTANT_MS
    if isinstance(since, datetime):
        return instant(since, "since")
    return max(FIRST_INSTANT_MS, now - milliseconds(since, "since"))


MOST_EXPLAINED = 5_000
"""With more active tasks than this, ``explain`` does not read the whole queue to simulate it: about 50 ms."""


class ReadMethods(ReadComponents[OpenStore]):
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

    async def error_groups(self, since: datetime | Duration | None = None) -> list[ErrorGroup]:
        """Return the errors of attempts, grouped by task type, exception and location, the latest group first.

        ``since`` is an instant, or a duration back from now; the default is all errors that are kept.
        """
        self._opened()
        return await self._store.error_groups(_since_ms(since, self._clock.now_ms()))

    async def task_types(self) -> dict[str, PublishedType]:
        """Return the task types that programs have registered in the store, with their parameters, by name."""
        from taskmill.model.published import published_type

        self._opened()
        published = await self._store.published_types()
        return {name: published_type(name, defaults) for name, defaults in sorted(published.items())}

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
        from taskmill.model.snapshot import Snapshot
        from taskmill.verbs.snapshots import groups_of, node_snapshot, rates_of, unhandled_of

        self._opened()
        await self._store_beginnings()
        load = await self._store.load_of_groups()
        rules, now = self._rules(load.controls), self._clock.now_ms()
        running, nodes = await self._store.running_tasks()
        rules = self._with_all_slots(rules, nodes)
        unknown = await self._unknown(load.unstarted)
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
            next_due=await self._store.next_due(),
        )

    async def _cron_schedules(self, now: int) -> list[Schedule]:
        rows = await self._store.cron_rows()
        if not rows:
            return []
        from taskmill.verbs.snapshots import cron_schedule

        zone = self._clock.zone()
        return [cron_schedule(row, now, zone) for row in rows]

    async def explain(self, id: int) -> Explanation:
        """Explain why a task waits: every hold with its numbers, its estimated start, and what would start it."""
        explanation = await self._explain(id)
        if not self._may_foresee(explanation):
            return explanation
        from taskmill.simulation.explaining import foresee, not_searched, with_forecast

        counts = await self._store.counts()
        if sum(counts.get(status, 0) for status in Status) > MOST_EXPLAINED:
            return not_searched(explanation, MOST_EXPLAINED)
        queue, rules = await self._queue_state()
        foreseen = await in_thread(foresee, queue, rules, id, explanation.holds, self._clock.zone())
        return with_forecast(explanation, foreseen, queue.now)

    def _may_foresee(self, explanation: Explanation) -> bool:
        """True if a task waits, something dispatches, and the start is not known without a simulation."""
        reasons = {hold.reason for hold in explanation.holds}
        if not reasons or "no_dispatcher" in reasons or not self._is_dispatched:
            return False
        if reasons <= {"not_due"}:
            return explanation.expires_at is not None
        return explanation.status in (Status.PENDING, Status.SCHEDULED, Status.BLOCKED, Status.PAUSED)

    async def _queue_state(self, types: Collection[str] = (), *, only_runs: bool = False) -> tuple[WholeQueue, Rules]:
        """Return what a simulation begins with, and the rules in force."""
        queue = await self._read_queue(types, only_runs=only_runs)
        rules = self._rules(queue.controls)
        if self._store.is_cluster:
            rules = self._with_all_slots(rules, (await self._store.running_tasks())[1])
        queue.unknown_types = await self._unknown({*types, *(task.type for task in queue.tasks)})
        machines = await self._machines()
        if machines:
            queue.capacity = machines[0].machine.capacity
        return queue, rules

    async def _read_queue(self, types: Collection[str], *, only_runs: bool) -> WholeQueue:
        return await self._store.queue_state(types, only_runs=only_runs)

    async def _explain(self, id: int) -> Explanation:
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
            unknown = frozenset(type for type in unknown if not self._has_handler(type))
            if not self._store.is_cluster:
                return unknown
        if not unknown:
            return unknown
        handled = await self._store.handled_types() if self._is_dispatched else None
        return unknown.difference(await self._store.published_types() if handled is None else handled)

    async def _pressures(self) -> Mapping[str, float]:
        """Return the pressure by source; if several nodes have a source, the highest value."""
        machine_watch = self._machine_watch
        here = (
            dict(machine_watch.watch.pressures) if machine_watch is not None and machine_watch.watch is not None else {}
        )
        found = [here, *(each.machine.pressures for each in await self._machines() if not each.is_here)]
        names = sorted({name for pressures in found for name in pressures})
        return {name: max(pressures.get(name, 0.0) for pressures in found) for name in names}

    async def _machines(self) -> list[NodeMachine]:
        """Return the readings of each dispatching node, this one included."""
        from taskmill.model.machine import UNSEEN, NodeMachine

        machine_watch = self._machine_watch
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

    @property
    def _is_dispatched(self) -> bool:
        return self._loop is not None or self._store.dispatcher_is_alive()

    async def facts(self, *, integrity: bool = False) -> Mapping[str, Any]:
        """Return facts about the store, for ``taskmill doctor``; with ``integrity``, check every page of a file."""
        self._opened()
        return await self._store.facts(integrity=integrity)

    def _with_live_progress(self, record: TaskRecord | HistoryRecord) -> TaskRecord | HistoryRecord:
        return self._live(record) if isinstance(record, TaskRecord) else record

    async def _store_beginnings(self) -> None:
        """Make the store show every task that runs here as running."""
        if self._loop is not None:
            await self._loop.prefetching.store_beginnings()

    def _live(self, record: TaskRecord) -> TaskRecord:
        """Return the record with the handler's latest progress, if it runs here."""
        if self._loop is None:
            return record
        return self._loop.attempts.with_live_progress(record)
