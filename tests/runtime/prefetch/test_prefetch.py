"""A prefetched task is claimed before a slot is free. For every verb and every view it still waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from taskmill import Context, Domain, Priority, Retry, Scheduler
from taskmill.dispatch import prefetch
from taskmill.events import TaskDispatched
from taskmill.model.turn import Starts, Turn, TurnResult
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.raw_rows import raw

MANY = 40


@pytest.fixture
def domain() -> Domain:
    return Domain("d")


async def turns_to_run(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of turns until nothing is left to do."""
    count, commit = 0, scheduler._store.turn

    async def counted(turn: Turn) -> TurnResult:
        nonlocal count
        count += 1
        return await commit(turn)

    monkeypatch.setattr(scheduler._store, "turn", counted)
    await scheduler.run_until_idle()
    return count


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
async def test_short_tasks_share_turns_and_keep_order_and_slots(
    domain: Domain, taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch, is_on: bool
) -> None:
    if not is_on:
        monkeypatch.setattr(prefetch, "HORIZON", -1.0)
        monkeypatch.setattr(prefetch, "CLUSTER_HORIZON", -1.0)
    started: list[int] = []
    at_once: list[int] = [0]

    @domain.task
    async def short(n: int) -> None:
        at_once.append(at_once[-1] + 1)
        started.append(n)
        await asyncio.sleep(0)
        at_once.append(at_once[-1] - 1)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=2)
    await scheduler.submit_many([short.prepare(n) for n in range(MANY)])
    turns = await turns_to_run(scheduler, monkeypatch)
    assert started == list(range(MANY))
    assert max(at_once) == 2
    assert await scheduler.count(status="completed") == MANY
    assert turns < MANY / 4 if is_on else turns >= MANY / 2


@pytest.mark.parametrize("slots", [1, 2])
async def test_equally_urgent_groups_take_turns_among_short_tasks(
    domain: Domain, taskmill_scheduler: SchedulerFactory, slots: int
) -> None:
    started: list[str] = []

    @domain.task
    async def short(group: str, n: int) -> None:
        started.append(f"{group}{n}")

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=slots)
    await scheduler.submit_many([short.options(group=group).prepare(group, n) for group in "abc" for n in range(10)])
    await scheduler.run_until_idle()
    assert started == [f"{group}{n}" for n in range(10) for group in "abc"]


