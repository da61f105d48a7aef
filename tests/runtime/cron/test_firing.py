"""Cron tasks in a scheduler fire on time, once per occurrence, and are retried as declared."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from taskmill import Context, Domain, GiveUp, Retry, RetryLater, Scheduler
from taskmill.cron import Cron
from taskmill.events import CronFired, TaskSuperseded
from taskmill.model.status import Ending
from tests.runtime.cron.bench import TEN, Bench, heard

HOURLY = "0 * * * *"


async def test_a_cron_task_runs_at_each_matching_minute_on_the_dot() -> None:
    bench = Bench(TEN + timedelta(minutes=7, seconds=13))
    async with Scheduler(cron=[Cron("tick", "0,20,40 * * * *", bench.handler(), 1)], clock=bench.clock) as scheduler:
        events = scheduler.events(CronFired)
        async with scheduler.running():
            await bench.clock.advance(3600)
        fired = await heard(events)
        history = await scheduler.history()
    assert bench.starts == ["10:20:00", "10:40:00", "11:00:00"]
    assert fired == [("tick", "10:20"), ("tick", "10:40"), ("tick", "11:00")]
    assert {(task.type, task.tags["cron"], task.ending) for task in history} == {("cron::tick", "tick", "completed")}


@pytest.mark.parametrize(("second", "expected"), [(0, ["10:00:00"]), (59.999, ["10:00:59"])])
async def test_the_first_start_runs_what_matches_the_current_minute(second: float, expected: list[str]) -> None:
    bench = Bench(TEN + timedelta(seconds=second))
    other = bench.handler(name="other")
    cron = [Cron("now", HOURLY, bench.handler(), 1), Cron("other", "1 10 1 1 *", other, 1)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler:
        await scheduler.run_until_idle()
        await scheduler.run_until_idle()
    assert bench.starts == expected


async def test_the_future_does_not_keep_run_until_idle_waiting_and_what_is_due_runs() -> None:
    bench = Bench(TEN + timedelta(minutes=1))
    async with Scheduler(cron=[Cron("tick", HOURLY, bench.handler(), 1)], clock=bench.clock) as scheduler:
        await scheduler.run_until_idle(timeout=1)
        assert bench.starts == []
        await bench.clock.advance(2 * 3600)
        await scheduler.run_until_idle(timeout=1)
    assert bench.starts == ["12:01:00"]


async def test_a_task_that_was_missed_runs_once_for_the_latest_occurrence(any_store: str) -> None:
    bench = Bench(TEN + timedelta(minutes=1))
    cron = [Cron("tick", HOURLY, bench.handler(), 1)]
    async with Scheduler(any_store, cron=cron, clock=bench.clock) as scheduler:
        await scheduler.run_until_idle()
        await bench.clock.advance(12 * 3600)
        events = scheduler.events(CronFired)
        async with scheduler.running():
            await bench.clock.advance(3600)
        fired = await heard(events)
    assert bench.starts == ["22:01:00", "23:00:00"]
    assert fired == [("tick", "22:00"), ("tick", "23:00")]


async def test_a_failed_run_is_tried_again_after_its_delay_and_does_not_fire_again() -> None:
    bench = Bench()
    handler = bench.handler(ValueError("no"), ValueError("no"))
    async with Scheduler(cron=[Cron("tick", HOURLY, handler, 90)], clock=bench.clock) as scheduler:
        events = scheduler.events(CronFired)
        async with scheduler.running():
            await bench.clock.advance(3600)
        fired = await heard(events)
    assert bench.starts == ["10:00:00", "10:01:30", "10:03:00", "11:00:00"]
    assert fired == [("tick", "10:00"), ("tick", "11:00")]


async def test_an_occurrence_takes_the_place_of_a_pending_retry() -> None:
    bench = Bench()
    async with Scheduler(cron=[Cron("tick", HOURLY, bench.handler(ValueError("no")), 5400)], clock=bench.clock) as s:
        events = s.events(TaskSuperseded)
        async with s.running():
            await bench.clock.advance(3 * 3600)
        superseded = await anext(events)
        endings = [(task.id, task.ending) for task in await s.history()]
    assert bench.starts == ["10:00:00", "11:00:00", "12:00:00", "13:00:00"]
    assert isinstance(superseded, TaskSuperseded)
    assert (superseded.task_id, superseded.new_task_id) == (1, 2)
    assert (1, Ending.SUPERSEDED) in endings


async def test_occurrences_that_pass_during_a_run_run_once_when_it_ends() -> None:
    bench = Bench()
    handler = bench.handler(3.5 * 3600, ValueError("no"))
    async with Scheduler(cron=[Cron("tick", HOURLY, handler, 60)], clock=bench.clock) as scheduler:
        events = scheduler.events(CronFired)
        async with scheduler.running():
            await bench.clock.advance(4 * 3600)
        fired = await heard(events)
    assert bench.starts == ["10:00:00", "13:30:00", "13:31:00", "14:00:00"]
    assert fired == [("tick", "10:00"), ("tick", "13:00"), ("tick", "14:00")]


async def test_retry_delay_replaces_every_retry_policy() -> None:
    bench, domain = Bench(), Domain("d", retry=Retry.none())
    handler = bench.handler(ValueError("no"), RetryLater("soon", after=0), RetryLater("later", after=40))

    @domain.task(retry=Retry.constant(1, 1))
    async def work() -> None:
        await handler()

    cron = [Cron("tick", HOURLY, work.options(retry=Retry.none()), 0)]
    async with Scheduler(cron=cron, retry=Retry.none(), clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(600)
    assert bench.starts == ["10:00:00", "10:00:01", "10:00:02", "10:00:42"]


async def test_giving_up_ends_the_firing_and_the_next_occurrence_runs() -> None:
    bench = Bench()
    handler = bench.handler(GiveUp("never"))
    async with Scheduler(cron=[Cron("tick", HOURLY, handler, 1)], clock=bench.clock) as scheduler:
        async with scheduler.running():
            await bench.clock.advance(3600)
        (schedule,) = (await scheduler.snapshot()).schedules
    assert bench.starts == ["10:00:00", "11:00:00"]
    assert schedule.last_outcome == "succeeded"


async def test_a_task_keeps_its_type_its_options_and_its_default_arguments() -> None:
    bench, domain = Bench(), Domain("d", tags={"team": "a"})
    seen: list[tuple[str, int]] = []

    @domain.task
    async def work(ctx: Context, size: int = 7) -> int:
        seen.append((ctx.task.group, size))
        return size

    cron = [Cron("tick", HOURLY, work.options(group="g", priority=3, tags={"x": "y"}), 1)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler:
        await scheduler.run_until_idle()
        await work.submit(8)
        (task,) = await scheduler.history(tags={"cron": "tick"})
    assert seen == [("g", 7)]
    assert (task.type, task.priority, task.result) == ("d::work", 3, 7)
    assert task.tags == {"team": "a", "x": "y", "cron": "tick"}


async def test_different_tasks_run_in_parallel_and_one_that_waits_for_a_slot_runs_once() -> None:
    bench = Bench()
    cron = [
        Cron("long", "0 10 1 1 *", bench.handler(2.5 * 3600, name="long"), 1),
        Cron("tick", HOURLY, bench.handler(name="tick"), 1),
    ]
    async with Scheduler(cron=cron, max_concurrency=1, clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(3 * 3600)
    assert bench.starts == ["long 10:00:00", "tick 12:30:00", "tick 13:00:00"]


async def test_after_a_step_back_what_has_run_does_not_run_again_and_nothing_falls_silent() -> None:
    bench = Bench()
    cron = [Cron("tick", "* * * * *", bench.handler(), 1)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(130)
        await bench.clock.jump(-90)
        await bench.clock.advance(150)
        await bench.clock.jump(-3600)
        await bench.clock.advance(60)
    assert bench.starts == ["10:00:00", "10:01:00", "10:02:00", "10:03:00", "09:04:00"]


async def test_after_a_step_forward_what_was_passed_over_runs_once() -> None:
    bench = Bench(TEN + timedelta(minutes=1))
    async with Scheduler(cron=[Cron("tick", HOURLY, bench.handler(), 1)], clock=bench.clock) as scheduler:
        events = scheduler.events(CronFired)
        async with scheduler.running():
            await bench.clock.advance(60)
            await bench.clock.jump(5 * 3600)
            await bench.clock.advance(3600)
        fired = await heard(events)
    assert bench.starts == ["15:02:00", "16:00:00"]
    assert fired == [("tick", "15:00"), ("tick", "16:00")]


@pytest.mark.parametrize(("step", "retried"), [(-30, "10:05:00"), (-7200, "08:05:00"), (7200, "12:01:00")])
async def test_a_retry_is_delayed_by_a_step_of_the_clock_for_less_than_a_minute(step: int, retried: str) -> None:
    bench = Bench()
    handler = bench.handler(ValueError("no"))
    cron = [Cron("tick", "0 10 1 1 *", handler, 300)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(60)
        await bench.clock.jump(step)
        await bench.clock.advance(400)
    assert bench.starts == ["10:00:00", retried]


async def test_daylight_saving_skips_what_is_not_shown_and_repeats_what_is_shown_twice() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    forward, back = Bench(datetime(2030, 3, 31, tzinfo=berlin)), Bench(datetime(2030, 10, 27, tzinfo=berlin))
    for bench in (forward, back):
        cron = [Cron("tick", "30 2 * * *", bench.handler(), 1)]
        async with Scheduler(cron=cron, clock=bench.clock) as scheduler, scheduler.running():
            await bench.clock.advance(20 * 3600)
    assert (forward.starts, back.starts) == ([], ["02:30:00", "02:30:00"])


async def test_children_and_finalize_belong_to_the_run() -> None:
    bench, domain = Bench(), Domain("d")

    @domain.task
    async def part() -> None:
        await bench.clock.sleep(5400)

    @domain.task
    async def whole(ctx: Context) -> None:
        bench.starts.append(bench.time)
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(_ctx: Context) -> None:
        bench.starts.append(f"finish {bench.time}")

    cron = [Cron("tick", "0 10,11 * * *", whole, 60)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(3.5 * 3600)
    assert bench.starts == ["10:00:00", "finish 11:30:00", "11:30:00", "finish 13:00:00"]


@pytest.mark.parametrize("wrong", [ValueError("no"), RetryLater("at once", after=0)])
async def test_a_task_that_keeps_failing_without_a_delay_does_not_spin(wrong: Exception) -> None:
    bench = Bench()
    cron = [Cron("tick", HOURLY, bench.handler(*[wrong] * 100), 0)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(3)
    assert bench.starts == ["10:00:00", "10:00:01", "10:00:02", "10:00:03"]


async def test_run_until_idle_runs_what_has_passed_while_the_last_task_ran() -> None:
    bench = Bench()
    async with Scheduler(cron=[Cron("tick", HOURLY, bench.handler(5400), 1)], clock=bench.clock) as scheduler:
        running = asyncio.create_task(scheduler.run_until_idle())
        await bench.clock.advance(5400)
        await asyncio.wait_for(running, 20)
    assert bench.starts == ["10:00:00", "11:30:00"]


@pytest.mark.parametrize(("fail_fast", "outcome"), [(True, "failed"), (False, "succeeded")])
async def test_a_firing_that_fails_because_of_a_child_is_not_tried_again_and_the_next_occurrence_runs(
    fail_fast: bool, outcome: str
) -> None:
    bench, domain = Bench(), Domain("d")

    @domain.task(retry=Retry.constant(1, 60))
    async def part() -> None:
        bench.starts.append(f"part {bench.time}")
        raise ValueError("no")

    @domain.task(fail_fast=fail_fast)
    async def whole(ctx: Context) -> None:
        bench.starts.append(bench.time)
        if bench.time < "11":
            await ctx.spawn(part.prepare())

    async with Scheduler(cron=[Cron("tick", HOURLY, whole, 300)], clock=bench.clock) as scheduler:
        async with scheduler.running():
            await bench.clock.advance(1800)
            (failed,) = (await scheduler.snapshot()).schedules
            await bench.clock.advance(1800)
        (later,) = (await scheduler.snapshot()).schedules
    assert bench.starts == ["10:00:00", "part 10:00:00", "part 10:01:00", "11:00:00"]
    assert (failed.last_outcome, failed.task_id, failed.runs) == (outcome, None, 1)
    assert (later.last_outcome, later.task_id, later.runs) == ("succeeded", None, 2)
