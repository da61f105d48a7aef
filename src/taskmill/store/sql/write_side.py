"""The writing half of a store in SQL: every verb as a request to the writer."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from typing import Any, TypeVar

from taskmill.core.cron_port import CronBeginning, CronDeclaration, Fired, Firings, Occasion
from taskmill.core.ports import Clock, StoreCounters
from taskmill.core.process import node_name
from taskmill.errors import StoreCorrupt, StoreError, SubmissionError
from taskmill.model.commit import ANY_COMMIT, CancelResult, Commit, SeriesChange, SetAside
from taskmill.model.controls import Change, Declared, Scope
from taskmill.model.machine import Machine
from taskmill.model.settings import PruneRule
from taskmill.model.submission import Stored
from taskmill.model.task import Described, NewTask, Origin
from taskmill.model.turn import Turn, TurnResult
from taskmill.policy.inbox import Answer
from taskmill.policy.rehearsal import Rehearsal
from taskmill.store.sql import (
    cluster,
    controls,
    cron,
    cron_firing,
    damage,
    dependencies,
    history,
    inbox,
    ledger,
    machine,
    paused_time,
    rehearsing,
    series,
)
from taskmill.store.sql.connection import Connection, encoded
from taskmill.store.sql.endings import just_ends
from taskmill.store.sql.group_commit import Asked, GroupCommit, Request
from taskmill.store.sql.locating import Locating
from taskmill.store.sql.statements import SQL
from taskmill.store.sql.store_thread import fail, succeed

T = TypeVar("T")

CANCEL_ROWS = 64
"""The least number of rows assumed for a cancellation: enough to prefer the writer's thread to the event loop."""
MOST_ARRIVALS = 128
"""The largest number of concurrent submits that share one insert. Later ones share the next insert, so that the callers
of the first can continue meanwhile."""

_Arrival = tuple[Sequence[NewTask], "asyncio.Future[list[Stored]]"]


def _with_note(request: Callable[[Connection], T], connection: Connection) -> T:
    """Run a request, and note for other processes that it may have changed anything."""
    before = connection.rows_changed
    result = request(connection)
    if before is None or connection.rows_changed != before:
        connection.note(ANY_COMMIT)
    return result


