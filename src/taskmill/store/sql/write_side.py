"""The writing half of a store in SQL: every verb as a request to the writer."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from typing import TypeVar

from taskmill.core.cron_port import CronBeginning, CronDeclaration, Firings, Occasion
from taskmill.core.ports import Clock, StoreCounters
from taskmill.errors import StoreCorrupt, StoreError, SubmissionError
from taskmill.model.commit import CancelResult, Commit, Recovery, SeriesChange, SetAside
from taskmill.model.controls import Change, Declared, Scope
from taskmill.model.machine import Machine
from taskmill.model.settings import PruneRule
from taskmill.model.task import Described, NewTask, Origin, Stored
from taskmill.model.turn import Turn, TurnResult
from taskmill.policy.inbox import Answer
from taskmill.store.sql import (
    cluster,
    controls,
    cron,
    cron_firing,
    damage,
    history,
    inbox,
    ledger,
    machine,
    paused_time,
    recovering,
    series,
)
from taskmill.store.sql.cluster import must_be_alone
from taskmill.store.sql.connection import Connection, encoded
from taskmill.store.sql.damage import Locating
from taskmill.store.sql.group_commit import GroupCommit
from taskmill.store.sql.statements import SQL

T = TypeVar("T")

CANCEL_ROWS = 64
"""The least number of rows assumed for a cancellation: enough to prefer the writer's thread to the event loop."""
MOST_ARRIVALS = 128
"""The largest number of concurrent submits that share one insert. Later ones share the next insert, so that the callers
of the first can continue meanwhile."""

_Arrival = tuple[Sequence[NewTask], "asyncio.Future[list[Stored]]"]


