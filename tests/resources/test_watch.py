"""The watch of the machine, on a clock that the tests advance."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import Capacity, Reading
from taskmill.policy.io_room import IoLoad
from taskmill.pressure import Pressure
from taskmill.resources.watch import PATIENCE, ResourceWatch
from taskmill.testing import ManualClock

MB = 1e6


class Scripted:
    """A sampler with the readings that the test sets."""

    def __init__(self, *readings: Reading) -> None:
        self.readings = list(readings)
        self.asked = 0
        self.threads: set[str] = set()
        self.bounds = IoBudget()

    def sample(self) -> Reading:
        self.asked += 1
        self.threads.add(threading.current_thread().name)
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


@asynccontextmanager
async def watching(clock: ManualClock, **settings: Any) -> AsyncIterator[ResourceWatch]:
    watch = ResourceWatch(clock, **settings)
    running = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        watch.stop()
        await running


def _messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "taskmill.resources"]


async def test_it_looks_at_once_and_then_at_each_interval(manual_clock: ManualClock) -> None:
    sampler, asked = Scripted(Reading(0.5)), []
    async with watching(manual_clock, sampler=sampler, interval=1.0):
        for duration in (0, 0.9, 0.1, 10):
            await manual_clock.advance(duration)
            asked.append(sampler.asked)
    assert asked == [1, 1, 2, 12]
    assert sampler.threads == {"taskmill-monitor"}


async def test_readings_are_smoothed_and_pressure_is_as_it_was_said(manual_clock: ManualClock) -> None:
    sampler = Scripted(Reading(0.0, disk_read=100.0), Reading(1.0, disk_read=200.0))
    said = {"low": 0.2, "high": 0.9}
    sources = [Pressure("low", lambda: said["low"]), Pressure("high", lambda: said["high"])]
    seen: list[Any] = []
    async with watching(manual_clock, sampler=sampler, sources=sources) as watch:
        await manual_clock.advance(0)
        seen.append((watch.reading, dict(watch.pressures), watch.pressure))
        said["high"] = 0.1
        await manual_clock.advance(1)
        seen.append((watch.reading, dict(watch.pressures), watch.pressure))
    assert seen == [
        (Reading(0.0, disk_read=100.0), {"low": 0.2, "high": 0.9}, 0.9),
        (Reading(0.3, disk_read=130.0), {"low": 0.2, "high": 0.1}, 0.2),
    ]


async def test_the_scheduler_is_notified_when_something_has_changed_and_only_then(manual_clock: ManualClock) -> None:
    told, said = [], [0.0]
    source = Pressure("mine", lambda: said[0])
    async with watching(manual_clock, sources=[source], changed=lambda: told.append(manual_clock.monotonic())):
        await manual_clock.advance(5)
        said[0] = 0.6
        await manual_clock.advance(5)
    assert told == [6.0]


async def test_capacity_is_learned_kept_when_idle_and_bounded_by_the_system(manual_clock: ManualClock) -> None:
    sampler = Scripted(Reading(disk_read=100 * MB), Reading())
    seen = []
    async with watching(manual_clock, sampler=sampler) as watch:
        for duration in (0, 100):
            await manual_clock.advance(duration)
            seen.append(watch.capacity.disk_read)
        sampler.bounds = IoBudget(disk_read=5, net_rx=7)
        await manual_clock.advance(1)
        seen += [watch.capacity.disk_read, watch.capacity.net_rx, watch.known.disk_read]
    assert seen == [100 * MB, 100 * MB, 5, 7, 100 * MB]


async def test_capacity_that_was_given_or_remembered_is_there_from_the_start(manual_clock: ManualClock) -> None:
    watch = ResourceWatch(manual_clock, capacity=IoBudget(disk_read=10), known=Capacity(disk_read=5.0, net_tx=6.0))
    assert watch.capacity == Capacity(disk_read=10.0, net_tx=6.0)


async def test_running_tasks_show_that_a_disk_became_slower(manual_clock: ManualClock) -> None:
    load = IoLoad()
    sampler = Scripted(Reading(disk_read=40 * MB))
    known = Capacity(disk_read=100 * MB)
    rates = []
    async with watching(manual_clock, sampler=sampler, load=load, known=known) as watch:
        await manual_clock.advance(60)
        rates.append(watch.capacity.disk_read)
        load.add(IoBudget(disk_read=10**9))
        load.add(IoBudget(disk_read=10**9))
        await manual_clock.advance(60)
        rates.append(watch.capacity.disk_read)
    assert rates[0] == 100 * MB
    assert 60 * MB < rates[1] < 80 * MB


async def test_a_bandwidth_limit_presses_by_what_is_received_and_sent(manual_clock: ManualClock) -> None:
    sampler = Scripted(Reading(net_rx=300.0, net_tx=100.0))
    pressures = {}
    async with watching(manual_clock, sampler=sampler, bandwidth_limit=1000.0) as watch:
        await manual_clock.advance(0)
        pressures = dict(watch.pressures)
    assert pressures == {"bandwidth": 0.4}


def _raise(wrong: BaseException) -> Callable[[], float]:
    def function() -> float:
        raise wrong

    return function


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_raise(OSError("gone")), "OSError: gone"),
        (_raise(SystemExit(3)), "SystemExit: 3"),
        (lambda: float("nan"), "ValueError: pressure() returned nan, not a number from 0 to 1"),
        (lambda: -0.5, "ValueError: pressure() returned -0.5, not a number from 0 to 1"),
        (lambda: "high", "ValueError: pressure() returned high, not a number from 0 to 1"),
    ],
)
async def test_a_source_that_fails_is_left_out_and_named_once(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture, function: Callable[[], float], why: str
) -> None:
    caplog.set_level(logging.INFO, "taskmill.resources")
    broken = Pressure("broken", function)
    async with watching(manual_clock, sources=[broken, Pressure("fine", lambda: 0.3)]) as watch:
        await manual_clock.advance(10)
        failing = dict(watch.pressures)
        broken._function = lambda: 0.7
        await manual_clock.advance(1)
        mended = dict(watch.pressures)
    assert failing == {"fine": 0.3}
    assert mended == {"broken": 0.7, "fine": 0.3}
    assert _messages(caplog) == [
        f"broken failed ({why}); it is ignored until it answers again",
        "broken answers again",
    ]


async def test_a_sampler_that_returns_something_else_is_named(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong:
        def sample(self) -> Reading:
            return (0.5, 0, 0, 0, 0)  # type: ignore[return-value]

    async with watching(manual_clock, sampler=Wrong()) as watch:
        await manual_clock.advance(3)
        reading = watch.reading
    assert reading is None
    assert len(_messages(caplog)) == 1
    assert "sample() returned tuple, not a Reading" in _messages(caplog)[0]


async def test_a_source_that_does_not_answer_holds_up_neither_the_loop_nor_work_nor_the_end(
    manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate, is_stuck = threading.Event(), [False]

    def stuck() -> float:
        if is_stuck[0]:
            gate.wait(30)
        return 1.0

    pressures = []
    try:
        async with watching(manual_clock, sources=[Pressure("stuck", stuck)]) as watch:
            await manual_clock.advance(0)
            is_stuck[0] = True
            await manual_clock.advance(PATIENCE - 1)
            pressures.append(watch.pressure)
            await manual_clock.advance(5)
            pressures.append(watch.pressure)
    finally:
        gate.set()
    assert pressures == [1.0, 0.0]
    assert _messages(caplog) == [
        "stuck has not answered for 30 s; until it does, tasks start without regard to pressure"
    ]


async def test_the_loop_continues_while_a_source_is_read(manual_clock: ManualClock) -> None:
    asked, gate = threading.Event(), threading.Event()

    def patient() -> float:
        asked.set()
        return 0.5 if gate.wait(30) else 1.0

    watch = ResourceWatch(manual_clock, sources=[Pressure("patient", patient)])
    looking = asyncio.create_task(watch.look())
    while not asked.is_set():
        await asyncio.sleep(0)
    gate.set()
    await looking
    watch.stop()
    assert watch.pressure == 0.5


async def test_a_source_that_answers_at_last_counts_again(manual_clock: ManualClock) -> None:
    gate = threading.Event()

    def slow() -> float:
        gate.wait(30)
        return 0.8

    async with watching(manual_clock, sources=[Pressure("slow", slow)]) as watch:
        await manual_clock.advance(PATIENCE + 1)
        before = watch.pressure
        gate.set()
        await manual_clock.advance(1)
        after = watch.pressure
    assert (before, after) == (0.0, 0.8)


async def test_a_laptop_that_slept_is_looked_at_once_and_not_for_every_second_it_slept(
    manual_clock: ManualClock,
) -> None:
    sampler = Scripted(Reading(0.5))
    watch = ResourceWatch(manual_clock, sampler=sampler)
    await watch.look()
    await manual_clock.advance(3600)
    await watch.look()
    assert sampler.asked == 2
    assert watch.due_at == 3601
    running = asyncio.create_task(watch.run())
    await manual_clock.advance(0)
    watch.stop()
    await running
    assert sampler.asked == 2


async def test_a_jump_of_the_wall_clock_is_no_reason_to_look(manual_clock: ManualClock) -> None:
    sampler = Scripted(Reading(0.5))
    async with watching(manual_clock, sampler=sampler):
        await manual_clock.advance(0)
        await manual_clock.jump(3600)
        await manual_clock.jump(-7200)
        asked = sampler.asked
    assert asked == 1