async def test_tasks_of_a_type_that_takes_longer_are_not_prefetched(
    domain: Domain, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    @domain.task
    async def long() -> None:
        await manual_clock.sleep(0.035)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    await scheduler.submit_many([long.prepare() for _ in range(MANY)])
    async with scheduler.running():
        for _ in range(5):
            await manual_clock.advance(0.036)
            assert scheduler._loop is not None
            assert not scheduler._loop._waiting.prefetch.tasks


@pytest.fixture
async def at_work(
    domain: Domain, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> AsyncIterator[AtWork]:
    """Yield a scheduler with one slot: its tenth task is running, and those behind it are prefetched."""
    scene = AtWork(domain)
    scene.scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, shutdown_grace=0)
    scene.ids = [
        handle.id for handle in await scene.scheduler.submit_many([scene.step.prepare(n) for n in range(MANY)])
    ]
    async with scene.scheduler.running():
        await asyncio.wait_for(scene.reached.wait(), 10)
        await manual_clock.advance(0)
        assert scene.scheduler._loop is not None
        assert scene.scheduler._loop._waiting.prefetch.tasks, "nothing is prefetched"
        yield scene
        scene.go_on.set()


class AtWork:
    scheduler: Scheduler
    ids: list[int]

    def __init__(self, domain: Domain) -> None:
        self.started: list[int] = []
        self.hooked: list[int] = []
        self.reached, self.go_on, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @domain.task(retry=Retry.none())
        async def step(n: int) -> None:
            self.started.append(n)
            if n == 9:
                self.reached.set()
                await self.go_on.wait()
            if n == MANY - 1:
                self.done.set()

        @step.on_cancel
        async def hook(n: int) -> None:
            self.hooked.append(n)

        self.step = step


async def test_a_prefetched_task_is_shown_as_waiting(at_work: AtWork) -> None:
    scheduler, waiting = at_work.scheduler, at_work.ids[10]
    record = await scheduler.get(waiting)
    assert (record.state, record.attempt, record.started_at) == ("pending", 0, None)
    assert await scheduler.count(status="running") == 1
    assert await scheduler.count(status="pending") == MANY - 10
    assert [task.id for task in await scheduler.tasks(status="running")] == [at_work.ids[9]]
    assert len(await scheduler.tasks(status="pending")) == MANY - 10
    snapshot = await scheduler.snapshot()
    assert [task.id for task in snapshot.running] == [at_work.ids[9]]
    assert (snapshot.counts["running"], snapshot.counts["pending"]) == (1, MANY - 10)
    assert (snapshot.groups[""].running, snapshot.groups[""].pending) == (1, MANY - 10)
    explanation = await scheduler.explain(waiting)
    assert explanation.status == "pending"
    assert [hold.reason for hold in explanation.holds] == ["slots"]


async def test_a_more_urgent_task_starts_before_everything_prefetched(at_work: AtWork) -> None:
    await at_work.step.options(priority=Priority.HIGH).submit(100)
    at_work.go_on.set()
    await asyncio.wait_for(at_work.done.wait(), 10)
    assert at_work.started[:12] == [*range(10), 100, 10]


async def test_a_prefetched_task_that_is_cancelled_ends_at_once_and_never_ran(at_work: AtWork) -> None:
    scheduler = at_work.scheduler
    assert await scheduler.cancel(at_work.ids[10])
    record = await scheduler.get(at_work.ids[10])
    assert (record.state, record.started_at) == ("cancelled", None)
    assert len(await scheduler.cancel_where(type="d::step", status="pending")) == MANY - 11
    assert await scheduler.count(status="cancelled") == MANY - 10
    at_work.go_on.set()
    await scheduler.stop()
    assert (at_work.started, at_work.hooked) == (list(range(10)), [])


async def test_nothing_prefetched_starts_after_a_pause(at_work: AtWork) -> None:
    await at_work.scheduler.pause()
    at_work.go_on.set()
    await at_work.scheduler.wait(at_work.ids[9])
    assert at_work.started == list(range(10))
    assert await at_work.scheduler.count(status="paused") == MANY - 10
    await at_work.scheduler.resume()
    await asyncio.wait_for(at_work.done.wait(), 10)
    assert at_work.started == list(range(MANY))


async def test_a_cap_that_is_set_holds_for_prefetched_tasks(at_work: AtWork) -> None:
    await at_work.scheduler.group(None).set(cap=1)
    await at_work.scheduler.set_max_concurrency(4)
    await at_work.step.options(group="other").submit(100)
    await at_work.scheduler.wait((await at_work.step.options(group="other").submit(101)).id)
    assert at_work.started == [*range(10), 100, 101]


async def test_prefetched_tasks_are_untouched_after_a_shutdown(at_work: AtWork) -> None:
    at_work.go_on.set()
    await at_work.scheduler.stop()
    ran = len(at_work.started)
    records = [await at_work.scheduler.get(id) for id in at_work.ids]
    assert ran < MANY
    assert {(record.state, record.attempt, record.started_at) for record in records[ran:]} == {("pending", 0, None)}
    assert {(record.state, record.attempt) for record in records[:ran]} == {("completed", 1)}


async def test_a_stalled_slot_gives_prefetched_tasks_back(at_work: AtWork, manual_clock: ManualClock) -> None:
    await manual_clock.advance(1)
    assert at_work.scheduler._loop is not None
    assert not at_work.scheduler._loop._waiting.prefetch.tasks
    assert await at_work.scheduler.count(status="pending") == MANY - 10
    at_work.go_on.set()
    await asyncio.wait_for(at_work.done.wait(), 10)
    assert at_work.started == list(range(MANY))


async def test_a_prefetched_task_is_announced_and_stamped_when_it_begins(
    at_work: AtWork, manual_clock: ManualClock
) -> None:
    events = at_work.scheduler.events(TaskDispatched)
    await manual_clock.advance(0.001)
    at_work.go_on.set()
    dispatched = await anext(events)
    assert isinstance(dispatched, TaskDispatched)
    assert dispatched.task_id == at_work.ids[10]
    record = await at_work.scheduler.wait(at_work.ids[10])
    assert record.started_at == manual_clock.now()


async def test_a_prefetched_task_that_turns_out_long_is_stored_as_running(
    domain: Domain, manual_clock: ManualClock, taskmill_scheduler: SchedulerFactory, tmp_path: Path
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    @domain.task
    async def step(ctx: Context, n: int) -> None:
        if n == 9:
            assert (await scheduler.get(ctx.task.id)).state == "running"
            reached.set()
            await go_on.wait()

    scheduler = await taskmill_scheduler(store=tmp_path / "t.db", domains=[domain], max_concurrency=1)
    ids = [handle.id for handle in await scheduler.submit_many([step.prepare(n) for n in range(MANY)])]
    async with scheduler.running():
        await asyncio.wait_for(reached.wait(), 10)
        began_at = manual_clock.now()
        await manual_clock.advance(1)
        with raw(tmp_path / "t.db") as rows:
            (stored,) = rows.execute("SELECT id, started_at FROM taskmill_task WHERE status = 'running'").fetchall()
        assert tuple(stored) == (ids[9], round(began_at.timestamp() * 1000))
        go_on.set()


async def test_a_task_that_is_tried_again_at_once_comes_before_prefetched_ones(
    domain: Domain, taskmill_scheduler: SchedulerFactory
) -> None:
    started: list[int] = []

    @domain.task(retry=Retry.constant(1, delay=0))
    async def step(n: int) -> None:
        started.append(n)
        if n % 10 == 9 and started.count(n) == 1:
            raise ValueError(n)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    await scheduler.submit_many([step.prepare(n) for n in range(MANY)])
    await scheduler.run_until_idle()
    assert started == [n for n in range(MANY) for _ in range(2 if n % 10 == 9 else 1)]


async def test_a_task_that_expires_soon_never_starts_after_its_deadline(
    domain: Domain, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    started: list[int] = []

    @domain.task
    async def step(n: int) -> None:
        started.append(n)
        if n == 9:
            await manual_clock.sleep(2)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    handles = await scheduler.submit_many([step.options(ttl=1.5 if n > 9 else None).prepare(n) for n in range(MANY)])
    async with scheduler.running():
        await manual_clock.advance(3)
        assert {(await handle.record()).state for handle in handles[10:]} == {"expired"}
    assert started == list(range(10))


async def test_a_dispatcher_that_dies_leaves_prefetched_tasks_without_a_crash(tmp_path: Path, domain: Domain) -> None:
    seen: list[int] = []

    @domain.task
    async def work(ctx: Context) -> None:
        seen.append(ctx.attempt)

    async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
        handles = await scheduler.submit_many([work.prepare() for _ in range(2)])
        stopped = await work.submit()
    with raw(tmp_path / "t.db") as rows:
        rows.execute("UPDATE taskmill_task SET status = 'running', attempt = 1")
        rows.execute("UPDATE taskmill_task SET stop = 'cancel' WHERE id = ?", (stopped.id,))
    async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
        await scheduler.pause()
        await scheduler.run_until_idle()
        with raw(tmp_path / "t.db") as rows:
            found = rows.execute("SELECT status, crashes, retries FROM taskmill_task").fetchall()
        assert [tuple(row) for row in found] == [("pending", 0, 0)] * 2
        assert (await scheduler.get(stopped.id)).state == "cancelled"
        await scheduler.resume()
        await scheduler.run_until_idle()
        assert {(await scheduler.get(handle.id)).state for handle in handles} == {"completed"}
    assert seen == [2, 2]


async def test_tasks_with_keys_are_replaced_in_their_exact_place(
    domain: Domain, taskmill_scheduler: SchedulerFactory
) -> None:
    started: list[str] = []

    @domain.task(key=lambda n, word: str(n), on_duplicate="supersede")
    async def step(n: int, word: str) -> None:
        started.append(f"{n} {word}")
        if n == 9 and word == "old":
            for later in range(12, 15):
                await step.submit(later, "new")

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    await scheduler.submit_many([step.prepare(n, "old") for n in range(MANY)])
    await scheduler.run_until_idle()
    assert started == [f"{n} {'new' if 12 <= n < 15 else 'old'}" for n in range(MANY)]


async def test_a_task_that_is_stopped_on_its_way_back_to_the_queue_ends(
    domain: Domain, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    @domain.task
    async def step() -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain])
    handles = await scheduler.submit_many([step.prepare() for _ in range(2)])
    ids, now, store = [handle.id for handle in handles], manual_clock.now_ms(), scheduler._store
    claimed = (await store.turn(Turn(now, starts=Starts(claims=ids, prefetch=set(ids))))).claimed
    assert len(claimed) == 2
    await store.cancel(ids[:1], now)
    await store.turn(Turn(now, returns=claimed))
    records = [await handle.record() for handle in handles]
    assert [(record.state, record.attempt) for record in records] == [("cancelled", 0), ("pending", 0)]


async def test_nothing_is_prefetched_while_more_tasks_run_than_there_are_slots(
    domain: Domain, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    go_on = asyncio.Event()

    @domain.task
    async def quick() -> None: ...

    @domain.task
    async def slow() -> None:
        await go_on.wait()

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=10)
    async with scheduler.running():
        await scheduler.submit_many([quick.prepare() for _ in range(20)])
        await manual_clock.advance(1)
        await scheduler.submit_many([slow.prepare() for _ in range(10)])
        await manual_clock.advance(1)
        await scheduler.submit_many([quick.prepare() for _ in range(MANY)])
        await scheduler.set_max_concurrency(2)
        for _ in range(5):
            await manual_clock.advance(1)
            assert scheduler._loop is not None
            assert not scheduler._loop._waiting.prefetch.tasks
        go_on.set()
