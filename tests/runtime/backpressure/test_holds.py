"""A task that waits for the machine delays no other task without need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain, Group, IoBudget, Priority, Scheduler, Submission
from taskmill.testing import ManualClock
from tests.runtime.backpressure.machine import CAPACITY, MB, Gate, PlayedMachine, a_scheduler, statuses, submit
from tests.runtime.records import sees_a_dispatcher


async def cancelled(scheduler: Scheduler, large: int, _clock: ManualClock) -> None:
    await scheduler.cancel(large)


async def cancelled_with_others(scheduler: Scheduler, _large: int, _clock: ManualClock) -> None:
    await scheduler.cancel_where(group="large")


async def paused(scheduler: Scheduler, _large: int, _clock: ManualClock) -> None:
    await scheduler.group("large").pause()


async def expired(_scheduler: Scheduler, _large: int, clock: ManualClock) -> None:
    await clock.advance(60)


async def less_urgent(scheduler: Scheduler, large: int, _clock: ManualClock) -> None:
    await scheduler.set_priority(large, Priority.IDLE)


@pytest.mark.parametrize("happens", [cancelled, cancelled_with_others, paused, expired, less_urgent])
async def test_no_room_is_kept_for_a_task_that_may_not_start_any_more(
    machine: PlayedMachine,
    gate: Gate,
    clock: ManualClock,
    happens: Callable[[Scheduler, int, ManualClock], Awaitable[None]],
) -> None:
    async with (
        a_scheduler(gate, clock, resources=machine.resources(CAPACITY)) as scheduler,
        scheduler.running(),
    ):
        await submit(scheduler, "running", 100)
        await clock.advance(0)
        large = await submit(scheduler, "large", 150, priority=Priority.HIGH, group="large", ttl=60)
        await submit(scheduler, "small", 50)
        await clock.advance(1)
        before = list(gate.started)
        await happens(scheduler, large, clock)
        await clock.advance(1)
        after = list(gate.started)
        await gate.end_all(clock)
    assert before == ["running"], "the more urgent one is first"
    assert after == ["running", "small"]


async def test_no_room_is_kept_for_a_task_that_waits_for_the_pressure_to_fall(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    async with (
        a_scheduler(gate, clock, resources=machine.resources(CAPACITY), pressure=machine.sources()) as scheduler,
        scheduler.running(),
    ):
        await submit(scheduler, "running", 100, priority=Priority.HIGH)
        await clock.advance(0)
        # Its group has its turn before the other group, though it is not more urgent.
        await submit(scheduler, "large", 150, priority=Priority.NORMAL)
        await submit(scheduler, "small", 50, priority=Priority.NORMAL + 1)
        await clock.advance(1)
        before = list(gate.started)
        machine.pressures["cpu"] = 0.8
        await clock.advance(1)
        small = await submit(scheduler, "urgent", 50, priority=Priority.HIGH)
        await clock.advance(1)
        after = list(gate.started)
        machine.pressures["cpu"] = 0.0
        await clock.advance(1)
        await gate.end_all(clock)
        ended = await statuses(scheduler, small)
    assert (before, after) == (["running"], ["running", "urgent"])
    assert ended == ["completed"]


async def test_a_waiting_group_idles_no_slot_of_another(machine: PlayedMachine, gate: Gate, clock: ManualClock) -> None:
    groups = {"heavy": Group(weight=9, min_slots=3), "light": Group(weight=1)}
    async with a_scheduler(
        gate, clock, resources=machine.resources(CAPACITY), groups=groups, max_concurrency=4
    ) as scheduler:
        for i in range(5):
            await submit(scheduler, f"heavy{i}", 100, group="heavy")
        for i in range(5):
            await submit(scheduler, f"light{i}", 0, group="light")
        async with scheduler.running():
            await clock.advance(1)
            first = sorted(gate.started)
            gate.end("heavy0")
            await clock.advance(1)
            then = sorted(gate.running)
            await gate.end_all(clock)
    assert first == ["heavy0", "light0", "light1", "light2"]
    assert then == ["heavy1", "light0", "light1", "light2"]
    assert len(gate.started) == 10


async def test_with_one_slot_budgets_never_hold_a_task(machine: PlayedMachine, gate: Gate, clock: ManualClock) -> None:
    async with a_scheduler(gate, clock, resources=machine.resources(CAPACITY), max_concurrency=1) as scheduler:
        for i in range(4):
            await submit(scheduler, str(i), 10_000)
        async with scheduler.running():
            await clock.advance(0)
            await gate.end_all(clock)
    assert gate.started == ["0", "1", "2", "3"]


@pytest.mark.parametrize("mb", [100, 161, 10_000])
async def test_no_task_is_preempted_for_an_urgent_one_that_would_not_fit_anyway(
    machine: PlayedMachine, gate: Gate, clock: ManualClock, mb: int
) -> None:
    async with (
        a_scheduler(gate, clock, resources=machine.resources(CAPACITY), max_concurrency=2) as scheduler,
        scheduler.running(),
    ):
        await submit(scheduler, "writes", 120, priority=Priority.CRITICAL)
        await clock.advance(0)
        quiet = await submit(scheduler, "quiet", priority=Priority.IDLE)
        await clock.advance(0)
        urgent = await submit(scheduler, "urgent", mb, priority=Priority.CRITICAL)
        await clock.advance(1)
        held = await statuses(scheduler, quiet, urgent)
        # Another submission makes the picker check all waiting tasks again.
        await submit(scheduler, "another", 5, priority=Priority.LOW)
        await clock.advance(1)
        again = await statuses(scheduler, quiet, urgent)
        starts = list(gate.started)
        gate.end(*{"writes"} & set(gate.running))
        await clock.advance(1)
        then = await statuses(scheduler, quiet, urgent)
        await gate.end_all(clock)
    assert held == again == ["running", "pending"]
    assert starts == ["writes", "quiet"]
    assert then == ["running", "running"]


async def test_the_task_whose_end_makes_room_is_preempted_for_an_urgent_one(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    async with (
        a_scheduler(gate, clock, resources=machine.resources(CAPACITY), max_concurrency=2) as scheduler,
        scheduler.running(),
    ):
        writes = await submit(scheduler, "writes", 120, priority=Priority.LOW)
        quiet = await submit(scheduler, "quiet", priority=Priority.HIGH)
        await clock.advance(0)
        urgent = await submit(scheduler, "urgent", 100, priority=Priority.CRITICAL)
        await clock.advance(1)
        during = await statuses(scheduler, writes, quiet, urgent)
        gate.end("urgent")
        await clock.advance(1)
        after = await statuses(scheduler, writes, quiet, urgent)
        await gate.end_all(clock)
    assert during == ["paused", "running", "running"]
    assert after == ["running", "running", "completed"]


async def test_a_pause_while_tasks_wait_for_room_loses_no_task(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    async with (
        a_scheduler(gate, clock, resources=machine.resources(CAPACITY)) as scheduler,
        scheduler.running(),
    ):
        for name in ("first", "second", "third"):
            await submit(scheduler, name, 100)
        await clock.advance(1)
        await scheduler.pause()
        gate.end("first")
        await clock.advance(5)
        paused = list(gate.started)
        await scheduler.resume()
        await clock.advance(1)
        resumed = list(gate.started)
        await gate.end_all(clock)
    assert paused == ["first"]
    assert resumed == ["first", "second"]
    assert gate.started == ["first", "second", "third"]


@pytest.mark.parametrize("slots", [1, 3, 8])
async def test_until_idle_ends_when_all_have_had_room(machine: PlayedMachine, clock: ManualClock, slots: int) -> None:
    domain = Domain("d")
    ran: list[int] = []

    @domain.task(io=lambda i: IoBudget(disk_write=(i % 5) * 50 * MB, net_tx=i))
    async def write(i: int) -> None:
        await asyncio.sleep(0)
        ran.append(i)

    capacity = IoBudget(disk_write=100 * MB, net_tx=10)
    async with Scheduler(
        domains=[domain], resources=machine.resources(capacity), clock=clock, max_concurrency=slots
    ) as scheduler:
        await scheduler.submit_many([write.prepare(i) for i in range(40)])
        await scheduler.run_until_idle(timeout=60)
    assert sorted(ran) == list(range(40))


async def test_until_idle_ends_though_a_paused_group_would_have_no_room(
    machine: PlayedMachine, clock: ManualClock
) -> None:
    domain = Domain("d")
    ran: list[str] = []

    @domain.task(io=IoBudget(disk_write=100 * MB))
    async def write(name: str) -> None:
        ran.append(name)

    async with Scheduler(domains=[domain], resources=machine.resources(CAPACITY), clock=clock) as scheduler:
        await scheduler.group("stopped").pause()
        await scheduler.submit_many([write.options(group="stopped").prepare("never") for _ in range(3)])
        await scheduler.submit_many([write.prepare("now") for _ in range(3)])
        await scheduler.run_until_idle(timeout=60)
        left = await scheduler.count(status="paused")
    assert ran == ["now"] * 3
    assert left == 3


async def test_until_idle_gives_up_in_time_while_the_pressure_does_not_fall(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    machine.pressures["cpu"] = 1.0
    async with a_scheduler(gate, clock, pressure=machine.sources()) as scheduler:
        await scheduler.submit(Submission("work::write", {"name": "held"}))
        idle = asyncio.create_task(scheduler.run_until_idle(timeout=30))
        await clock.advance(31)
        done = idle.done()
        await asyncio.gather(idle, return_exceptions=True)
    assert done
    assert isinstance(idle.exception(), TimeoutError)
    assert gate.started == []


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
async def test_old_readings_hold_no_task_if_nothing_measures(
    machine: PlayedMachine, gate: Gate, clock: ManualClock, tmp_path: Path, killed: bool
) -> None:
    file = tmp_path / "tasks.db"
    machine.pressures["cpu"] = 0.9
    settings: dict[str, Any] = {"resources": machine.resources(CAPACITY), "pressure": machine.sources()}
    async with a_scheduler(gate, clock, file, **settings) as scheduler:
        async with scheduler.running():
            await clock.advance(1)
            noted = await scheduler._store.machine()
        if killed:
            # The store as if the process had not cleaned up.
            assert noted is not None
            await scheduler._store.note_machine(noted)
    async with a_scheduler(gate, clock, file, max_concurrency=1) as scheduler, Scheduler(file) as elsewhere:
        async with scheduler.running():
            await submit(scheduler, "first", 100)
            await clock.advance(0)
            second = await submit(scheduler, "second", 100)
            await sees_a_dispatcher(elsewhere)
            said, pressure = await elsewhere.explain(second), (await elsewhere.snapshot()).pressure
            await gate.end_all(clock)
        known = await elsewhere._store.machine()
    assert [hold.reason for hold in said.holds] == ["slots"]
    assert pressure == {}
    assert known is not None
    assert noted is not None
    assert known.known == noted.known, "learned capacities are kept for the next dispatcher that measures"
