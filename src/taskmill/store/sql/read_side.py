"""The reading half of a SQL store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from taskmill.model.controls import Controls, Declared
from taskmill.model.explanation import GroupLoad, Situation, Surroundings
from taskmill.model.filters import Filters
from taskmill.model.machine import UNSEEN, Machine, MovedIo, NodeMachine
from taskmill.model.status import Ending, Status
from taskmill.policy.rules import Rules, declared_here
from taskmill.store import sql
from taskmill.store.sql import controls, counting, reading
from taskmill.store.sql.connection import Connection, one
from taskmill.store.sql.locating import Locating
from taskmill.store.sql.rows import View
from taskmill.store.sql.schedules import cron_rows, schedules
from taskmill.store.sql.statements import SQL

if TYPE_CHECKING:
    from taskmill.core.cron_port import CronRow
    from taskmill.core.ports import Clock
    from taskmill.model.browsing import Kept, PageRequest, SpanOfHistory, SuggestField, TaskPage
    from taskmill.model.cluster import NodeAtWork, WorkElsewhere
    from taskmill.model.queue_state import PastTask, WholeQueue
    from taskmill.model.records import ErrorGroup, HistoryRecord, TaskGraph, TaskRecord, TypeStats
    from taskmill.model.snapshot import Schedule
    from taskmill.model.task import Crossing, Described

T = TypeVar("T")

_decode_names = msgspec.json.Decoder(frozenset[str]).decode
_decode_types = msgspec.json.Decoder(dict[str, str]).decode


class ReadingThread(Protocol):
    """The thread in which a store is read."""

    @property
    def is_idle(self) -> bool:
        """True if it reads nothing, and no read waits for it."""
        ...

    async def run(self, function: Callable[[], T], /) -> T: ...
    async def close(self) -> None: ...


class CallingThread:
    """Runs reads in the calling thread, for programs without an event loop, such as commands."""

    is_idle = True

    async def run(self, function: Callable[[], T], /) -> T:
        return function()

    async def close(self) -> None:
        """Do nothing: no thread was started."""


def reading_thread(clock: Clock) -> ReadingThread:
    """Return a thread of its own for the reads of a store."""
    # Imported here, because it needs asyncio, which takes longer to load than a short answer to find.
    from taskmill.store.sql.store_thread import StoreThread

    return StoreThread("taskmill-reader", clock)


class ReadSide(Locating):
    """Every read of a store. Records show tasks as they are now, under the rules in force."""

    _clock: Clock
    machine_name: str = "machine"
    declared: Declared = Declared()
    """The settings that the program of this process declares."""
    _rules: Rules | None = None
    _known: tuple[int, bool] = (-1, False)
    """What the rules depend on: the version of the controls, and True if a dispatcher with other settings was alive."""
    _others_declare = False
    """True if the last dispatcher declared other settings than this program."""

    @abstractmethod
    def dispatcher_is_alive(self) -> bool: ...

    async def _look_up(self, request: Callable[[Connection], T]) -> T:
        """Run a read of one task."""
        return await self._read(request)

    async def _view(self, request: Callable[[Connection, View], T]) -> T:
        return await self._read(lambda connection: request(connection, self._present(connection)))

    def _present(self, connection: Connection) -> View:
        version, _ = controls.version(connection)
        if self._rules is None or self._known[0] != version:
            found = controls.read(connection)
            self._others_declare = found.declared is not None and found.declared != self.declared
            self._rules = None
        else:
            found = self._rules.controls
        # Checking for a live dispatcher costs more than the read itself, so do it only if the answer matters.
        known = (version, self._others_declare and self.dispatcher_is_alive())
        if self._rules is None or self._known != known:
            self._rules = Rules(declared_here(self.declared, found, is_dispatched=known[1]), found)
            self._known = known
        return View(self._rules, self._clock.now_ms())

    async def controls(self) -> Controls:
        return await self._read(controls.read)

    async def published_types(self) -> Mapping[str, str]:
        return await self._read(lambda connection: _decode_types(one(connection, SQL["published_types"])))

    async def handled_types(self) -> frozenset[str] | None:
        return await self._read(_handled_types)

    async def get(self, id: int) -> TaskRecord | HistoryRecord | None:
        return await self._look_up(lambda connection: reading.get(connection, self._present(connection), id))

    async def find(self, type: str, key: str) -> TaskRecord | HistoryRecord | None:
        return await self._view(lambda connection, view: reading.find(connection, view, type, key))

    async def situation(self, id: int) -> tuple[Situation, Surroundings, Controls] | None:
        def read(connection: Connection, view: View) -> tuple[Situation, Surroundings, Controls] | None:
            found = sql.explaining.situation(connection, id, view.rules, view.now)
            # Read again: the levels of token buckets change without a new version.
            return None if found is None else (*found, controls.read(connection))

        return await self._view(read)

    async def crossings(self, crossings: Sequence[Crossing]) -> tuple[list[Described], list[int | None]]:
        return await self._read(lambda connection: sql.explaining.crossings(connection, crossings))

    async def load_of_groups(self) -> GroupLoad:
        def read(connection: Connection, view: View) -> GroupLoad:
            running, waiting = counting.load_of_groups(connection, view)
            return GroupLoad(
                running,
                waiting,
                counting.unstarted_by_type(connection, view),
                counting.next_priorities(connection, view.rules, view.now),
                controls.read(connection),
            )

        return await self._view(read)

    async def ended_among(self, ids: Sequence[int]) -> list[int]:
        return await self._read(lambda connection: reading.ended_among(connection, ids))

    async def work_elsewhere(self, ended_since: int, news_since: int) -> WorkElsewhere:
        node = self._own_node()
        return await self._read(lambda connection: reading.work_elsewhere(connection, node, ended_since, news_since))

    @abstractmethod
    def _own_node(self) -> int | None:
        """Return the id of this node; on SQLite any number if this process dispatches, else None."""

    async def records(self, ids: Sequence[int]) -> dict[int, TaskRecord | HistoryRecord]:
        return await self._view(lambda connection, view: reading.records(connection, view, ids))

    async def children(self, id: int) -> list[HistoryRecord]:
        return await self._read(lambda connection: reading.children(connection, id))

    async def graph(self, id: int) -> TaskGraph | None:
        return await self._view(lambda connection, view: reading.graph(connection, view, id))

    async def schedules(self) -> list[Schedule]:
        return await self._read(schedules)

    async def cron_rows(self, names: Sequence[str] | None = None) -> list[CronRow]:
        return await self._read(lambda connection: cron_rows(connection, names))

    async def tasks(self, filters: Filters) -> list[TaskRecord]:
        return await self._view(lambda connection, view: reading.tasks(connection, view, filters))

    async def next_due(self) -> TaskRecord | None:
        return await self._view(reading.next_due)

    async def history(self, filters: Filters) -> list[HistoryRecord]:
        return await self._view(lambda connection, view: reading.history(connection, view, filters))

    async def running_tasks(self) -> tuple[list[TaskRecord], list[NodeAtWork]]:
        def read(connection: Connection, view: View) -> tuple[list[TaskRecord], list[NodeAtWork]]:
            with connection.snapshot():
                running = reading.tasks(connection, view, Filters(status=Status.RUNNING))
                return running, self._nodes(connection, running, view)

        return await self._view(read)

    @abstractmethod
    def _nodes(self, connection: Connection, running: Sequence[TaskRecord], view: View) -> list[NodeAtWork]: ...

    async def count(self, filters: Filters) -> int:
        return await self._view(lambda connection, view: reading.count(connection, view, filters))

    async def counts(self) -> dict[str, int]:
        return await self._view(reading.counts)

    async def oldest_ended(self, endings: Sequence[Ending]) -> int | None:
        return await self._read(lambda connection: sql.history.oldest_ended(connection, endings))

    async def stats(self, type: str) -> TypeStats:
        return await self._read(lambda connection: reading.stats(connection, type))

    async def error_groups(self, since: int) -> list[ErrorGroup]:
        return await self._read(lambda connection: sql.attempt_errors.groups(connection, since))

    async def ended_ids(self, filters: Filters) -> list[int]:
        return await self._read(lambda connection: reading.ended_ids(connection, filters))

    async def moved_io(self) -> dict[str, MovedIo]:
        return await self._read(sql.machine.moved)

    async def running_budgets(self) -> list[tuple[str, str, int | None]]:
        return await self._read(sql.machine.running_budgets)

    async def machine(self) -> Machine | None:
        return await self._read(lambda connection: sql.machine.machine(connection, self.machine_name))

    async def machines(self) -> list[NodeMachine]:
        """Return the last reading of the dispatcher's machine, if a dispatcher is alive; clusters override this."""
        return [NodeMachine(None, await self.machine() or UNSEEN)] if self.dispatcher_is_alive() else []

    async def queue_state(self, types: Collection[str] = (), *, only_runs: bool = False) -> WholeQueue:
        now = self._clock.now_ms()
        read = sql.queue_state.read_runs if only_runs else sql.queue_state.read
        return await self._read(lambda connection: read(connection, types, now))

    async def past_tasks(self, since: int) -> list[PastTask]:
        return await self._read(lambda connection: sql.queue_state.past(connection, since))

    async def tag_values(self, name: str) -> dict[str, int]:
        return await self._view(lambda connection, view: reading.tag_values(connection, view, name))

    async def page(self, wanted: PageRequest) -> TaskPage:
        return await self._view(lambda connection, view: sql.paging.page(connection, view, wanted))

    async def suggest(self, field: SuggestField, prefix: str, limit: int) -> list[str]:
        return await self._read(lambda connection: sql.browsing.suggest(connection, field, prefix, limit))

    async def activity(self, spans: Sequence[tuple[int, int]], sample: int) -> list[SpanOfHistory]:
        return await self._read(lambda connection: sql.browsing.activity(connection, spans, sample))

    async def kept(self, record: TaskRecord | HistoryRecord) -> Kept | None:
        return await self._view(lambda connection, view: sql.browsing.kept(connection, view, record))


def _handled_types(connection: Connection) -> frozenset[str] | None:
    (found,) = connection.execute(SQL["handled_types"]).fetchone()
    try:
        return None if found is None else _decode_names(found)
    except (msgspec.MsgspecError, UnicodeError):
        # The value is damaged; the next dispatcher writes it again.
        return None
