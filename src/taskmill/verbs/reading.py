"""Reading: records, counts, statistics, snapshots, events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from taskmill.errors import ConfigError, TaskNotFound
from taskmill.model.durations import Duration, optional_milliseconds
from taskmill.model.filters import FilterOptions, checked_filters
from taskmill.model.graph import TaskGraph
from taskmill.model.records import HistoryRecord, TaskRecord, TypeStats
from taskmill.model.snapshot import GroupSnapshot, Snapshot
from taskmill.model.status import Ending
from taskmill.observe.bus import Listener
from taskmill.verbs.parts import Parts, checked_id, checked_text

if TYPE_CHECKING:
    from taskmill.model.events import Event


class Reading(Parts):
    """Verbs that change nothing."""

    async def get(self, id: int) -> TaskRecord | HistoryRecord:
        """The task with this id, active or ended."""
        self._opened()
        record = await self._store.get(checked_id(id))
        if record is None:
            raise TaskNotFound(f"no task has the id {id}")
        return self._with_live_progress(record)

    async def find(self, type: str, key: str) -> TaskRecord | HistoryRecord | None:
        """The active task with this key, else the last that ended, else ``None``."""
        self._opened()
        record = await self._store.find(checked_text(type, "type"), checked_text(key, "key"))
        return None if record is None else self._with_live_progress(record)

    async def tasks(self, **filters: Unpack[FilterOptions]) -> list[TaskRecord]:
        """Active tasks, oldest first."""
        self._opened()
        return [self._live(record) for record in await self._store.tasks(checked_filters(filters))]

    async def history(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Ended tasks, newest first."""
        self._opened()
        return await self._store.history(checked_filters(filters))

    async def count(self, **filters: Unpack[FilterOptions]) -> int:
        """How many active tasks match; with an ending as ``status``, how many ended ones."""
        self._opened()
        return await self._store.count(checked_filters(filters))

    async def stats(self, type: str) -> TypeStats:
        """What is known about a task type from everything that ended."""
        self._opened()
        return await self._store.stats(checked_text(type, "type"))

    async def tag_values(self, key: str) -> dict[str, int]:
        """Each value of a tag among active tasks and how many have it, most frequent first."""
        self._opened()
        return await self._store.tag_values(checked_text(key, "key"))

    async def dead_letters(self, **filters: Unpack[FilterOptions]) -> list[HistoryRecord]:
        """Tasks that ended as dead letters, newest first."""
        if "status" in filters:
            raise ConfigError("dead_letters takes no status; use history(status=...) for other endings")
        filters["status"] = Ending.DEAD_LETTER
        return await self.history(**filters)

    async def snapshot(self) -> Snapshot:
        """A picture of what runs and what waits."""
        self._opened()
        counts = await self._store.counts()
        waiting = await self._store.waiting_by_group()
        running = await self.tasks(status="running")
        busy = Counter(record.group for record in running)
        return Snapshot(
            running=running,
            counts=counts,
            groups={
                name: GroupSnapshot(name=name, running=busy[name], pending=waiting.get(name, 0))
                for name in sorted({*waiting, *busy})
            },
            schedules=await self._store.schedules(),
            max_concurrency=self._settings.max_concurrency,
            dispatching=self._dispatcher is not None,
        )

    async def graph(self, id: int) -> TaskGraph:
        """Everything that is tied to a task: parents, children, dependencies and dependents."""
        self._opened()
        graph = await self._store.graph(checked_id(id))
        if graph is None:
            raise TaskNotFound(f"no task has the id {id}")
        return graph

    async def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until a task has ended, in this process or another."""
        self._opened()
        limit = optional_milliseconds(timeout, "timeout")
        until = None if limit is None else self._clock.monotonic() + limit / 1000
        ended = self._waiters.expect(checked_id(id))
        try:
            while True:
                ended.clear()
                record = await self.get(id)
                if isinstance(record, HistoryRecord):
                    await self._store.durable()
                    return record
                if until is not None and self._clock.monotonic() >= until:
                    raise TimeoutError(f"task {id} has not ended after {timeout}")
                self._neighbours.watch()
                await self._clock.wait(ended, until)
        finally:
            self._waiters.leave(id)

    def events(self, *kinds: type[Event], domain: str | None = None, type: str | None = None) -> Listener:
        """Listen from now on; an async iterator of the kinds given, or of all."""
        self._opened()
        return self._bus.listen(kinds, domain, type)

    async def facts(self) -> Mapping[str, Any]:
        """What ``taskmill doctor`` shows about the store."""
        self._opened()
        return await self._store.facts()

    def _with_live_progress(self, record: TaskRecord | HistoryRecord) -> TaskRecord | HistoryRecord:
        return self._live(record) if isinstance(record, TaskRecord) else record

    def _live(self, record: TaskRecord) -> TaskRecord:
        """With the progress the handler reported last, if it runs here."""
        if self._dispatcher is None:
            return record
        return self._dispatcher.workshop.with_live_progress(record)
