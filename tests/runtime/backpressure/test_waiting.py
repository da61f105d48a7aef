"""Tasks wait for the machine: for pressure to fall, and for capacity for their IO."""

from __future__ import annotations

import asyncio
from pathlib import Path

from taskmill import Aging, Context, Domain, IoBudget, Priority, Reading, Scheduler, ThrottlePolicy
from taskmill.events import TaskPreempted
from taskmill.testing import ManualClock
from tests.runtime.backpressure.machine import CAPACITY, MB, Gate, PlayedMachine, a_scheduler, statuses, submit


async def test_under_pressure_less_urgent_tasks_wait_and_say_why(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    machine.pressures["cpu"] = 0.6
    async with a_scheduler(gate, clock, pressure=machine.sources()) as scheduler:
        low = await submit(scheduler, "low", priority=Priority.LOW)
        await submit(scheduler, "normal")
        async with scheduler.running():
            await clock.advance(5)
            said, started = await scheduler.explain(low), list(gate.started)
            shown = (await scheduler.snapshot()).pressure
            machine.pressures["cpu"] = 0.4
            await clock.advance(1)
            later = list(gate.started)
            for name in list(gate.running):
                gate.end(name)
    assert started == ["normal"]
    assert [hold.reason for hold in said.holds] == ["pressure"]
    assert "0.60 (cpu)" in str(said)
    assert "at most 0.50" in str(said)
    assert shown == {"cpu": 0.6}
    assert later == ["normal", "low"]


async def test_until_idle_waits_for_the_pressure_to_fall(machine: PlayedMachine, clock: ManualClock) -> None:
    machine.pressures["cpu"] = 0.9
    domain = Domain("d")
    ran: list[int] = []

    @domain.task
    async def note(i: int) -> None:
        ran.append(i)

    async with Scheduler(domains=[domain], pressure=machine.sources(), clock=clock) as scheduler:
        await note.submit(1)
        running = asyncio.create_task(scheduler.run_until_idle())
        await clock.advance(30)
        before = (list(ran), running.done())
        machine.pressures["cpu"] = 0.1
        await clock.advance(2)
        await running
    assert before == ([], False)
    assert ran == [1]


async def test_a_task_that_ages_past_the_limit_is_held_no_longer(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    machine.pressures["cpu"] = 0.6
    aging = Aging(grace=10, interval=1, step=8, ceiling=100)
    async with a_scheduler(gate, clock, pressure=machine.sources(), aging=aging) as scheduler:
        await submit(scheduler, "low", priority=Priority.LOW)
        async with scheduler.running():
            await clock.advance(9)
            before = list(gate.started)
            await clock.advance(2)
            after = list(gate.started)
            gate.end("low")
    assert (before, after) == ([], ["low"])


async def test_a_task_that_does_not_fit_beside_running_tasks_waits_for_them(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    async with (
        a_scheduler(gate, clock, resources=machine.resources(CAPACITY)) as scheduler,
        scheduler.running(),
    ):
        await submit(scheduler, "first", 100)
        await submit(scheduler, "second", 100)
        await submit(scheduler, "no budget")
        third = await submit(scheduler, "third", 10)
        await clock.advance(3)
        together, said = list(gate.started), await scheduler.explain(third)
        gate.end("first")
        await clock.advance(0)
        then = list(gate.started)
        for name in list(gate.running):
            gate.end(name)
    assert together == ["first", "no budget"]
    assert [hold.reason for hold in said.holds if hold.reason == "io"] or said.ahead
    assert then == ["first", "no budget", "second", "third"], "the order of the queue is kept"


async def test_one_task_may_always_run_however_large(machine: PlayedMachine, gate: Gate, clock: ManualClock) -> None:
    async with (
        a_scheduler(gate, clock, resources=machine.resources(CAPACITY)) as scheduler,
        scheduler.running(),
    ):
        await submit(scheduler, "huge", 100_000)
        await clock.advance(0)
        started = list(gate.started)
        gate.end("huge")
    assert started == ["huge"]


async def test_an_idle_disk_of_unknown_speed_holds_no_task(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    async with (
        a_scheduler(gate, clock, resources=machine.resources()) as scheduler,
        scheduler.running(),
    ):
        for i in range(4):
            await submit(scheduler, str(i), 500)
        await clock.advance(5)
        started = list(gate.started)
        for name in started:
            gate.end(name)
    assert started == ["0", "1", "2", "3"]


async def test_learned_capacity_survives_a_restart(
    machine: PlayedMachine, gate: Gate, clock: ManualClock, tmp_path: Path
) -> None:
    file, started = tmp_path / "tasks.db", []
    machine.reading = Reading(disk_write=50.0 * MB, disk_busy=1.0)
    async with (
        a_scheduler(gate, clock, file, resources=machine.resources()) as scheduler,
        scheduler.running(),
    ):
        await clock.advance(30)
    machine.reading = Reading()
    async with (
        a_scheduler(gate, clock, file, resources=machine.resources()) as scheduler,
        scheduler.running(),
    ):
        await submit(scheduler, "first", 60)
        await submit(scheduler, "second", 60)
        await clock.advance(0)
        started = list(gate.started)
        for name in list(gate.running):
            gate.end(name)
        await clock.advance(0)
        for name in list(gate.running):
            gate.end(name)
    assert started == ["first"], "80 MB fit"


async def test_the_io_of_a_type_is_learned_and_used(machine: PlayedMachine, clock: ManualClock, tmp_path: Path) -> None:
    domain = Domain("work")
    most, now = 0, 0

    @domain.task(io="learn")
    async def copy(ctx: Context, i: int) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        ctx.record_io(disk_write=90 * MB)
        ctx.record_io(disk_write=10 * MB, net_rx=5)
        await asyncio.sleep(0)
        now -= 1

    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain], resources=machine.resources(CAPACITY), clock=clock) as scheduler:
        first = await copy.submit(1)
        await scheduler.run_until_idle()
        record, stats = await first.wait(), await scheduler.stats("work::copy")
    async with Scheduler(file, domains=[domain], resources=machine.resources(CAPACITY), clock=clock) as scheduler:
        await scheduler.submit_many([copy.prepare(i) for i in range(4)])
        await scheduler.run_until_idle()
    assert record.actual_io == IoBudget(disk_write=100 * MB, net_rx=5)
    assert stats.avg_io == record.actual_io
    assert most == 1, "two of them would not fit"


async def test_high_pressure_preempts_running_tasks_until_it_has_fallen_far_enough(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    throttle = ThrottlePolicy([(Priority.LOW, 0.5)], preempt_above=0.9, resume_below=0.6)
    async with a_scheduler(gate, clock, pressure=machine.sources(), throttle=throttle) as scheduler:
        listener = scheduler.events(TaskPreempted)
        async with scheduler.running():
            low = await submit(scheduler, "low", priority=Priority.LOW)
            normal = await submit(scheduler, "normal")
            await clock.advance(1)
            machine.pressures["cpu"] = 0.95
            await clock.advance(1)
            pressed = await statuses(scheduler, low, normal)
            said = await scheduler.explain(low)
            machine.pressures["cpu"] = 0.7
            await clock.advance(5)
            between = await statuses(scheduler, low, normal)
            machine.pressures["cpu"] = 0.4
            await clock.advance(2)
            after = await statuses(scheduler, low, normal)
            event = await anext(aiter(listener))
            for name in list(gate.running):
                gate.end(name)
    assert pressed == ["paused", "running"]
    assert "at most 0.60" in str(said)
    assert between == ["paused", "running"]
    assert after == ["running", "running"]
    assert isinstance(event, TaskPreempted)
    assert event.task_id == low


async def test_a_task_preempted_for_pressure_returns_when_it_falls_whatever_else_runs(
    machine: PlayedMachine, gate: Gate, clock: ManualClock
) -> None:
    throttle = ThrottlePolicy([(Priority.LOW, 0.5)], preempt_above=0.9)
    async with (
        a_scheduler(gate, clock, pressure=machine.sources(), throttle=throttle, max_concurrency=2) as scheduler,
        scheduler.running(),
    ):
        low = await submit(scheduler, "low", priority=Priority.LOW)
        critical = await submit(scheduler, "critical", priority=Priority.CRITICAL)
        await clock.advance(1)
        machine.pressures["cpu"] = 0.95
        await clock.advance(1)
        pressed = await statuses(scheduler, low, critical)
        machine.pressures["cpu"] = 0.1
        await clock.advance(1)
        calm = await statuses(scheduler, low, critical)
        other = await submit(scheduler, "other", priority=Priority.CRITICAL)
        await clock.advance(1)
        preempted = await statuses(scheduler, low, critical, other)
        said = await scheduler.explain(low)
        machine.pressures["cpu"] = 0.95
        await clock.advance(1)
        machine.pressures["cpu"] = 0.1
        await clock.advance(1)
        gate.end("other")
        await clock.advance(1)
        still = await statuses(scheduler, low, critical)
        for name in list(gate.running):
            gate.end(name)
        await clock.advance(1)
        for name in list(gate.running):
            gate.end(name)
    assert pressed == ["paused", "running"]
    assert calm == ["running", "running"], "the pressure has fallen, and there is a slot"
    assert preempted == ["paused", "running", "running"]
    assert "for a more urgent task" in str(said)
    assert still == ["paused", "running"], "it stays preempted while the more urgent task runs, at any pressure"