class WriteSide(Locating):
    """Everything that changes a store."""

    _clock: Clock
    _requests: GroupCommit
    machine_name: str
    """The name under which the readings of this machine are stored."""

    def __init__(self) -> None:
        self.node_name = node_name()
        self._arrivals: list[_Arrival] = []
        self._refusing: set[asyncio.Future[None]] = set()
        self.committed: Callable[[Commit], None] = lambda _commit: None
        self.watch_cut_off: Callable[[], None] = lambda: None
        self.news: asyncio.Event | None = None

    @property
    def dispatches_alone(self) -> bool:
        """True if only this process dispatches, so that no other has to know what it commits."""
        return False

    def is_cut_off(self) -> bool:
        return False

    def writes_beside(self, rows: int) -> bool:
        return self._requests.writes_in_thread(rows)

    def measure(self, counters: StoreCounters) -> None:
        self._requests.measure(counters)

    async def _write(
        self, request: Request[T], rows: int = 1, *, alone: bool = True, durable: bool = True, moves: bool = True
    ) -> T:
        """Run a request in a transaction. The error for a damaged row names that row.

        ``moves`` is False if the request changes nothing that a dispatcher acts on, or notes that itself.
        """
        request = self._noted(request, moves=moves and rows > 0)
        try:
            return await self._requests.ask(request, rows, alone=alone, durable=durable)
        except StoreCorrupt as wrong:
            raise await self._located(wrong) from wrong

    async def _write_turn(
        self, request: Request[TurnResult], rows: int, *, alone: bool = True, moves: bool = True, patience: float = 0.0
    ) -> TurnResult:
        """Run a turn as :meth:`_write` does; a caller that is cancelled meanwhile gets the result."""
        request = self._noted(request, moves=moves)
        try:
            return await self._requests.commit_turn(request, rows, alone=alone, patience=patience)
        except StoreCorrupt as wrong:
            raise await self._located(wrong) from wrong

    def _noted(self, request: Request[T], *, moves: bool) -> Request[T]:
        return partial(_with_note, request) if moves and not self.dispatches_alone else request

    def when_durable(self, callback: Callable[[], None]) -> None:
        self._requests.when_durable(callback, None)

    def make_durable_soon(self) -> None:
        self._requests.sync_soon()

    async def durable(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.when_durable(partial(succeed, done, None), partial(fail, done))
        await done

    def add(self, tasks: Sequence[NewTask]) -> Awaitable[list[Stored]]:
        """Store tasks. Concurrent callers share one insert and one commit."""
        answer: asyncio.Future[list[Stored]] = asyncio.get_running_loop().create_future()
        self._arrivals.append((tasks, answer))
        if len(self._arrivals) == 1:
            asyncio.get_running_loop().call_soon(self._store_arrivals)
        elif len(self._arrivals) >= MOST_ARRIVALS:
            self._store_arrivals()
        return answer

    def _store_arrivals(self) -> None:
        arrivals, self._arrivals = self._arrivals, []
        if arrivals:
            self._store_together(arrivals)
            self._requests.kick()

    def _store_together(self, arrivals: Sequence[_Arrival]) -> None:
        requests = [tasks for tasks, _ in arrivals]
        self._requests.post(
            Asked(
                partial(self._insert_all, requests),
                sum(map(len, requests)),
                answered=partial(self._arrivals_stored, arrivals),
                failed=partial(self._arrivals_failed, arrivals),
                at_commit=self._publish,
                alone=not inbox.is_plain(requests),
            )
        )

    def _insert_all(self, requests: Sequence[Sequence[NewTask]], connection: Connection) -> tuple[list[Answer], Commit]:
        # Read the clock inside the transaction: by then a reader may have seen that a task with the same key has
        # expired.
        answers, commit = inbox.insert(connection, requests, self._clock.now_ms())
        self._note(connection, commit)
        return answers, commit

    def _note(self, connection: Connection, commit: Commit) -> None:
        if not self.dispatches_alone:
            connection.note(commit)

    def _publish(self, stored: tuple[Any, Commit]) -> None:
        self.committed(stored[1])

    def _arrivals_stored(self, arrivals: Sequence[_Arrival], stored: tuple[list[Answer], Commit]) -> None:
        for (_, waiting), answer in zip(arrivals, stored[0], strict=True):
            if isinstance(answer, SubmissionError):
                fail(waiting, answer)
            elif not waiting.done():
                waiting.set_result(answer)

    def _arrivals_failed(self, arrivals: Sequence[_Arrival], wrong: Exception) -> None:
        if len(arrivals) > 1 and isinstance(wrong, SubmissionError | StoreCorrupt):
            # One request cannot be stored, or touches a damaged row. Store each by itself, so that only that one fails.
            for arrival in arrivals:
                self._store_together([arrival])
        elif isinstance(wrong, StoreCorrupt):
            self._refusing.add(refusing := asyncio.ensure_future(self._refuse(arrivals[0], wrong)))
            refusing.add_done_callback(self._refusing.discard)
        else:
            for _, waiting in arrivals:
                fail(waiting, wrong)

    async def _refuse(self, arrival: _Arrival, wrong: StoreCorrupt) -> None:
        try:
            fail(arrival[1], await self._located(wrong))
        except StoreError as other:
            fail(arrival[1], other)

    @abstractmethod
    def add_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]: ...

    async def add_within(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        return self.add_through(connection, tasks)

    async def rehearse(self, tasks: Sequence[NewTask]) -> Rehearsal:
        now = self._clock.now_ms()
        found = await self._read(lambda connection: rehearsing.read_only(connection, tasks, now))
        if found is not None:
            return found
        try:
            await self._write(lambda connection: rehearsing.and_roll_back(connection, tasks, now), moves=False)
        except rehearsing.Rehearsed as done:
            return done.rehearsal
        raise AssertionError("a rehearsal was committed")

    async def spawn(self, tasks: Sequence[NewTask], origin: Origin) -> list[Stored]:
        def write(connection: Connection) -> tuple[Answer, Commit]:
            answer, commit = inbox.spawn(connection, tasks, origin, self._clock.now_ms())
            self._note(connection, commit)
            return answer, commit

        answer, _ = await self._requests.ask(write, len(tasks), alone=True, at_commit=self._publish)
        if isinstance(answer, SubmissionError):
            raise answer
        return answer

    async def turn(self, turn: Turn) -> TurnResult:
        return await self._turn(turn)

    async def _turn(self, turn: Turn, *, moves: bool = False) -> TurnResult:
        is_large = turn.upkeep.promote or turn.upkeep.expire or turn.look.survey
        tasks = (turn.judged, turn.starts.hooks, turn.starts.claims, turn.progress)
        rows = sum(map(len, tasks)) + (ledger.BITE if is_large else 1)
        alone = self._requests.is_always_alone or _must_be_alone(turn)
        commit = partial(self._commit_turn, turn)
        return await self._write_turn(commit, rows, alone=alone, moves=moves, patience=turn.patience)

    def fetch(self) -> None:
        self._requests.fetch()

    def _commit_turn(self, turn: Turn, connection: Connection) -> TurnResult:
        # Not with the time of its plan: the turn would start tasks after their deadlines and set token buckets back.
        result = ledger.commit_turn(connection, turn, self._later(turn.now, turn.planned_at), self.node_name)
        self._note(connection, result.commit)
        return result

    def _later(self, now: int, then: float | None) -> int:
        """Return ``now`` plus the time since ``then`` on the monotonic clock; with None, just ``now``."""
        return now if then is None else now + int((self._clock.monotonic() - then) * 1000)

    def _with_time(self, now: int, request: Callable[[Connection, int], T]) -> Callable[[Connection], T]:
        """Give a request the time at which its transaction begins; ``now`` is the time at which it is asked.

        Until then, another process may have the write lock. With the earlier time, a pause would revive a task that has
        expired meanwhile, and a parent would end before a child whose ending was committed meanwhile.
        """
        asked_at = self._clock.monotonic()
        return lambda connection: request(connection, self._later(now, asked_at))

    async def set_aside(self, now: int, *, running: bool) -> SetAside:
        return await self._write(
            lambda connection: damage.set_aside(connection, now, running=running), rows=ledger.BITE
        )

    async def publish_types(self, types: Mapping[str, str]) -> None:
        await self._write(lambda connection: connection.execute(SQL["publish_types"], (encoded(types),)).rowcount)

    async def declare(self, declared: Declared) -> None:
        await self._write(lambda connection: controls.declare(connection, declared, self._clock.now_ms()))

    async def note_machine(self, seen: Machine) -> None:
        await self._write(lambda connection: machine.note_machine(connection, seen, self.machine_name), moves=False)

    async def change(self, changes: Mapping[Scope, Change]) -> None:
        await self._write(lambda connection: controls.change(connection, changes, self._clock.now_ms()))

    async def pause(self, scope: Scope, now: int, until: int | None, *, relative: bool = False) -> bool:
        def pause(connection: Connection, at: int) -> bool:
            end = until
            if end is not None:
                # A pause for a duration lasts as long as asked. One until an instant that has passed ends at once.
                end = end + at - now if relative else max(end, at)
            return paused_time.pause(connection, scope, at, end, relative=relative)

        return await self._write(self._with_time(now, pause))

    async def resume(self, scope: Scope, now: int) -> bool:
        resume = self._with_time(now, lambda connection, at: paused_time.resume(connection, scope, at))
        return await self._write(resume, rows=ledger.BITE)

    async def end_pauses(self, now: int) -> list[Scope]:
        return await self._write(self._with_time(now, paused_time.end_pauses), rows=ledger.BITE)

    async def give_back(self) -> bool:
        return await self._write(paused_time.bite, paused_time.BITE, durable=False)

    async def set_priority(self, id: int, priority: int) -> Commit | None:
        return await self._write(lambda connection: dependencies.set_priority(connection, id, priority))

    async def note_begun(self, begun: Sequence[tuple[int, int, int]]) -> None:
        await self._write(lambda connection: connection.execute(SQL["note_begun"], (encoded(begun),)).rowcount)

    async def save(self, id: int, attempt: int, saved: str) -> bool:
        return await self._requests.ask(
            lambda connection: connection.execute(SQL["save"], (id, attempt, saved)).rowcount == 1
        )

    async def cancel(self, ids: Sequence[int], now: int, prefetched: Sequence[tuple[int, int]] = ()) -> CancelResult:
        cancel = self._with_time(now, lambda connection, at: ledger.cancel(connection, ids, at, prefetched))
        # Each task may have a tree of descendants.
        return await self._write(cancel, max(len(ids), CANCEL_ROWS))

    async def revive(self, id: int, now: int) -> Described | None:
        return await self._write(self._with_time(now, lambda connection, at: history.revive(connection, id, at)))

    async def revive_all(self, ids: Sequence[int], now: int) -> list[Described]:
        revive = self._with_time(now, lambda connection, at: history.revive_all(connection, ids, at))
        return await self._write(revive, len(ids))

    async def pause_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(self._with_time(now, lambda connection, at: ledger.pause_series(connection, id, at)))

    async def resume_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(self._with_time(now, lambda connection, at: ledger.resume_series(connection, id, at)))

    async def cancel_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(self._with_time(now, lambda connection, at: ledger.cancel_series(connection, id, at)))

    async def prune(self, rules: Sequence[PruneRule], now: int, limit: int, *, durable: bool = True) -> int:
        def write(connection: Connection) -> int:
            return history.prune(connection, rules, now, limit)

        return await self._write(write, rows=limit, durable=durable, moves=False)

    async def shift_clock(self, by_ms: int) -> None:
        now = self._clock.now_ms()

        def write(connection: Connection) -> None:
            # In a cluster the other nodes' clocks are right; shift nothing.
            if not cluster.others(connection):
                shift(connection)
            series.notice_put_back(connection, now)

        def shift(connection: Connection) -> None:
            series.clock_stepped(connection, by_ms)
            connection.execute(SQL["shift_relative"], (by_ms,))
            connection.execute(SQL["shift_deadlines"], (by_ms,))
            connection.execute(SQL["shift_waits"], (by_ms,))
            connection.execute(SQL["shift_pauses"], (by_ms,))
            connection.execute(SQL["shift_ended_pauses"], (by_ms,))
            connection.execute(SQL["bump_version"])
            controls.shift_buckets(connection, by_ms, now)
            if by_ms < 0:
                cron.rewind(connection, now, -by_ms)

        await self._write(write, rows=ledger.BITE)

    # Cron

    async def begin_cron(self, declared: Sequence[CronDeclaration], now: int, zone: tzinfo) -> CronBeginning:
        return await self._write(lambda connection: cron_firing.begin(connection, declared, now, zone), len(declared))

    async def fire_cron(self, occasions: Sequence[Occasion], now: int, zone: tzinfo) -> Firings:
        def write(connection: Connection) -> tuple[Firings, Commit]:
            return cron_firing.fire(connection, occasions, now, zone)

        firings, commit = await self._write(write, len(occasions))
        self.committed(commit)
        return firings

    async def run_cron(self, name: str, task: NewTask, now: int) -> Fired:
        run = self._with_time(now, lambda connection, at: cron_firing.run(connection, name, task, at))
        fired, commit = await self._write(run)
        self.committed(commit)
        return fired


def _must_be_alone(turn: Turn) -> bool:
    """True if the turn depends on rows of other tasks, or changes them.

    A store with many writers then takes the exclusive lock first. If only the rows show that the lock is needed (a task
    was stopped meanwhile, a firing of a cron task starts), the transaction is rolled back and started again with the
    lock (docs/decisions/0020).
    """
    starts, upkeep = turn.starts, turn.upkeep
    return (
        starts.admission is not None
        or starts.preempt is not None
        or starts.owes_paused_time
        or upkeep.expire
        or upkeep.resume_preempted
        or upkeep.resume_eased
        or not all(map(just_ends, turn.judged))
    )
