"""Samplers and sources may fail, hang or return nonsense: work continues, and is held again when there is a reason."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, Priority, Reading, Resources, Scheduler, ThrottlePolicy
from taskmill.events import TaskCompleted
from taskmill.pressure import Pressure
from taskmill.testing import ManualClock
from tests.raw_rows import refusing
from tests.runtime.backpressure.machine import CAPACITY, MB, Gate, PlayedMachine, a_scheduler, statuses, submit
from tests.runtime.records import sees_a_dispatcher


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """An event that is set after the test, so that waiting threads end."""
    event = threading.Event()
    yield event
    event.set()


class Hanging:
    """A source of pressure and a sampler that block until the test lets them answer."""

    name = "hanging"

    def __init__(self, let_go: threading.Event) -> None:
        self.let_go = let_go

    def pressure(self) -> float:
        self.let_go.wait()
        return 1.0

    def sample(self) -> Reading:
        self.let_go.wait()
        return Reading()


async def test_a_source_that_is_slow_at_first_delays_tasks_for_a_second_and_counts_when_it_answers(
    gate: Gate, clock: ManualClock, stuck: threading.Event
) -> None:
    async with a_scheduler(gate, clock, pressure=[Hanging(stuck)]) as scheduler:
        await submit(scheduler, "first")
        running = asyncio.create_task(scheduler.run())
        await clock.advance(0.5)
        at_once = list(gate.started)
        await clock.advance(0.5)
        soon = list(gate.started)
        stuck.set()
        await clock.advance(2)
        await submit(scheduler, "second")
        await submit(scheduler, "urgent", priority=Priority.HIGH)
        await clock.advance(5)
        pressed = list(gate.started)
        gate.end(*gate.running)
        await scheduler.stop()
        await running
    assert at_once == []
    assert soon == ["first"]
    assert pressed == ["first", "urgent"]


async def test_budgets_count_from_the_first_start_on_before_any_source_has_answered(
    gate: Gate, clock: ManualClock, stuck: threading.Event
) -> None:
    async with a_scheduler(gate, clock, resources=Resources(Hanging(stuck), capacity=CAPACITY)) as scheduler:
        await submit(scheduler, "first", 100)
        await submit(scheduler, "second", 100)
        running = asyncio.create_task(scheduler.run())
        await clock.advance(120)
        together = list(gate.started)
        await gate.end_all(clock)
        await scheduler.stop()
        await running
    assert together == ["first"]
    assert gate.started == ["first", "second"]


@pytest.mark.parametrize("kind", ["pressure", "resources"])
async def test_a_source_that_never_answers_delays_neither_start_nor_stop_on_the_real_clock(
    stuck: threading.Event, kind: str
) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> str:
        return "done"

    hanging = Hanging(stuck)
    settings: dict[str, Any] = {"pressure": [hanging]} if kind == "pressure" else {"resources": Resources(hanging)}
    began = time.monotonic()
    async with Scheduler(domains=[domain], **settings) as scheduler:
        handle = await work.submit()
        async with scheduler.running():
            result = await handle.result(timeout=20)
        # Stop while it is starting.
        running = asyncio.create_task(scheduler.run())
        await asyncio.sleep(0)
        await scheduler.stop()
        await running
    assert result == "done"
    assert time.monotonic() - began < 15


def raises() -> float:
    raise RuntimeError("no such file")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even that")


def raises_unprintably() -> float:
    raise Unprintable


def exits() -> float:
    raise SystemExit(1)


WRONG: list[Callable[[], Any]] = [
    raises,
    raises_unprintably,
    exits,
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -0.5,
    lambda: "0.99",
    lambda: None,
    lambda: True,
    lambda: 10**400,
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_source_with_invalid_values_holds_no_task_until_they_are_valid(
    machine: PlayedMachine, gate: Gate, clock: ManualClock, wrong: Callable[[], Any]
) -> None:
    says: list[Callable[[], Any]] = [lambda: 1.0]

    def odd() -> Any:
        return says[0]()

    sources = [*machine.sources(), Pressure("odd", odd)]
    async with a_scheduler(gate, clock, pressure=sources) as scheduler, scheduler.running():
        await submit(scheduler, "first")
        await clock.advance(1)
        started = [list(gate.started)]
        says[0] = wrong
        await clock.advance(1)
        started.append(list(gate.started))
        machine.pressures["cpu"] = 0.9
        await clock.advance(1)
        await submit(scheduler, "second")
        await clock.advance(2)
        machine.pressures["cpu"] = 0.1
        says[0] = lambda: 0.9
        await clock.advance(2)
        started.append(list(gate.started))
        says[0] = lambda: 0.0
        await clock.advance(1)
        started.append(list(gate.started))
        await gate.end_all(clock)
    assert started[:2] == [[], ["first"]]
    assert started[2] == ["first"], "the other sources are still read, and this one counts when it answers"
    assert started[3] == ["first", "second"]


async def test_while_the_sampler_fails_what_is_known_of_capacity_stands(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    machine.reading = Reading(disk_write=100.0 * MB, disk_busy=1.0)
    says: list[Callable[[], Any]] = [machine.sample]

    class Sampler:
        def sample(self) -> Any:
            return says[0]()

    async with a_scheduler(gate, clock, resources=Resources(Sampler())) as scheduler, scheduler.running():
        await clock.advance(3)
        for wrong in (raises, lambda: None, lambda: Reading(float("nan"), -1.0, float("inf"), 1e300, "x")):  # type: ignore[arg-type]
            says[0] = wrong
            await clock.advance(3)
        await submit(scheduler, "first", 100)
        await submit(scheduler, "second", 100)
        await clock.advance(1)
        together = list(gate.started)
        await gate.end_all(clock)
    assert together == ["first"], "160 MB fit"
    assert gate.started == ["first", "second"]


async def test_readings_that_cannot_be_stored_stop_nothing_and_are_stored_later(
    machine: PlayedMachine, gate: Gate, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tasks.db"
    async with (
        a_scheduler(gate, clock, file, pressure=machine.sources()) as scheduler,
        Scheduler(file) as elsewhere,
    ):
        async with scheduler.running():
            await clock.advance(1)
            machine.pressures["cpu"] = 0.9
            with refusing(file, "INSERT", "taskmill_setting"), caplog.at_level(logging.WARNING):
                await clock.advance(2)
                normal = await submit(scheduler, "normal")
                await submit(scheduler, "high", priority=Priority.HIGH)
                await clock.advance(2)
                during = list(gate.started)
            await clock.advance(2)
            await sees_a_dispatcher(elsewhere)
            said = await elsewhere.explain(normal)
            machine.pressures["cpu"] = 0.0
            with refusing(file, "INSERT", "taskmill_setting"):
                await clock.advance(2)
                after = list(gate.started)
            await gate.end_all(clock)
        left = await elsewhere.count()
    assert during == ["high"]
    assert "could not be stored" in caplog.text
    assert [hold.reason for hold in said.holds] == ["pressure"]
    assert after == ["high", "normal"]
    assert left == 0


async def test_a_scheduler_stops_during_a_look(
    machine: PlayedMachine, gate: Gate, clock: ManualClock, stuck: threading.Event
) -> None:
    says: list[Callable[[], Any]] = [lambda: 0.0]

    def slow() -> Any:
        return says[0]()

    async with a_scheduler(gate, clock, pressure=[Pressure("slow", slow)]) as scheduler:
        async with scheduler.running():
            await clock.advance(1)
            says[0] = lambda: stuck.wait() and 0.0
            await clock.advance(1)
        says[0] = lambda: 0.0
        async with scheduler.running():
            await submit(scheduler, "again")
            await clock.advance(1)
            started = list(gate.started)
            await gate.end_all(clock)
    assert started == ["again"]


async def test_on_the_real_clock_tasks_wait_for_the_pressure_and_start_when_it_falls(machine: PlayedMachine) -> None:
    domain = Domain("d")
    looks = asyncio.Event()

    @domain.task
    async def work(i: int) -> int:
        return i

    machine.pressures["cpu"] = 0.9
    loop = asyncio.get_running_loop()

    class Sampler:
        asked = 0

        def sample(self) -> Reading:
            self.asked += 1
            if self.asked > 5:
                loop.call_soon_threadsafe(looks.set)
            return Reading()

    resources = Resources(Sampler(), interval=0.01)
    async with Scheduler(domains=[domain], pressure=machine.sources(), resources=resources) as scheduler:
        completed = scheduler.events(TaskCompleted)
        handles = await scheduler.submit_many([work.prepare(i) for i in range(10)])
        async with scheduler.running():
            await asyncio.wait_for(looks.wait(), 20)
            held = await statuses(scheduler, *(handle.id for handle in handles))
            machine.pressures["cpu"] = 0.2
            results = [await handle.result(timeout=20) for handle in handles]
        await completed.aclose()
    assert held == ["pending"] * 10
    assert results == list(range(10))


async def test_a_task_that_is_being_started_while_the_pressure_rises_is_preempted_too(
    machine: PlayedMachine, gate: Gate, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    throttle = ThrottlePolicy([(Priority.LOW, 0.5)], preempt_above=0.8)
    async with a_scheduler(gate, clock, pressure=machine.sources(), throttle=throttle) as scheduler:
        turn = scheduler._store.turn

        async def slow_turn(planned: Any) -> Any:
            result = await turn(planned)
            if result.claimed:
                machine.pressures["cpu"] = 1.0
                await clock.wait(asyncio.Event(), clock.monotonic() + 3)
            return result

        monkeypatch.setattr(scheduler._store, "turn", slow_turn)
        async with scheduler.running():
            low = await submit(scheduler, "low", priority=Priority.LOW)
            await clock.advance(10)
            pressed = await statuses(scheduler, low)
            machine.pressures["cpu"] = 0.0
            monkeypatch.undo()
            await clock.advance(2)
            after = await statuses(scheduler, low)
            await gate.end_all(clock)
    assert (pressed, after) == (["paused"], ["running"])


async def test_progress_and_io_of_a_task_preempted_for_pressure_are_kept(
    machine: PlayedMachine, clock: ManualClock
) -> None:
    domain = Domain("d")
    attempts: list[Any] = []

    @domain.task(priority=Priority.LOW)
    async def work(ctx: Context) -> None:
        attempts.append(dict(ctx.saved))
        await ctx.save(done=len(attempts))
        ctx.record_io(disk_write=10 * MB)
        await clock.sleep(10)

    throttle = ThrottlePolicy(preempt_above=0.8)
    async with Scheduler(domains=[domain], pressure=machine.sources(), throttle=throttle, clock=clock) as scheduler:
        async with scheduler.running():
            handle = await work.submit()
            await clock.advance(3)
            machine.pressures["cpu"] = 0.9
            await clock.advance(3)
            machine.pressures["cpu"] = 0.1
            await clock.advance(20)
        record = await handle.wait()
    assert attempts == [{}, {"done": 1}]
    assert record.retries == 0
    assert record.actual_io is not None
