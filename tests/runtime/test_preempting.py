"""Urgent work preempts: who makes way, what it keeps, when it returns."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from taskmill import Aging, Context, Domain, Group, Priority, Retry, Scheduler
from taskmill.events import TaskDispatched, TaskPreempted, TaskResumed
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, ended, endings


class Work:
    """A domain of tasks that take their time and say what happens to them."""

    def __init__(self, clock: ManualClock, **options: Any) -> None:
        self.domain = Domain("d")
        self.log: list[tuple[str, str, float]] = []

        @self.domain.task(**options)
        async def work(ctx: Context, name: str, seconds: float = 10) -> str:
            self._note("start", name, clock)
            done = int(ctx.saved.get("done", 0))
            try:
                for second in range(done, round(seconds)):
                    await clock.sleep(1)
                    await ctx.save(done=second + 1)
            except asyncio.CancelledError:
                self._note("stop", name, clock)
                raise
            self._note("end", name, clock)
            return name

        self.task = work

    def _note(self, what: str, name: str, clock: ManualClock) -> None:
        self.log.append((what, name, clock.monotonic()))

    def of(self, what: str) -> list[tuple[str, float]]:
        return [(name, at) for kind, name, at in self.log if kind == what]


async def test_the_least_urgent_makes_way_keeps_what_it_saved_and_returns(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[work.domain], shutdown_grace=0, max_concurrency=2)
    events = scheduler.events(TaskPreempted, TaskResumed, TaskDispatched)
    normal = await work.task.submit("normal")
    low = await work.task.options(priority=Priority.LOW).submit("low")
    async with scheduler.running():
        await manual_clock.advance(4)
        critical = await work.task.options(priority=Priority.CRITICAL).submit("critical", 3)
        await manual_clock.advance(1)
        record = await active(scheduler, low.id)
        explained = await low.explain()
        counted = await scheduler.count(status="paused")
        await manual_clock.advance(100)
    assert work.of("stop") == [("low", 4)]
    assert work.of("start") == [("normal", 0), ("low", 0), ("critical", 4), ("low", 7)]
    assert work.of("end") == [("critical", 7), ("normal", 10), ("low", 13)], "low went on with its fifth second"
    assert (record.status, record.retries, record.last_error, counted) == ("paused", 0, None, 1)
    assert [hold.reason for hold in explained.holds] == ["preempted"]
    history = await ended(scheduler, low.id)
    assert (history.ending, history.retries, history.attempt) == ("completed", 0, 2)
    seen = [(type(event).__name__, getattr(event, "task_id", 0)) for event in [await anext(events) for _ in range(6)]]
    about_low = [kind for kind, id in seen if id == low.id]
    assert [kind for kind in about_low if kind != "TaskDispatched"] == ["TaskPreempted", "TaskResumed"]
    assert about_low.count("TaskDispatched") == 2
    assert {id for _, id in seen} == {normal.id, low.id, critical.id}


async def test_of_equals_the_youngest_makes_way(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=3)
    async with scheduler.running():
        for name in ("old", "middle", "young"):
            await work.task.submit(name)
            await manual_clock.advance(1)
        await work.task.options(priority=0).submit("critical", 1)
        await manual_clock.advance(20)
    assert [name for name, _ in work.of("stop")] == ["young"]


@pytest.mark.parametrize(
    ("running", "urgent", "makes_way"), [(0, 0, False), (5, 5, False), (5, 4, False), (6, 5, True)]
)
async def test_nobody_makes_way_for_a_task_that_is_not_more_urgent(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, running: int, urgent: int, makes_way: bool
) -> None:
    work = Work(manual_clock)
    line = 5 if makes_way or running == urgent else 3
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1, preempt_at=line)
    await work.task.options(priority=running).submit("running")
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(priority=urgent).submit("urgent")
        await manual_clock.advance(30)
    assert bool(work.of("stop")) == makes_way
    assert len(work.of("end")) == 2


async def test_without_a_line_nothing_preempts(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1, preempt_at=None)
    await work.task.options(priority=Priority.IDLE).submit("idle")
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(priority=Priority.CRITICAL).submit("critical")
        await manual_clock.advance(30)
    assert work.of("stop") == []
    assert work.of("start") == [("idle", 0), ("critical", 10)]


async def test_a_free_slot_is_taken_before_anybody_makes_way(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=3)
    await work.task.submit("one")
    await work.task.submit("two")
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.submit_many([work.task.options(priority=0).prepare(f"critical {n}") for n in range(2)])
        await manual_clock.advance(1)
        stopped = work.of("stop")
    assert stopped == [("two", 1)], "one slot was free, one had to be freed"


async def test_a_task_whose_priority_is_raised_preempts(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    running = await work.task.options(priority=200).submit("running")
    waiting = await work.task.options(priority=200).submit("waiting", 2)
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.set_priority(waiting.id, Priority.CRITICAL)
        await manual_clock.advance(1)
        assert (await active(scheduler, running.id)).status == "paused"
        await manual_clock.advance(30)
    assert work.of("start") == [("running", 0), ("waiting", 1), ("running", 3)]


async def test_a_running_task_whose_priority_is_raised_does_not_make_way(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    running = await work.task.options(priority=200).submit("running")
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.set_priority(running.id, Priority.CRITICAL)
        await work.task.options(priority=0).submit("critical", 2)
        await manual_clock.advance(30)
    assert work.of("stop") == []


async def test_who_has_aged_to_the_line_preempts(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(
        domains=[work.domain],
        shutdown_grace=0,
        max_concurrency=1,
        preempt_at=100,
        aging=Aging(grace=0, interval=1, step=7, ceiling=100, urgent=100),
    )
    await work.task.options(priority=200).submit("running", 60)
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(priority=128).submit("ages", 2)
        await manual_clock.advance(3.999)
        before = work.of("stop")
        await manual_clock.advance(0.001)
        stopped = work.of("stop")
    assert (before, stopped) == ([], [("running", 5)])


# Returning


async def test_who_made_way_returns_only_when_no_preemptor_waits_or_runs(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200).submit("low")
    async with scheduler.running():
        await manual_clock.advance(1)
        for n in range(5):
            await work.task.options(priority=0).submit(f"critical {n}", 2)
        statuses = []
        for _ in range(9):
            await manual_clock.advance(1)
            statuses.append((await active(scheduler, low.id)).status)
        await manual_clock.advance(100)
    assert set(statuses) == {"paused"}
    assert work.of("stop") == [("low", 1)], "it was preempted once, not once for each"
    assert [name for name, _ in work.of("start")] == ["low", *(f"critical {n}" for n in range(5)), "low"]
    assert work.of("end")[-1] == ("low", 20)


async def test_many_preemptors_do_not_thrash(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=4)
    for n in range(4):
        await work.task.options(priority=200).submit(f"low {n}", 8)
    async with scheduler.running():
        await manual_clock.advance(1)
        for n in range(20):
            await work.task.options(priority=0).submit(f"critical {n}", 2)
        await manual_clock.advance(200)
        counts = (await scheduler.snapshot()).counts
    assert len(work.of("stop")) == 4, "each slot was freed once"
    assert (counts["completed"], counts["paused"]) == (24, 0)


async def test_a_stream_of_preemptors_that_come_and_go_stops_a_task_at_most_once_each(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    await work.task.options(priority=200).submit("low", 10)
    async with scheduler.running():
        for n in range(4):
            await manual_clock.advance(2)
            await work.task.options(priority=0).submit(f"critical {n}", 1)
        await manual_clock.advance(100)
    assert len(work.of("stop")) == 4
    assert work.of("end")[-1] == ("low", 14), "it lost no finished second"


async def test_who_returns_comes_before_those_who_have_waited_less(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    await manual_clock.advance(10)
    await work.task.submit("first", 3)
    await manual_clock.advance(10)
    async with scheduler.running():
        await manual_clock.advance(1)
        for n in range(3):
            await work.task.submit(f"later {n}", 3)
        await work.task.options(priority=0).submit("critical", 2)
        await manual_clock.advance(60)
    names = [name for name, _ in work.of("start")]
    assert names[:2] == ["first", "critical"]
    assert names.index("first", 1) <= 3, "at most the one that took the slot at once comes between"
    assert len(names) == 6


# How a handler is stopped


async def test_the_slot_is_free_only_once_the_handler_has_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    log: list[tuple[str, float]] = []

    @domain.task
    async def stubborn(ctx: Context) -> None:
        log.append(("stubborn", manual_clock.monotonic()))
        if ctx.attempt > 1:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await manual_clock.sleep(100)
            log.append(("ended", manual_clock.monotonic()))
            raise

    @domain.task
    async def urgent() -> None:
        log.append(("urgent", manual_clock.monotonic()))

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1, cancel_timeout=300)
    first = await stubborn.submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await urgent.options(priority=0).submit()
        await manual_clock.advance(50)
        record = await active(scheduler, first.id)
        explained = str(await first.explain())
        await manual_clock.advance(60)
        seen = list(log)
        await scheduler.stop(0)
    assert record.status == "running"
    assert seen[:3] == [("stubborn", 0), ("ended", 101), ("urgent", 101)]
    assert "running" in explained


async def test_a_handler_that_finishes_in_spite_of_it_is_completed(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def careless() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "done"

    @domain.task
    async def urgent() -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1)
    first = await careless.submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await urgent.options(priority=0).submit()
        await manual_clock.advance(1)
    assert await endings(scheduler) == [(first.id, "completed"), (first.id + 1, "completed")]


async def test_a_handler_in_a_thread_sees_that_it_is_cancelled(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    log: list[str] = []
    started = threading.Event()

    @domain.task
    def slow(ctx: Context) -> None:
        log.append(f"slow {ctx.saved.get('part', 0)}")
        if ctx.saved.get("part"):
            return
        ctx.save(part=1)
        started.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        ctx.check_cancelled()

    @domain.task
    async def urgent() -> None:
        log.append("urgent")

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1)
    handle = await slow.submit()
    async with scheduler.running():
        while not started.is_set():
            await manual_clock.advance(0)
        await urgent.options(priority=0).submit()
        for _ in range(20):
            await manual_clock.advance(0.1)
    record = await ended(scheduler, handle.id)
    assert log == ["slow 0", "urgent", "slow 1"]
    assert (record.ending, record.retries, record.attempt) == ("completed", 0, 2)


async def test_making_way_runs_no_hook_and_costs_no_retry(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock, retry=Retry.none())
    hooks: list[str] = []

    @work.task.on_cancel
    async def undo(name: str, seconds: float = 10) -> None:
        hooks.append(name)

    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200).submit("low", 5)
    async with scheduler.running():
        for n in range(3):
            await manual_clock.advance(1)
            await work.task.options(priority=0).submit(f"critical {n}", 1)
        await manual_clock.advance(30)
    record = await ended(scheduler, low.id)
    assert (record.ending, record.retries, record.attempt, hooks) == ("completed", 0, 4, [])


async def test_a_timeout_counts_for_each_attempt_alone(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock, timeout=6, retry=Retry.none())
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200).submit("low", 10)
    async with scheduler.running():
        await manual_clock.advance(5)
        await work.task.options(priority=0).submit("critical", 5)
        await manual_clock.advance(30)
    assert (await ended(scheduler, low.id)).ending == "completed", "5 s and 5 s, each within 6"


async def test_a_deadline_that_passes_while_it_makes_way_does_not_matter(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200, ttl=3).submit("low", 5)
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(priority=0).submit("critical", 50)
        await manual_clock.advance(100)
    assert (await ended(scheduler, low.id)).ending == "completed", "it was started in time"


# A preemptor that cannot start preempts nobody


async def _crowd(scheduler: Scheduler, work: Work, clock: ManualClock) -> None:
    await scheduler.submit_many([work.task.options(priority=200).prepare(f"low {n}", 50) for n in range(3)])
    await clock.advance(1)


@pytest.mark.parametrize(
    ("limit", "starts"),
    [("scheduler", 0), ("domain", 0), ("group", 0), ("cap", 1), ("domain cap", 1), ("rate", 1), ("type rate", 1)],
)
async def test_only_as_many_make_way_as_can_start(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, limit: str, starts: int
) -> None:
    from taskmill import RateLimit

    work = Work(manual_clock)
    urgent = Domain("u")
    log: list[float] = []

    @urgent.task
    async def critical() -> None:
        log.append(manual_clock.monotonic())
        await manual_clock.sleep(20)

    scheduler = await taskmill_scheduler(domains=[work.domain, urgent], shutdown_grace=0, max_concurrency=3)
    match limit:
        case "cap":
            await scheduler.group("g").set(cap=1)
        case "rate":
            await scheduler.group("g").set(rate=RateLimit(1, 1000))
        case "type rate":
            await scheduler.set_rate_limit("u::critical", RateLimit(1, 1000))
        case "domain cap":
            await scheduler.domain("u").set_max_concurrency(1)
    async with scheduler.running():
        await _crowd(scheduler, work, manual_clock)
        match limit:
            case "scheduler":
                await scheduler.pause()
            case "domain":
                await scheduler.domain("u").pause()
            case "group":
                await scheduler.group("g").pause()
        await scheduler.submit_many([critical.options(group="g", priority=0).prepare() for _ in range(3)])
        await manual_clock.advance(5)
        stopped, started = len(work.of("stop")), len(log)
        await scheduler.stop(0)
    assert (stopped, started) == (starts, starts)


# What happens to those who made way


async def test_who_made_way_can_be_cancelled_and_superseded(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    work = Work(manual_clock)
    hooks: list[str] = []

    @work.task.on_cancel
    async def undo(name: str, seconds: float = 10) -> None:
        hooks.append(name)

    scheduler = await taskmill_scheduler(store=any_store, domains=[work.domain], shutdown_grace=0, max_concurrency=2)
    cancelled = await work.task.options(priority=200).submit("cancelled")
    replaced = await work.task.options(priority=200, key="k").submit("replaced")
    async with scheduler.running():
        await manual_clock.advance(1)
        for n in range(2):
            await work.task.options(priority=0).submit(f"critical {n}", 5)
        await manual_clock.advance(1)
        assert await cancelled.cancel()
        new = await work.task.options(key="k", on_duplicate="supersede").submit("new", 1)
        await manual_clock.advance(30)
    found = dict(await endings(scheduler))
    assert (found[cancelled.id], found[replaced.id], found[new.id]) == ("cancelled", "superseded", "completed")
    assert [name for name, _ in work.of("start")].count("cancelled") == 1
    assert work.of("start")[-1] == ("new", 6)


async def test_who_made_way_before_a_restart_returns_after_it(manual_clock: ManualClock, tmp_path: Path) -> None:
    work = Work(manual_clock)
    file = tmp_path / "tasks.db"

    def opened() -> Scheduler:
        return Scheduler(file, domains=[work.domain], clock=manual_clock, shutdown_grace=0, max_concurrency=1)

    async with opened() as scheduler:
        low = await work.task.options(priority=200).submit("low", 5)
        async with scheduler.running():
            await manual_clock.advance(2)
            await work.task.options(priority=0).submit("critical", 5)
            await manual_clock.advance(1)
            await scheduler.stop(0)
        assert (await active(scheduler, low.id)).status == "paused"
    async with opened() as scheduler:
        async with scheduler.running():
            await manual_clock.advance(60)
        record = await ended(scheduler, low.id)
    assert (record.ending, record.retries) == ("completed", 0)
    assert [name for name, _ in work.of("start")] == ["low", "critical", "critical", "low"]


async def test_run_until_idle_waits_for_those_who_made_way(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    await work.task.options(priority=200).submit("low", 5)
    running = asyncio.create_task(scheduler.run_until_idle())
    await manual_clock.advance(1)
    await work.task.options(priority=0).submit("critical", 5)
    await manual_clock.advance(60)
    await asyncio.wait_for(running, 10)
    assert [name for name, _ in work.of("end")] == ["critical", "low"]


async def test_who_made_way_into_a_paused_group_waits_there_and_idle_is_idle(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(domains=[work.domain], shutdown_grace=0, max_concurrency=1)
    low = await work.task.options(priority=200, group="g").submit("low", 5)
    async with scheduler.running():
        await manual_clock.advance(2)
        await scheduler.group("g").pause()
        await work.task.options(priority=0).submit("critical", 5)
        await manual_clock.advance(20)
        status = (await active(scheduler, low.id)).status
    assert status == "paused"
    await asyncio.wait_for(scheduler.run_until_idle(), 10)
    await scheduler.group("g").resume()
    async with scheduler.running():
        await manual_clock.advance(20)
    assert (await ended(scheduler, low.id)).ending == "completed"


async def test_children_and_parents_and_finalize_can_make_way(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    log: list[str] = []

    async def steps(ctx: Context, name: str) -> None:
        log.append(f"start {name}")
        for step in range(int(ctx.saved.get(name, 0)), 4):
            await manual_clock.sleep(1)
            await ctx.save(**{name: step + 1})
        log.append(f"end {name}")

    @domain.task(priority=200)
    async def child(ctx: Context) -> None:
        await steps(ctx, "child")

    @domain.task(priority=200)
    async def parent(ctx: Context) -> None:
        if not ctx.saved.get("spawned"):
            await ctx.spawn(child.prepare())
            await ctx.save(spawned=True)
        await steps(ctx, "parent")

    @parent.finalize
    async def finish(ctx: Context) -> str:
        await steps(ctx, "finalize")
        return f"{len(ctx.children)} child"

    @domain.task
    async def urgent() -> None:
        log.append("urgent")
        await manual_clock.sleep(1)

    scheduler = await taskmill_scheduler(domains=[domain], shutdown_grace=0, max_concurrency=1)
    handle = await parent.submit()
    async with scheduler.running():
        for _ in range(6):
            await manual_clock.advance(2.5)
            await urgent.options(priority=0).submit()
        await manual_clock.advance(60)
    record = await ended(scheduler, handle.id)
    assert (record.ending, record.result) == ("completed", "1 child")
    assert [line for line in log if line.startswith("end")] == ["end parent", "end child", "end finalize"]
    assert log.count("start child") + log.count("start parent") + log.count("start finalize") > 3, "some made way"


async def test_shares_do_not_hold_back_who_may_preempt(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    work = Work(manual_clock)
    scheduler = await taskmill_scheduler(
        domains=[work.domain], shutdown_grace=0, max_concurrency=2, groups={"a": Group(weight=9), "b": Group(weight=1)}
    )
    for n in range(4):
        await work.task.options(group="a").submit(f"a {n}", 5)
    await work.task.options(group="b").submit("b", 5)
    async with scheduler.running():
        await manual_clock.advance(1)
        await work.task.options(group="b", priority=0).submit("critical", 1)
        await manual_clock.advance(0)
        started = [name for name, _ in work.of("start")]
    assert "critical" in started