class WriteSide(Locating):
    """Everything that changes a store."""

    _clock: Clock
    _requests: GroupCommit
    machine_name: str
    """The name under which the readings of this machine are stored."""

    def __init__(self) -> None:
        self._arrivals: list[_Arrival] = []
        self._refusing: set[asyncio.Future[None]] = set()
        self.committed: Callable[[Commit], None] = lambda _commit: None
        self.watch_cut_off: Callable[[], None] = lambda: None
        self.news: asyncio.Event | None = None

    def is_cut_off(self) -> bool:
        return False

    def measure(self, counters: StoreCounters) -> None:
        self._requests.measure(counters)

    def _write(self, request: Callable[[Connection], T], rows: int = 1) -> Awaitable[T]:
        return self._answered(self._requests.ask(request, rows, alone=True))

    async def _answered(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except StoreCorrupt as wrong:
            raise await self._located(wrong) from wrong

    def when_durable(self, callback: Callable[[], None]) -> None:
        self._requests.when_durable(callback, None)

    def make_durable_soon(self) -> None:
        self._requests.sync_soon()

    async def durable(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def succeed() -> None:
            if not done.done():
                done.set_result(None)

        def failed(wrong: Exception) -> None:
            if not done.done():
                done.set_exception(wrong)

        self._requests.when_durable(succeed, failed)
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

    async def _refuse(self, arrival: _Arrival, wrong: StoreCorrupt) -> None:
        told: StoreError
        try:
            told = await self._located(wrong)
        except StoreError as other:
            told = other
        if not arrival[1].done():
            arrival[1].set_exception(told)

    def _store_together(self, arrivals: Sequence[_Arrival]) -> None:
        requests = [tasks for tasks, _ in arrivals]

        def committed(stored: tuple[list[Answer], Commit]) -> None:
            answers, commit = stored
            self.committed(commit)
            self._requests.when_durable(lambda: answered(answers), failed)

        def answered(answers: list[Answer]) -> None:
            for (_, waiting), answer in zip(arrivals, answers, strict=True):
                if not waiting.done():
                    if isinstance(answer, SubmissionError):
                        waiting.set_exception(answer)
                    else:
                        waiting.set_result(answer)

        def refused(wrong: Exception) -> None:
            if len(arrivals) == 1 and isinstance(wrong, StoreCorrupt):
                self._refusing.add(refusing := asyncio.ensure_future(self._refuse(arrivals[0], wrong)))
                refusing.add_done_callback(self._refusing.discard)
                return
            if len(arrivals) == 1 or not isinstance(wrong, SubmissionError | StoreCorrupt):
                failed(wrong)
                return
            # One request cannot be stored, or touches a damaged row. Store each by itself, so that only that one fails.
            for arrival in arrivals:
                self._store_together([arrival])

        def failed(wrong: Exception) -> None:
            for _, waiting in arrivals:
                if not waiting.done():
                    waiting.set_exception(wrong)

        self._requests.post(
            # Read the clock inside the transaction: by then a reader may have seen that a task with the same key has
            # expired.
            lambda connection: inbox.insert(connection, requests, self._clock.now_ms()),
            sum(map(len, requests)),
            committed,
            refused,
            alone=not inbox.is_plain(requests),
        )

    @abstractmethod
    def add_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]: ...

    async def add_within(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        return self.add_through(connection, tasks)

    async def spawn(self, tasks: Sequence[NewTask], origin: Origin) -> list[Stored]:
        answer, _ = await self._requests.ask(
            lambda connection: inbox.spawn(connection, tasks, origin, self._clock.now_ms()),
            len(tasks),
            alone=True,
            at_commit=lambda spawned: self.committed(spawned[1]),
        )
        if isinstance(answer, SubmissionError):
            raise answer
        return answer

    async def turn(self, turn: Turn) -> TurnResult:
        is_large = turn.upkeep.promote or turn.upkeep.expire or turn.look.survey
        tasks = (turn.judged, turn.starts.hooks, turn.starts.claims, turn.progress)
        rows = sum(map(len, tasks)) + (ledger.BITE if is_large else 1)
        answer = self._requests.ask(self._committing(turn), rows, alone=must_be_alone(turn), durable=False)
        try:
            return await answer
        except StoreCorrupt as wrong:
            raise await self._located(wrong) from wrong

    def _committing(self, turn: Turn) -> Callable[[Connection], TurnResult]:
        """Return a request that commits a turn, with the time at which its transaction begins.

        With the time of its plan, the turn would start tasks after their deadlines and set token buckets back.
        """

        def commit(connection: Connection) -> TurnResult:
            now = turn.now
            if turn.planned_at is not None:
                now += int((self._clock.monotonic() - turn.planned_at) * 1000)
            return ledger.commit_turn(connection, turn, now)

        return commit

    async def recover(self, now: int) -> Recovery:
        return await self._write(lambda connection: recovering.recover(connection, now), rows=ledger.BITE)

    async def set_aside(self, now: int, *, running: bool) -> SetAside:
        return await self._write(
            lambda connection: damage.set_aside(connection, now, running=running), rows=ledger.BITE
        )

    async def publish_types(self, types: Mapping[str, str]) -> None:
        await self._write(lambda connection: connection.execute(SQL["publish_types"], (encoded(types),)).rowcount)

    async def declare(self, declared: Declared) -> None:
        now = self._clock.now_ms()
        await self._write(lambda connection: controls.declare(connection, declared, now))

    async def note_machine(self, seen: Machine) -> None:
        await self._write(lambda connection: machine.note_machine(connection, seen, self.machine_name))

    async def change(self, changes: Mapping[Scope, Change]) -> None:
        now = self._clock.now_ms()
        await self._write(lambda connection: controls.change(connection, changes, now))

    async def pause(self, scope: Scope, now: int, until: int | None, *, relative: bool = False) -> bool:
        return await self._write(lambda connection: paused_time.pause(connection, scope, now, until, relative=relative))

    async def resume(self, scope: Scope, now: int) -> bool:
        return await self._write(lambda connection: paused_time.resume(connection, scope, now), rows=ledger.BITE)

    async def end_pauses(self, now: int) -> list[Scope]:
        return await self._write(lambda connection: paused_time.end_pauses(connection, now), rows=ledger.BITE)

    async def give_back(self) -> bool:
        return await self._requests.ask(paused_time.bite, paused_time.BITE, alone=True, durable=False)

    async def set_priority(self, id: int, priority: int) -> Commit | None:
        return await self._write(lambda connection: controls.set_priority(connection, id, priority))

    async def save(self, id: int, attempt: int, saved: str) -> bool:
        return await self._requests.ask(
            lambda connection: connection.execute(SQL["save"], (id, attempt, saved)).rowcount == 1
        )

    async def cancel(self, ids: Sequence[int], now: int) -> CancelResult:
        # Each task may have a tree of descendants.
        rows = max(len(ids), CANCEL_ROWS)
        return await self._write(lambda connection: ledger.cancel(connection, ids, now), rows)

    async def revive(self, id: int, now: int) -> Described | None:
        return await self._write(lambda connection: history.revive(connection, id, now))

    async def pause_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(lambda connection: series.pause(connection, id, now))

    async def resume_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(lambda connection: series.resume(connection, id, now))

    async def cancel_series(self, id: int, now: int) -> SeriesChange:
        return await self._write(lambda connection: ledger.cancel_series(connection, id, now))

    async def prune(self, rules: Sequence[PruneRule], now: int, limit: int) -> int:
        return await self._write(lambda connection: history.prune(connection, rules, now, limit), rows=limit)

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
            controls.buckets_go_on(connection, now)
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
