"""The stand-alone cron scheduler: its two verbs at any time and in any order."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import AlreadyRunning, ConfigError, Domain, InvalidState, Scheduler, StoreError
from taskmill.cron import AlreadyActive, Cron, CronScheduler
from tests.both_engines import Engine
from tests.runtime.cron.bench import TEN, Bench

HOURLY, EACH_MINUTE = "0 * * * *", "* * * * *"


async def test_nothing_starts_before_initialize_or_after_stop(any_store: str) -> None:
    bench = Bench()
    cron = CronScheduler(any_store, bench.clock)
    await bench.clock.advance(120)
    await cron.initialize([("tick", EACH_MINUTE, bench.handler(), 1)])
    await bench.clock.advance(60)
    await cron.stop()
    await bench.clock.advance(300)
    await cron.stop()
    assert bench.starts == ["10:02:00", "10:03:00"]
    await cron.initialize([Cron("tick", EACH_MINUTE, bench.handler(), 1)])
    await bench.clock.advance(0)
    await cron.stop()
    assert bench.starts == ["10:02:00", "10:03:00", "10:08:00"], "missed five times, run once"


@pytest.mark.one_engine("no store is opened")
async def test_its_whole_surface_is_two_verbs() -> None:
    assert [name for name in dir(CronScheduler) if not name.startswith("_")] == ["initialize", "stop"]


async def test_initialized_twice_it_says_in_which_state_it_is() -> None:
    bench = Bench()
    cron = CronScheduler(":memory:", bench.clock)
    first = asyncio.create_task(cron.initialize([]))
    await asyncio.sleep(0)
    with pytest.raises(AlreadyActive) as while_initializing:
        await cron.initialize([])
    await first
    with pytest.raises(AlreadyActive) as while_running:
        await cron.initialize("nonsense")  # type: ignore[arg-type]
    await cron.stop()
    assert (while_initializing.value.state, while_running.value.state) == ("initializing", "running")
    await cron.initialize([])
    await cron.stop()


@pytest.mark.parametrize("turns", range(1, 40))
async def test_stopped_during_initialize_it_starts_nothing(tmp_path: Path, turns: int) -> None:
    bench = Bench()
    cron = CronScheduler(tmp_path / "t.db", bench.clock)
    initializing = asyncio.create_task(cron.initialize([("tick", EACH_MINUTE, bench.handler(), 1)]))
    for turn in range(turns):
        # At first one loop iteration at a time, then slowly enough for the threads of the store.
        await asyncio.sleep(0 if turn < 10 else 0.001)
    was_initializing = not initializing.done()
    await cron.stop()
    await initializing
    before = list(bench.starts)
    if was_initializing:
        assert before == []
    await bench.clock.advance(300)
    assert bench.starts == before
    await cron.initialize([("tick", EACH_MINUTE, bench.handler(), 1)])
    await bench.clock.advance(0)
    await cron.stop()
    assert bench.starts == [*before, "10:05:00"]


@pytest.mark.one_engine("a folder that is not there is tested")
async def test_stop_never_raises_what_is_wrong_with_initialize(tmp_path: Path) -> None:
    folder = tmp_path / "missing" / "t.db"
    cron = CronScheduler(folder)
    initializing = asyncio.create_task(cron.initialize([]))
    await asyncio.sleep(0)
    await cron.stop()
    with pytest.raises(StoreError):
        await initializing
    await cron.stop()


@pytest.mark.one_engine("a file has one dispatcher; for nodes that share cron see tests/cluster")
async def test_a_second_one_on_the_file_is_refused_and_the_first_continues(tmp_path: Path) -> None:
    bench, file = Bench(), tmp_path / "t.db"
    first, second = CronScheduler(file, bench.clock), CronScheduler(file, bench.clock)
    await first.initialize([("tick", EACH_MINUTE, bench.handler(), 1)])
    with pytest.raises(AlreadyRunning):
        await second.initialize([])
    await second.stop()
    await bench.clock.advance(60)
    await first.stop()
    await second.initialize([("tick", EACH_MINUTE, bench.handler(), 1)])
    await bench.clock.advance(60)
    await second.stop()
    assert bench.starts == ["10:00:00", "10:01:00", "10:02:00"]


async def test_it_shares_its_state_with_a_scheduler_on_the_same_file(tmp_path: Path) -> None:
    bench, file = Bench(), tmp_path / "t.db"
    cron = CronScheduler(file, bench.clock)
    await cron.initialize([("tick", HOURLY, bench.handler(), 1)])
    await bench.clock.advance(0)
    await cron.stop()
    async with Scheduler(file, cron=[("tick", HOURLY, bench.handler(), 1)], clock=bench.clock) as scheduler:
        await scheduler.run_until_idle()
        (schedule,) = (await scheduler.snapshot()).schedules
    assert bench.starts == ["10:00:00"]
    assert (schedule.cron, schedule.runs, schedule.next_run) == ("tick", 1, TEN + timedelta(hours=1))


async def test_any_number_of_tasks_run_at_once() -> None:
    bench = Bench()
    cron = CronScheduler(":memory:", bench.clock)
    await cron.initialize([(f"{n}", HOURLY, bench.handler(600), 1) for n in range(50)])
    await bench.clock.advance(0)
    assert len(bench.starts) == 50
    stopping = asyncio.create_task(cron.stop())
    await bench.clock.advance(600)
    await stopping


async def test_stop_waits_for_what_runs(any_store: str) -> None:
    bench = Bench()
    cron = CronScheduler(any_store, bench.clock)
    await cron.initialize([("tick", EACH_MINUTE, bench.handler(600), 1)])
    await bench.clock.advance(1)
    one, two = asyncio.create_task(cron.stop()), asyncio.create_task(cron.stop())
    await bench.clock.advance(598)
    assert not one.done()
    assert not two.done()
    await bench.clock.advance(1)
    await asyncio.gather(one, two)
    assert bench.starts == ["10:00:00"]


@pytest.mark.parametrize("again", [False, True])
async def test_after_the_timeout_what_runs_is_cancelled_logged_by_name_and_starts_again(
    any_store: str, caplog: pytest.LogCaptureFixture, again: bool
) -> None:
    bench = Bench()
    cron = CronScheduler(any_store, bench.clock)
    registrations: list[Any] = [("slow one", HOURLY, bench.handler(600, name="slow"), 1)]
    await cron.initialize(registrations)
    await bench.clock.advance(1)
    stopping = asyncio.create_task(cron.stop(None if again else 30))
    await bench.clock.advance(0)
    second = asyncio.create_task(cron.stop(30)) if again else None
    await bench.clock.advance(29)
    assert not stopping.done()
    await bench.clock.advance(1)
    await stopping
    if second is not None:
        await second
    named = [record for record in caplog.records if "slow one" in record.getMessage()]
    assert [(record.name, record.levelno) for record in named] == [("taskmill.cron", logging.WARNING)]
    await cron.initialize(registrations)
    await bench.clock.advance(0)
    await cron.stop()
    assert bench.starts == ["slow 10:00:00", "slow 10:00:31"]


async def test_a_function_that_cannot_be_stopped_does_not_hold_stop_up_nor_overlap_itself(
    any_store: str,
) -> None:
    bench = Bench()
    may_end, starts = threading.Event(), list[str]()

    def stuck() -> None:
        starts.append(bench.time)
        may_end.wait(20)

    cron = CronScheduler(any_store, bench.clock)
    await cron.initialize([("stuck", HOURLY, stuck, 1)])
    await bench.clock.advance(1)
    await asyncio.wait_for(cron.stop(timeout=0), 10)
    if any_store.startswith("postgresql"):
        # Any number of nodes may run; a task that still runs on the stopped node is not started by another.
        await cron.initialize([("stuck", HOURLY, stuck, 1)])
        await bench.clock.advance(0)
        assert starts == ["10:00:00"]
        may_end.set()
        for _ in range(1000):
            if len(starts) == 2:
                break
            await asyncio.sleep(0.01)
    else:
        with pytest.raises(AlreadyRunning):
            await cron.initialize([("stuck", HOURLY, stuck, 1)])
        may_end.set()
        for _ in range(200):
            await asyncio.sleep(0.01)
            try:
                await cron.initialize([("stuck", HOURLY, stuck, 1)])
            except AlreadyRunning:
                continue
            break
        await bench.clock.advance(0)
    await cron.stop()
    assert starts == ["10:00:00", "10:00:01"]


@pytest.mark.parametrize("timeout", [-1, "5", float("nan")])
async def test_a_bad_timeout_is_refused_and_nothing_stops(timeout: Any) -> None:
    bench = Bench()
    cron = CronScheduler(":memory:", bench.clock)
    await cron.initialize([("tick", EACH_MINUTE, bench.handler(), 1)])
    with pytest.raises(ConfigError, match="timeout"):
        await cron.stop(timeout)
    await bench.clock.advance(60)
    await cron.stop()
    assert bench.starts == ["10:00:00", "10:01:00"]


async def test_giving_up_the_wait_for_stop_does_not_undo_it() -> None:
    bench = Bench()
    cron = CronScheduler(":memory:", bench.clock)
    await cron.initialize([("tick", EACH_MINUTE, bench.handler(100), 1)])
    await bench.clock.advance(1)
    waiting = asyncio.create_task(cron.stop())
    await bench.clock.advance(0)
    waiting.cancel()
    await bench.clock.advance(300)
    await cron.stop()
    assert bench.starts == ["10:00:00"]


async def test_while_stop_waits_nothing_fires_and_timeouts_of_tasks_hold() -> None:
    bench, domain = Bench(), Domain("d")
    handler = bench.handler(10_000)

    @domain.task(timeout=300)
    async def work() -> None:
        await handler()

    cron = CronScheduler(":memory:", bench.clock)
    registrations: list[Any] = [("long", HOURLY, work, 1), ("tick", EACH_MINUTE, bench.handler(name="tick"), 1)]
    await cron.initialize(registrations)
    await bench.clock.advance(1)
    stopping = asyncio.create_task(cron.stop())
    await bench.clock.advance(298)
    assert not stopping.done()
    await bench.clock.advance(1)
    await asyncio.wait_for(stopping, 5)
    assert sorted(bench.starts) == ["10:00:00", "tick 10:00:00"]
    await cron.initialize(registrations)
    await bench.clock.advance(1)
    await cron.stop()
    assert sorted(bench.starts[2:]) == ["10:05:01", "tick 10:05:00"], "the failure is tried again, the missed runs once"


async def test_a_thousand_that_are_due_at_once_all_run_at_once(engine: Engine) -> None:
    bench, count = Bench(TEN + timedelta(minutes=1)), engine.fewer(1200)
    cron = CronScheduler(":memory:", bench.clock)
    await cron.initialize([(f"{n}", HOURLY, bench.handler(), 1) for n in range(count)])
    await bench.clock.advance(3600)
    await cron.stop()
    assert bench.starts == ["11:00:00"] * count


async def test_whatever_kills_the_loop_is_logged_at_once_and_raised_by_stop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    cron = CronScheduler(":memory:", bench.clock)
    await cron.initialize([("tick", HOURLY, bench.handler(), 1)])
    await bench.clock.advance(1)

    def die(_: object) -> None:
        raise ArithmeticError("wrong")

    with monkeypatch.context() as patch:
        patch.setattr("taskmill.runtime.planning.Planner.plan", die)
        await bench.clock.advance(3600)
    assert [record.levelno for record in caplog.records if record.name == "taskmill.cron"] == [logging.CRITICAL]
    with pytest.raises(ArithmeticError):
        await cron.stop()
    await cron.initialize([("tick", HOURLY, bench.handler(), 1)])
    await bench.clock.advance(3600)
    await cron.stop()
    assert bench.starts[0] == "10:00:00"
    assert bench.starts[-1] == "12:00:00"


async def test_an_occurrence_does_not_run_again_after_a_restart_with_the_clock_put_back(any_store: str) -> None:
    bench = Bench()
    cron = CronScheduler(any_store, bench.clock)
    await cron.initialize([("tick", HOURLY, bench.handler(), 60)])
    await bench.clock.advance(5)
    await cron.stop()
    await bench.clock.jump(-10)
    await cron.initialize([("tick", HOURLY, bench.handler(), 60)])
    await bench.clock.advance(timedelta(hours=1, minutes=1))
    await cron.stop()
    assert bench.starts == ["10:00:00", "11:00:00"]


async def test_a_handler_cannot_wait_for_the_stop_that_waits_for_it_and_may_ask_for_it() -> None:
    bench = Bench()
    cron = CronScheduler(":memory:", bench.clock)
    refused: list[str] = []
    stopping: list[asyncio.Task[None]] = []

    async def work() -> None:
        bench.starts.append(bench.time)
        try:
            await cron.stop()
        except InvalidState as wrong:
            refused.append(str(wrong))
        await bench.clock.sleep(90)
        if len(bench.starts) == 2:
            stopping.append(asyncio.create_task(cron.stop()))

    await cron.initialize([("tick", EACH_MINUTE, work, 1)])
    await bench.clock.advance(89)
    goes_on = repr(cron)
    await bench.clock.advance(91)
    await asyncio.wait_for(stopping.pop(), 20)
    await bench.clock.advance(3600)
    assert bench.starts == ["10:00:00", "10:01:30"]
    assert ["from outside" in words for words in refused] == [True, True]
    assert goes_on.endswith("running>"), "a stop that is refused stops nothing"
    await cron.stop()


async def test_a_handler_may_stop_its_scheduler_within_a_time() -> None:
    bench = Bench()
    cron = CronScheduler(":memory:", bench.clock)

    async def work() -> None:
        bench.starts.append(bench.time)
        if len(bench.starts) == 1:
            await cron.stop(timeout=10)

    await cron.initialize([("tick", HOURLY, work, 1)])
    await bench.clock.advance(9)
    during = repr(cron)
    await bench.clock.advance(1)
    await asyncio.wait_for(cron.stop(), 20)
    await cron.initialize([("tick", HOURLY, work, 1)])
    await bench.clock.advance(0)
    await cron.stop()
    assert during.endswith("running>")
    assert bench.starts == ["10:00:00", "10:00:10"], "it was cut short, and starts again"
