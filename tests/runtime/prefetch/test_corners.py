"""Prefetched tasks keep their place, whatever happens between their claim and their beginning."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from taskmill import Context, Domain, Priority, Retry, Scheduler, StoreError
from taskmill.events import TaskDispatched
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

MANY = 40
HELD = 9
"""The task that runs until the test releases it; the tasks behind it are prefetched."""

Deed = Callable[[Context], Awaitable[object]]


class Scene:
    """A scheduler with one slot, whose tasks do what the test wants."""

    scheduler: Scheduler

    def __init__(self, domain: Domain) -> None:
        self.started: list[int] = []
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.deeds: dict[int, Deed] = {}
        self.ids: list[int] = []

        @domain.task(retry=Retry.none())
        async def step(ctx: Context, n: int) -> None:
            self.started.append(n)
            if (deed := self.deeds.pop(n, None)) is not None:
                await deed(ctx)
            if n == HELD and not self.go_on.is_set():
                self.reached.set()
                await self.go_on.wait()

        self.step = step

    async def fill(self) -> None:
        handles = await self.scheduler.submit_many([self.step.prepare(n) for n in range(MANY)])
        self.ids += [handle.id for handle in handles]

    @property
    def prefetched(self) -> list[int]:
        assert self.scheduler._loop is not None
        return [task.id for task in self.scheduler._loop._waiting.prefetch.tasks]


@pytest.fixture
async def scene(taskmill_scheduler: SchedulerFactory) -> Scene:
    domain = Domain("d")
    made = Scene(domain)
    made.scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, shutdown_grace=0)
    return made


@pytest.fixture
async def held(scene: Scene, manual_clock: ManualClock) -> AsyncIterator[Scene]:
    """The same scheduler, with one task running and those behind it prefetched."""
    await scene.fill()
    async with scene.scheduler.running():
        await asyncio.wait_for(scene.reached.wait(), 10)
        await manual_clock.advance(0)
        assert scene.prefetched
        yield scene
        scene.go_on.set()


async def all_done(scene: Scene) -> None:
    while await scene.scheduler.count():
        await asyncio.sleep(0)


async def test_a_more_urgent_task_that_a_handler_submits_as_its_last_act_is_next(scene: Scene) -> None:
    async def submit_urgent(ctx: Context) -> None:
        await scene.step.options(priority=Priority.HIGH).submit(100 + scene.started[-1])

    scene.deeds = dict.fromkeys(range(5, MANY, 3), submit_urgent)
    scene.go_on.set()
    await scene.fill()
    await scene.scheduler.run_until_idle()
    expected: list[int] = []
    for n in range(MANY):
        expected += [n, 100 + n] if n >= 5 and (n - 5) % 3 == 0 else [n]
    assert scene.started == expected


async def test_a_prefetched_task_that_an_urgent_one_waits_for_is_next(held: Scene) -> None:
    last = held.prefetched[-1]
    await held.step.options(priority=Priority.HIGH, depends_on=[last]).submit(100)
    held.go_on.set()
    await all_done(held)
    n = held.ids.index(last)
    assert held.started[10:12] == [n, 100]


async def test_a_prefetched_task_whose_urgency_rose_is_not_lost_when_it_returns(
    held: Scene, manual_clock: ManualClock
) -> None:
    last = held.prefetched[-1]
    await held.step.options(priority=Priority.HIGH, depends_on=[last]).submit(100)
    await manual_clock.advance(1)
    held.go_on.set()
    await asyncio.wait_for(all_done(held), 10)
    n = held.ids.index(last)
    assert held.started[10:12] == [n, 100]


async def test_a_prefetched_task_that_is_made_more_urgent_is_next(held: Scene) -> None:
    last = held.prefetched[-1]
    await held.scheduler.set_priority(last, Priority.HIGH)
    held.go_on.set()
    await asyncio.wait_for(all_done(held), 10)
    assert held.started[10:12] == [held.ids.index(last), 10]


async def test_a_preempted_task_runs_again_before_prefetched_ones(held: Scene) -> None:
    async def let_go(ctx: Context) -> None:
        held.go_on.set()

    held.deeds[100] = let_go
    await held.step.options(priority=Priority.REALTIME).submit(100)
    await asyncio.wait_for(all_done(held), 10)
    assert held.started[9:13] == [9, 100, 9, 10]


async def test_a_prefetched_task_that_returned_expires_on_time(scene: Scene, manual_clock: ManualClock) -> None:
    handles = await scene.scheduler.submit_many(
        [scene.step.options(ttl=5 if n > HELD else None).prepare(n) for n in range(25)]
    )
    async with scene.scheduler.running():
        await asyncio.wait_for(scene.reached.wait(), 10)
        await manual_clock.advance(0)
        assert len(scene.prefetched) == 15
        assert scene.scheduler._loop is not None
        scene.scheduler._loop.look_again()
        await manual_clock.advance(0)
        assert len(scene.prefetched) == 15
        await manual_clock.advance(1)
        assert not scene.prefetched
        await manual_clock.advance(5)
        ended = [await asyncio.wait_for(scene.scheduler.wait(handle.id), 5) for handle in handles[10:]]
        assert {record.ending for record in ended} == {"expired"}
        scene.go_on.set()


async def test_the_occurrence_of_a_paused_series_does_not_begin(scene: Scene, manual_clock: ManualClock) -> None:
    handles = [await scene.step.options(every=3600).submit(n) for n in range(MANY)]
    async with scene.scheduler.running():
        await asyncio.wait_for(scene.reached.wait(), 10)
        await manual_clock.advance(0)
        await scene.scheduler.pause_recurring(handles[20].id)
        scene.go_on.set()
        while len(scene.started) < MANY - 1:
            await asyncio.sleep(0)
        await manual_clock.advance(0.5)
        assert 20 not in scene.started
        assert (await scene.scheduler.get(handles[20].id)).state == "paused"


async def test_a_cancelled_prefetched_task_has_no_attempt(held: Scene) -> None:
    assert await held.scheduler.cancel(held.ids[10])
    record = await held.scheduler.get(held.ids[10])
    assert (record.state, record.attempt, record.started_at) == ("cancelled", 0, None)


async def test_a_due_urgent_task_starts_before_prefetched_ones(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    started: list[int] = []

    @domain.task
    async def step(n: int) -> None:
        started.append(n)
        if n == 9:
            await manual_clock.sleep(0.002)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    await scheduler.submit_many([step.prepare(n) for n in range(MANY)])
    await step.options(run_after=0.002, priority=Priority.HIGH).submit(100)
    async with scheduler.running():
        while 9 not in started:
            await asyncio.sleep(0)
        await manual_clock.advance(0.002)
        while await scheduler.count():
            await asyncio.sleep(0)
    assert started[9:12] == [9, 100, 10]


@pytest.mark.parametrize("groups", [1, 2, 3])
async def test_order_inside_a_group_holds_for_tasks_that_cannot_be_prefetched(
    taskmill_scheduler: SchedulerFactory, groups: int
) -> None:
    domain = Domain("d")
    started: list[tuple[int, int]] = []

    @domain.task
    async def step(group: int, n: int) -> None:
        started.append((group, n))

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    await scheduler.submit_many(
        [
            step.options(group=str(n % groups), key=str(n) if n % 7 == 0 else None).prepare(n % groups, n)
            for n in range(60)
        ]
    )
    await scheduler.run_until_idle()
    for group in range(groups):
        mine = [n for its, n in started if its == group]
        assert mine == sorted(mine)


@pytest.mark.parametrize("groups", [1, 2, 3])
async def test_a_retry_without_delay_keeps_its_place_in_its_group(
    taskmill_scheduler: SchedulerFactory, groups: int
) -> None:
    domain = Domain("d")
    started: list[tuple[int, int]] = []

    @domain.task(retry=Retry.constant(1, delay=0))
    async def step(group: int, n: int) -> None:
        started.append((group, n))
        if n % 5 == 4 and started.count((group, n)) == 1:
            raise ValueError(n)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    await scheduler.submit_many([step.options(group=str(n % groups)).prepare(n % groups, n) for n in range(60)])
    await scheduler.run_until_idle()
    for group in range(groups):
        mine = [n for its, n in started if its == group]
        assert mine == sorted(mine)


async def test_a_running_task_is_shown_as_running_from_its_first_moment(scene: Scene) -> None:
    seen: list[tuple[str, str, list[str], bool, bool]] = []

    async def look(ctx: Context) -> None:
        scheduler, id = scene.scheduler, ctx.task.id
        seen.append(
            (
                (await scheduler.explain(id)).status,
                (await scheduler.graph(id)).tasks[id].state,
                [task.state for task in await scheduler.tasks() if task.id == id],
                id in {task.id for task in await scheduler.tasks(status="running")},
                id in {task.id for task in (await scheduler.snapshot()).running},
            )
        )

    scene.deeds = dict.fromkeys(range(5, MANY, 6), look)
    scene.go_on.set()
    await scene.fill()
    await scene.scheduler.run_until_idle()
    assert seen == [("running", "running", ["running"], True, True)] * 6


async def test_no_read_shows_more_running_tasks_than_there_are_slots(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def nothing() -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=4)
    await scheduler.submit_many([nothing.prepare() for _ in range(500)])
    seen: list[int] = []

    async def read() -> None:
        while True:
            seen.append(await scheduler.count(status="running"))
            seen.append(len((await scheduler.snapshot()).running))
            seen.append(len(await scheduler.tasks(status="running")))
            # Reads of a store in memory never wait.
            await asyncio.sleep(0)

    reader = asyncio.create_task(read())
    await scheduler.run_until_idle()
    reader.cancel()
    assert 0 < max(seen) <= 4


async def test_a_step_of_the_clock_does_not_shift_the_start_of_a_task_that_begins_after_it(
    held: Scene, manual_clock: ManualClock
) -> None:
    held.go_on.set()
    await manual_clock.jump(timedelta(hours=1))
    await all_done(held)
    record = await held.scheduler.get(held.ids[10])
    assert record.started_at == manual_clock.now()


async def test_tasks_dispatched_are_those_that_began(held: Scene) -> None:
    events = held.scheduler.events(TaskDispatched)
    await held.scheduler.cancel(held.ids[12])
    await held.scheduler.cancel(held.ids[10])
    held.go_on.set()
    for n in (11, 13):
        event = await anext(events)
        assert isinstance(event, TaskDispatched)
        assert event.task_id == held.ids[n]


async def test_a_task_that_expired_before_it_started_lets_none_behind_the_prefetched_overtake(
    scene: Scene, manual_clock: ManualClock
) -> None:
    prepared = [scene.step.prepare(n) for n in range(MANY)]
    for n in range(HELD + 1, MANY, 2):
        # A task with a close deadline or with a key is not prefetched.
        prepared[n] = scene.step.options(ttl="2ms").prepare(n) if n < 20 else scene.step.options(key=f"{n}").prepare(n)
    await scene.scheduler.submit_many(prepared)
    async with scene.scheduler.running():
        await asyncio.wait_for(scene.reached.wait(), 10)
        await manual_clock.advance(0)
        assert scene.prefetched
        await manual_clock.advance(0.003)
        scene.go_on.set()
        await all_done(scene)
    assert scene.started == [n for n in range(MANY) if n <= HELD or n >= 20 or n % 2]


async def test_a_prefetched_task_can_be_cancelled_while_no_turn_can_be_committed(
    held: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(turn: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(held.scheduler._store, "turn", refuse)
        assert await asyncio.wait_for(held.scheduler.cancel(held.ids[10]), 10)
        assert (await held.scheduler.get(held.ids[10])).state == "cancelled"
    held.go_on.set()
    await all_done(held)
    assert 10 not in held.started


async def test_a_cancellation_that_the_store_refuses_leaves_the_prefetched_task_waiting(
    held: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(held.scheduler._store, "cancel", refuse)
        with pytest.raises(StoreError):
            await held.scheduler.cancel(held.ids[10])
    held.go_on.set()
    await all_done(held)
    assert held.started == list(range(MANY))
