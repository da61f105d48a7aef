"""Cron tasks and the rest of the engine: cancelling, keys, pauses, dead letters, other processes, a failing store."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from taskmill import Context, Domain, DuplicateTask, Priority, Scheduler, StoreBusy
from taskmill.cron import Cron
from taskmill.events import CronFired
from taskmill.model.status import Ending, Status
from taskmill.runtime import cron_clock
from taskmill.store.sql import cron_firing
from tests.raw_rows import raw
from tests.runtime.cron.bench import TEN, Bench, heard

HOURLY = "0 * * * *"


async def test_a_cancelled_run_is_over_and_the_next_occurrence_runs() -> None:
    bench = Bench()
    handler = bench.handler(1000, ValueError("no"))
    async with Scheduler(cron=[Cron("tick", HOURLY, handler, 600)], clock=bench.clock) as scheduler:
        async with scheduler.running():
            await bench.clock.advance(10)
            (running,) = await scheduler.tasks(status="running")
            await scheduler.cancel(running.id)
            await bench.clock.advance(3600)
            (waiting,) = await scheduler.tasks(status="scheduled")
            await scheduler.cancel(waiting.id)
            await bench.clock.advance(3600)
        endings = [task.ending for task in await scheduler.history()]
        (schedule,) = (await scheduler.snapshot()).schedules
    assert bench.starts == ["10:00:00", "11:00:00", "12:00:00"]
    assert endings == ["completed", "cancelled", "cancelled"]
    assert (schedule.task_id, schedule.runs, schedule.last_outcome) == (None, 3, "succeeded")


async def test_a_cancelled_run_that_does_not_stop_has_no_other_beside_it() -> None:
    bench, may_end, at_work = Bench(), threading.Event(), list[str]()
    beside: list[int] = []

    def stuck() -> None:
        bench.starts.append(bench.time)
        beside.append(len(at_work))
        at_work.append("me")
        may_end.wait(20)
        at_work.pop()

    cron = [Cron("tick", HOURLY, stuck, 1)]
    async with Scheduler(cron=cron, cancel_timeout=1800, clock=bench.clock) as scheduler:
        async with scheduler.running():
            await bench.clock.advance(10)
            (running,) = await scheduler.tasks(status="running")
            await scheduler.cancel(running.id)
            await bench.clock.advance(2 * 3600)
            may_end.set()
            await bench.clock.advance(0)
        endings = [task.ending for task in await scheduler.history()]
    assert bench.starts == ["10:00:00", "12:00:10"]
    assert beside == [0, 0]
    assert endings == ["completed", "cancelled"]


async def test_a_firing_that_another_process_cancels_before_its_start_fires_again(tmp_path: Path) -> None:
    bench, file = Bench(), tmp_path / "t.db"
    cron = [
        Cron("long", "0 10 1 1 *", bench.handler(5000, name="long"), 1),
        Cron("tick", HOURLY, bench.handler(name="tick"), 1),
    ]
    async with Scheduler(file, cron=cron, max_concurrency=1, clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(10)
        async with Scheduler(file, clock=bench.clock) as other:
            (waiting,) = await other.tasks(tags={"cron": "tick"})
            await other.cancel(waiting.id)
        while not await scheduler.count(status="cancelled"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # other processes are noticed in real time
        await bench.clock.advance(2 * 3600)
    assert bench.starts == ["long 10:00:00", "tick 11:23:20", "tick 12:00:00"]


async def test_a_firing_whose_key_is_held_is_left_to_the_holder() -> None:
    bench, domain = Bench(TEN + timedelta(minutes=30)), Domain("d")

    @domain.task(key="only one")
    async def work() -> None:
        bench.starts.append(bench.time)
        await bench.clock.sleep(3000)

    cron = [Cron("a", HOURLY, work, 1), Cron("b", HOURLY, work, 1)]
    async with Scheduler(cron=cron, domains=[domain], clock=bench.clock) as scheduler:
        events = scheduler.events(CronFired)
        async with scheduler.running():
            await bench.clock.advance(0)
            await work.submit()
            await bench.clock.advance(8700)
        fired = await heard(events)
        a, b = (await scheduler.snapshot()).schedules
    assert bench.starts == ["10:30:00", "12:00:00"]
    assert fired == [("a", "12:00")]
    assert (a.runs, a.last_outcome, b.runs, b.last_outcome) == (1, "succeeded", 0, None), "b never fired"


async def test_superseding_a_firing_ends_it_and_the_next_occurrence_runs() -> None:
    bench, domain = Bench(), Domain("d")
    fails = [True]

    @domain.task(key="k")
    async def work() -> None:
        bench.starts.append(bench.time)
        if fails:
            fails.pop()
            raise ValueError("no")

    async with Scheduler(cron=[Cron("tick", HOURLY, work, 1800)], clock=bench.clock) as scheduler:
        async with scheduler.running():
            await bench.clock.advance(60)
            await work.options(on_duplicate="supersede").submit()
            await bench.clock.advance(3600)
        (schedule,) = (await scheduler.snapshot()).schedules
    assert bench.starts == ["10:00:00", "10:01:00", "11:00:00"]
    assert (schedule.runs, schedule.last_outcome) == (2, "succeeded")


async def test_two_cron_tasks_that_replace_each_other_by_key_both_continue() -> None:
    bench, domain = Bench(), Domain("d")

    @domain.task(key="k", on_duplicate="supersede")
    async def work() -> None:
        bench.starts.append(bench.time)

    cron = [Cron("a", HOURLY, work, 1), Cron("b", HOURLY, work, 1)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler:
        events = scheduler.events(CronFired)
        async with scheduler.running():
            await bench.clock.advance(3600)
        fired = await heard(events)
    assert bench.starts == ["10:00:00", "11:00:00"]
    assert fired == [("b", "10:00"), ("b", "11:00")]


async def test_a_paused_scheduler_fires_once_and_runs_when_it_is_resumed() -> None:
    bench = Bench()
    async with Scheduler(cron=[Cron("tick", HOURLY, bench.handler(), 1)], clock=bench.clock) as scheduler:
        await scheduler.pause()
        async with scheduler.running():
            await bench.clock.advance(2.5 * 3600)
            waiting = await scheduler.tasks()
            (while_paused,) = (await scheduler.snapshot()).schedules
            await scheduler.resume()
            await bench.clock.advance(0)
            (resumed,) = (await scheduler.snapshot()).schedules
            await bench.clock.advance(3600)
    assert len(waiting) == 1
    assert bench.starts == ["12:30:00", "13:00:00"]
    assert (while_paused.last_run, resumed.last_run) == (None, TEN + timedelta(hours=2.5)), (
        "a run that waits has not begun"
    )


async def test_a_preempted_run_continues_and_is_not_fired_again() -> None:
    bench, domain = Bench(), Domain("d")

    @domain.task
    async def urgent() -> None:
        await bench.clock.sleep(60)

    cron = [Cron("tick", HOURLY, bench.handler(1000), 1)]
    async with Scheduler(cron=cron, domains=[domain], max_concurrency=1, clock=bench.clock) as scheduler:
        events = scheduler.events(CronFired)
        async with scheduler.running():
            await bench.clock.advance(10)
            await urgent.options(priority=Priority.CRITICAL).submit()
            await bench.clock.advance(3600)
        fired = await heard(events)
    assert bench.starts == ["10:00:00", "10:01:10", "11:00:00"]
    assert fired == [("tick", "10:00"), ("tick", "11:00")]


async def test_a_dead_letter_that_is_revived_is_the_firing_again(tmp_path: Path) -> None:
    bench, domain = Bench(), Domain("d")

    @domain.task(ttl=None)
    async def work(_ctx: Context) -> None:
        bench.starts.append(bench.time)
        await bench.clock.sleep(600)

    cron = [Cron("tick", HOURLY, work, 1)]
    async with Scheduler(tmp_path / "t.db", cron=cron, clock=bench.clock) as scheduler:
        store = scheduler._store
        for _ in range(3):
            await _claim(scheduler, tmp_path / "t.db")
            await store.recover(bench.clock.now_ms())
        (dead,) = await scheduler.dead_letters()
        (schedule,) = (await scheduler.snapshot()).schedules
        assert (dead.error, schedule.last_outcome, schedule.task_id) == ("crashed 3 times", "quarantined", None)
        await scheduler.retry_dead(dead.id)
        (schedule,) = (await scheduler.snapshot()).schedules
        assert schedule.task_id == dead.id
        with pytest.raises(DuplicateTask):
            await _second_dead_letter(scheduler, dead.id)
        async with scheduler.running():
            await bench.clock.advance(1200)
        assert (await scheduler.get(dead.id)).ending == Ending.COMPLETED  # type: ignore[union-attr]


async def _claim(scheduler: Scheduler, file: Path) -> None:
    """Claim the firing, as by a dispatcher that then dies."""
    if not await scheduler.tasks():
        await scheduler.pause()
        await scheduler.run_until_idle()
        await scheduler.resume()
    (task,) = await scheduler.tasks()
    assert task.status == Status.PENDING
    with raw(file) as connection:
        connection.execute(
            "UPDATE taskmill_task SET status = 'running', attempt = attempt + 1, started_at = created_at"
        )


async def _second_dead_letter(scheduler: Scheduler, id: int) -> None:
    from taskmill.store.sql import cron

    await scheduler._store._write(lambda connection: cron.rejoin(connection, id + 1, "tick", 0))  # type: ignore[attr-defined]


async def test_a_store_that_refuses_is_asked_again_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(TEN + timedelta(minutes=1))
    async with Scheduler(cron=[Cron("tick", HOURLY, bench.handler(), 1)], clock=bench.clock) as scheduler:
        fire = scheduler._store.fire_cron
        refusals = [StoreBusy("busy")] * 3

        async def refuse(*arguments: Any) -> Any:
            if refusals:
                raise refusals.pop()
            return await fire(*arguments)

        monkeypatch.setattr(scheduler._store, "fire_cron", refuse)
        async with scheduler.running():
            await bench.clock.advance(3 * 3600)
    assert bench.starts == ["11:00:03", "12:00:00", "13:00:00"]
    assert [record.name for record in caplog.records if record.levelno == logging.ERROR] == ["taskmill.cron"] * 3


@pytest.mark.parametrize(
    ("module", "calculation", "starts"),
    [(cron_clock, "next_occurrence", ["11:00:00", "12:00:00"]), (cron_firing, "due", ["11:00:02", "12:00:00"])],
)
async def test_a_calculation_that_fails_is_logged_and_done_again(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    calculation: str,
    starts: list[str],
) -> None:
    bench = Bench(TEN + timedelta(minutes=1))
    calculate, failures = getattr(module, calculation), [ArithmeticError("wrong")] * 2

    def fail(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return calculate(*arguments)

    cron = [Cron("tick", HOURLY, bench.handler(), 1)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(1800)
        monkeypatch.setattr(module, calculation, fail)
        await bench.clock.advance(2 * 3600)
    assert bench.starts == starts
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [(record.name, record.exc_info is not None) for record in errors] == [("taskmill.cron", True)] * 2


async def test_every_kind_of_callable_runs_where_it_belongs() -> None:
    bench = Bench()
    ran: dict[str, bool] = {}
    main = threading.get_ident()

    def note(name: str) -> object:
        ran[name] = threading.get_ident() == main
        return object()  # what is returned is dropped

    async def on_loop(name: str) -> object:
        return note(name)

    class Calling:
        async def __call__(self) -> object:
            return note("object")

        async def method(self) -> object:
            return note("method")

        def plain(self) -> object:
            return note("plain method")

    cron: list[Any] = [
        ("def", HOURLY, lambda: note("def"), 1),
        ("partial", HOURLY, functools.partial(note, "partial"), 1),
        ("async partial", HOURLY, functools.partial(functools.partial(on_loop), "async partial"), 1),
        ("object", HOURLY, Calling(), 1),
        ("method", HOURLY, Calling().method, 1),
        ("plain method", HOURLY, Calling().plain, 1),
        ("built-in", HOURLY, dict, 1),
        ("forgotten", HOURLY, lambda: on_loop("forgotten"), 7200),
    ]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler:
        await scheduler.run_until_idle()
        results = {task.tags["cron"]: task.result for task in await scheduler.history()}
        (failed,) = await scheduler.tasks()
    loop = {"async partial": True, "object": True, "method": True}
    assert ran == {"def": False, "partial": False, "plain method": False, **loop}
    assert set(results.values()) == {None}
    assert "awaitable" in (failed.last_error or "")


@pytest.mark.parametrize(
    "wrong", [asyncio.CancelledError, GeneratorExit, StopIteration, type("Odd", (BaseException,), {})]
)
@pytest.mark.parametrize("runs_in_thread", [False, True])
async def test_whatever_a_handler_raises_is_a_failure_that_is_tried_again(
    wrong: type[BaseException], runs_in_thread: bool
) -> None:
    bench = Bench()

    def work() -> None:
        bench.starts.append(bench.time)
        if len(bench.starts) == 1:
            raise wrong

    async def work_on_loop() -> None:
        work()

    cron = [Cron("tick", HOURLY, work if runs_in_thread else work_on_loop, 300)]
    async with Scheduler(cron=cron, clock=bench.clock) as scheduler, scheduler.running():
        await bench.clock.advance(3600)
    assert bench.starts == ["10:00:00", "10:05:00", "11:00:00"]


async def test_an_expired_firing_is_over_and_the_next_occurrence_runs() -> None:
    bench, domain = Bench(), Domain("d", ttl=60)
    handler = bench.handler()

    @domain.task
    async def work() -> None:
        await handler()

    cron = [Cron("long", "0 10 1 1 *", bench.handler(120, name="long"), 1), Cron("tick", HOURLY, work, 1)]
    async with Scheduler(cron=cron, max_concurrency=1, clock=bench.clock) as scheduler:
        async with scheduler.running():
            await bench.clock.advance(3600)
        endings = [task.ending for task in await scheduler.history(tags={"cron": "tick"})]
    assert bench.starts == ["long 10:00:00", "11:00:00"]
    assert endings == ["completed", "expired"]
