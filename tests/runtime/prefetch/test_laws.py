"""The laws of starting, on random workloads, with and without prefetch: handlers must not observe a difference."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from taskmill import Context, Domain, Group, RateLimit, Retry, Scheduler
from taskmill.dispatch import prefetch
from taskmill.events import TaskDispatched
from taskmill.model.controls import ScopeKind
from taskmill.model.options import CallOptions
from taskmill.model.records import HistoryRecord
from taskmill.model.turn import Turn, TurnResult
from taskmill.store.sql import controls, ledger
from taskmill.store.sql.connection import Connection
from taskmill.store.sqlite import writer
from taskmill.testing import ManualClock
from tests.both_engines import Engine
from tests.repetition import often

GROUPS = ("a", "b", "c")
TICK = 0.001
LONGEST = 600
"""Ticks after which a workload counts as stuck."""


@dataclass(frozen=True)
class Plan:
    """A task to submit, and the actions of its handler."""

    group: str
    priority: int
    deed: str
    number: int
    delay_ms: int | None
    ttl_ms: int | None
    has_key: bool

    def options(self, key: str) -> CallOptions:
        options = CallOptions(group=self.group, priority=self.priority)
        if self.delay_ms is not None:
            options["run_after"] = self.delay_ms / 1000
        if self.ttl_ms is not None:
            options["ttl"] = self.ttl_ms / 1000
        if self.has_key:
            options["key"] = key
        return options


@dataclass(frozen=True)
class Workload:
    slots: int
    cap: int | None
    rate: RateLimit | None
    plans: list[Plan]


deeds = st.sampled_from(["ok"] * 12 + ["fail", "nap", "urgent", "cancel", "pause", "late", "fail and urgent"])
plans = st.builds(
    Plan,
    group=st.sampled_from(GROUPS),
    priority=st.sampled_from([128] * 6 + [64, 192]),
    deed=deeds,
    number=st.integers(0, 59),
    delay_ms=st.sampled_from([None] * 9 + [2, 7]),
    ttl_ms=st.sampled_from([None] * 8 + [1, 5, 1001, 1500]),
    has_key=st.sampled_from([False] * 7 + [True]),
)
workloads = st.builds(
    Workload,
    slots=st.integers(1, 4),
    cap=st.sampled_from([None, None, None, 1, 2]),
    rate=st.sampled_from([None, None, None, RateLimit.per_second(400, burst=1)]),
    plans=st.lists(plans, min_size=20, max_size=60),
)


@dataclass
class Known:
    """The state of a task as the observer knows it."""

    plan: Plan
    id: int = 0
    queued_at: datetime | None = None
    """Since when it is in the queue; None for a delayed task."""
    starts: list[datetime] = field(default_factory=list[datetime])
    is_running: bool = False
    is_asked_to_end: bool = False
    """True once its cancellation was requested. The requesting handler may be cancelled before the call returns."""
    is_cancelled: bool = False
    is_stopped: bool = False
    """True once it was cancelled before it began."""
    waits: bool = True
    """True if it is in the queue, as far as handlers know."""

    @property
    def rank(self) -> tuple[int, datetime, int]:
        assert self.queued_at is not None
        return self.plan.priority, self.queued_at, self.id


class Claims:
    """Records, for each claim of a task with a slot, which groups were paused when it was committed.

    A claim that is committed before a group is resumed may begin after the resume has returned. It starts before more
    urgent tasks of that group, and breaks no law. This does not apply to a prefetched task: it returns to the queue.
    """

    def __init__(self) -> None:
        self._commit_turn = ledger.commit_turn
        self.paused: dict[tuple[int, int], frozenset[str]] = {}

    def commit_turn(self, connection: Connection, turn: Turn, now: int, node: str | None = None) -> TurnResult:
        result = self._commit_turn(connection, turn, now, node)
        if result.claimed:
            pauses = controls.read(connection).pauses
            groups = frozenset(scope.name for scope in pauses if scope.kind is ScopeKind.GROUP)
            self.paused |= {(task.id, task.attempt): groups for task in result.claimed if not task.prefetched}
        return result


class Observer:
    """Runs a workload and checks the laws at every start."""

    def __init__(self, workload: Workload, claims: Claims, store: str) -> None:
        self.workload = workload
        self.claims = claims
        claims.paused.clear()
        self.clock = ManualClock()
        self.tasks: dict[int, Known] = {}
        self.paused: set[str] = set()
        self.resuming: set[str] = set()
        """Groups that are about to be resumed: no handler can know whether they are still paused."""
        self.domain = Domain("d")
        self.wrong: list[str] = []

        @self.domain.task(retry=Retry.constant(1, delay=0))
        async def step(ctx: Context) -> None:
            await self.run(ctx)

        self.step = step
        self.scheduler = Scheduler(
            store,
            domains=[self.domain],
            clock=self.clock,
            max_concurrency=workload.slots,
            durability="process",
            aging=None,
            groups={"c": Group(cap=workload.cap, rate=workload.rate)} if workload.cap or workload.rate else {},
        )

    # Actions of handlers

    async def run(self, ctx: Context) -> None:
        while ctx.task.id not in self.tasks:
            # It begins before its submission has returned.
            await asyncio.sleep(0)
        task = self.tasks[ctx.task.id]
        self.started(task, ctx)
        task.is_running = True
        try:
            await self.act(task)
        finally:
            task.is_running = False
            task.waits = "fail" in task.plan.deed and len(task.starts) == 1
        if task.waits:
            raise ValueError(task.id)

    async def act(self, task: Known) -> None:
        deed, number = task.plan.deed, task.plan.number
        if deed == "nap":
            await self.clock.sleep((number % 9) * TICK)
        if deed == "late":
            await asyncio.sleep(0)
        if "urgent" in deed and len(task.starts) == 1:
            await self.submit([Plan(task.plan.group, task.plan.priority - 32, "ok", 0, None, None, has_key=False)])
        if deed == "cancel":
            victim = list(self.tasks.values())[number % len(self.tasks)]
            if not victim.starts and victim.waits:
                victim.is_asked_to_end = True
                victim.is_cancelled = await self.scheduler.cancel(victim.id) or victim.is_cancelled
                victim.is_stopped = victim.is_cancelled and not victim.starts
                victim.waits = False
        if deed == "pause":
            group = GROUPS[number % len(GROUPS)]
            await self.scheduler.group(group).pause()
            self.paused.add(group)

    async def submit(self, plans: list[Plan]) -> None:
        prepared = [
            self.step.options(**plan.options(f"key {len(self.tasks) + n}")).prepare() for n, plan in enumerate(plans)
        ]
        now = self.clock.now()
        handles = await self.scheduler.submit_many(prepared)
        for plan, handle in zip(plans, handles, strict=True):
            queued_at = None if plan.delay_ms is not None else now
            self.tasks[handle.id] = Known(plan, handle.id, queued_at)

    # The laws

    def started(self, task: Known, ctx: Context) -> None:
        now = self.clock.now()
        running = [other for other in self.tasks.values() if other.is_running]
        if len(running) >= self.workload.slots:
            self.wrong.append(f"{task.id} started beside {len(running)} others")
        if self.workload.cap is not None and task.plan.group == "c":
            in_group = sum(other.plan.group == "c" for other in running)
            if in_group >= self.workload.cap:
                self.wrong.append(f"{task.id} started above the cap")
        if task.is_running:
            self.wrong.append(f"{task.id} started twice at a time")
        if task.is_stopped:
            self.wrong.append(f"{task.id} started after it was cancelled")
        if ctx.task.expires_at is not None and now >= ctx.task.expires_at:
            self.wrong.append(f"{task.id} started after its deadline")
        task.starts.append(now)
        if ctx.attempt != len(task.starts):
            self.wrong.append(f"start {len(task.starts)} of {task.id} was attempt {ctx.attempt}")
        if self.workload.slots == 1:
            self.check_order(task, self.claims.paused.get((task.id, ctx.attempt), frozenset()))

    def check_order(self, task: Known, paused_at_claim: frozenset[str]) -> None:
        """Check the order; with one slot the waiting tasks are known, but for delayed ones and groups with limits."""
        if task.plan.group in self.paused:
            self.wrong.append(f"{task.id} started although its group was paused")
        if task.queued_at is None:
            return
        for other in self.tasks.values():
            if not other.waits or other is task or other.queued_at is None:
                continue
            if other.plan.group in self.paused | self.resuming | paused_at_claim:
                continue
            if other.plan.ttl_ms is not None and other.plan.ttl_ms < LONGEST:
                continue
            is_limited = other.plan.group == "c" and (self.workload.cap or self.workload.rate)
            overtaken = other.plan.priority < task.plan.priority and not is_limited
            if overtaken or (other.plan.group == task.plan.group and other.rank < task.rank):
                self.wrong.append(f"{task.id} started before {other.id}")

    # Running

    async def play(self) -> None:
        async with self.scheduler as scheduler:
            events = scheduler.events(TaskDispatched)
            await self.submit(self.workload.plans)
            async with scheduler.running():
                for tick in range(LONGEST):
                    await self.clock.advance(TICK)
                    if not await scheduler.count():
                        break
                    if tick % 8 == 7:
                        await self.resume_groups()
            assert not self.wrong, self.wrong[:5]
            await self.check_records(scheduler)
        dispatched = Counter[int]()
        async for event in events:
            assert isinstance(event, TaskDispatched)
            dispatched[event.task_id] += 1
        for id, task in self.tasks.items():
            if not task.is_stopped or self.workload.slots == 1:
                assert dispatched[id] == len(task.starts), id

    async def resume_groups(self) -> None:
        for group in sorted(self.paused):
            self.resuming.add(group)
            self.paused.discard(group)
            await self.scheduler.group(group).resume()
            self.resuming.discard(group)

    async def check_records(self, scheduler: Scheduler) -> None:
        for id, task in self.tasks.items():
            record = await scheduler.get(id)
            assert isinstance(record, HistoryRecord), f"{id} is {record.state}"
            if record.ending != "cancelled" or self.workload.slots == 1:
                # With more slots, a task may be cancelled between its start and the first step of its handler.
                seen = record.attempt, record.started_at
                assert seen == (len(task.starts), task.starts[-1] if task.starts else None), (id, record.ending)
            if task.is_stopped:
                assert record.ending == "cancelled", (id, record.ending)
            elif record.ending == "expired":
                assert task.plan.ttl_ms is not None
                assert len(task.starts) == 0 or "fail" in task.plan.deed
            else:
                assert record.ending == "completed" or task.is_asked_to_end, (id, record.ending)
                assert record.ending != "completed" or len(task.starts) == 1 + ("fail" in task.plan.deed)


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_the_laws_of_starting_hold(engine: Engine, monkeypatch: pytest.MonkeyPatch, is_on: bool) -> None:
    if not is_on:
        monkeypatch.setattr(prefetch, "HORIZON", -1.0)
        monkeypatch.setattr(prefetch, "CLUSTER_HORIZON", -1.0)

    claims = Claims()
    monkeypatch.setattr(ledger, "commit_turn", claims.commit_turn)

    @settings(
        max_examples=often(2 if engine.is_postgres else 10),
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(workloads)
    def check(workload: Workload) -> None:
        asyncio.run(Observer(workload, claims, ":memory:").play())

    check()


@pytest.mark.one_engine("on a server every turn is written beside handlers")
def test_the_laws_hold_when_every_turn_is_written_beside_handlers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "INLINE_ROWS", 0)
    monkeypatch.setattr(writer, "BUSY_INLINE_ROWS", 0)
    claims, number = Claims(), count()
    monkeypatch.setattr(ledger, "commit_turn", claims.commit_turn)

    @settings(max_examples=often(10), deadline=None, phases=(Phase.explicit, Phase.generate))
    @given(workloads)
    def check(workload: Workload) -> None:
        asyncio.run(Observer(workload, claims, str(tmp_path / f"{next(number)}.db")).play())

    check()
