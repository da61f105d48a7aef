"""The reason why a waiting task is held is counted once, when the hold begins, however many turns it lasts."""

from __future__ import annotations

import asyncio

from taskmill import Domain, Group, IoBudget, Priority, RateLimit, Submission
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.metrics.scraping import Scrape
from tests.runtime.backpressure.machine import PlayedMachine


class Bench:
    """A domain whose tasks run until the test releases them."""

    def __init__(self, name: str = "d") -> None:
        self.domain = Domain(name)
        self.gates: list[asyncio.Event] = []

        @self.domain.task
        async def work(n: int) -> None:
            gate = asyncio.Event()
            self.gates.append(gate)
            await gate.wait()

        self.work = work

    def prepare(self, group: str, count: int, priority: int = Priority.NORMAL) -> list[Submission]:
        return [self.work.options(group=group, priority=priority).prepare(n) for n in range(count)]

    def let_go(self, count: int | None = None) -> None:
        for gate in [gate for gate in self.gates if not gate.is_set()][:count]:
            gate.set()

    async def finish(self, clock: ManualClock) -> None:
        for _ in range(20):
            self.let_go()
            await clock.advance(0)


async def test_no_free_slot_is_one_hold_until_nothing_waits(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    scheduler = await taskmill_scheduler(domains=[bench.domain], max_concurrency=2)
    scrape = Scrape(scheduler)
    seen: list[dict[str, float]] = []
    async with scheduler.running():
        await scheduler.submit_many(bench.prepare("", 2))
        await manual_clock.advance(0)
        seen.append(scrape.denials())
        await scheduler.submit_many(bench.prepare("", 4))
        await manual_clock.advance(0)
        for _ in range(3):
            bench.let_go(1)
            await manual_clock.advance(0)
        seen.append(scrape.denials())
        await bench.finish(manual_clock)
        await scheduler.submit_many(bench.prepare("", 3))
        await manual_clock.advance(0)
        seen.append(scrape.denials())
        await bench.finish(manual_clock)
    assert seen == [{}, {"slots": 1}, {"slots": 2}]


async def test_a_group_at_its_cap_is_one_hold_while_its_tasks_come_and_go(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    scheduler = await taskmill_scheduler(domains=[bench.domain], groups={"a": Group(cap=1)})
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await scheduler.submit_many(bench.prepare("a", 6))
        await manual_clock.advance(0)
        for _ in range(3):
            bench.let_go(1)
            await manual_clock.advance(0)
        first = scrape.denials()
        await bench.finish(manual_clock)
        await scheduler.submit_many(bench.prepare("a", 2))
        await manual_clock.advance(0)
        second = scrape.denials()
        await bench.finish(manual_clock)
    assert (first, second) == ({"group_cap": 1}, {"group_cap": 2})


async def test_the_cap_of_a_domain_holds(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    bench = Bench()
    scheduler = await taskmill_scheduler(domains=[bench.domain])
    await scheduler.domain("d").set_max_concurrency(1)
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await scheduler.submit_many(bench.prepare("a", 3))
        await manual_clock.advance(0)
        seen = scrape.denials()
        await bench.finish(manual_clock)
    assert seen == {"domain_cap": 1}


async def test_each_time_that_permits_run_out_a_hold_begins(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    groups = {"a": Group(rate=RateLimit(1, 10))}
    scheduler = await taskmill_scheduler(domains=[bench.domain], groups=groups)
    scrape = Scrape(scheduler)
    seen: list[dict[str, float]] = []
    async with scheduler.running():
        await scheduler.submit_many(bench.prepare("a", 3))
        await manual_clock.advance(5)
        seen.append(scrape.denials())
        await manual_clock.advance(30)
        seen.append(scrape.denials())
        await bench.finish(manual_clock)
    assert seen[0] == {"group_rate": 1}
    assert seen[1] == {"group_rate": 1}, "the new permit was taken in the same turn: the hold continued"


async def test_the_rate_of_a_type_holds(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    domain = Domain("d")

    @domain.task(rate=RateLimit(1, 10))
    async def work(n: int) -> None:
        pass

    scheduler = await taskmill_scheduler(domains=[domain])
    scrape = Scrape(scheduler)
    await scheduler.submit_many([work.prepare(n) for n in range(3)])
    async with scheduler.running():
        await manual_clock.advance(1)
        seen = scrape.denials()
        await manual_clock.advance(60)
    assert seen == {"type_rate": 1}


async def test_pauses_hold_what_waits_and_only_that(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    scheduler = await taskmill_scheduler(domains=[bench.domain])
    scrape = Scrape(scheduler)
    seen: list[dict[str, float]] = []
    paused: list[dict[tuple[str, ...], float]] = []
    async with scheduler.running():
        await scheduler.group("a").pause()
        await manual_clock.advance(0)
        seen.append(scrape.denials())
        await scheduler.submit_many(bench.prepare("a", 2))
        await manual_clock.advance(0)
        seen.append(scrape.denials())
        paused.append(scrape.all("taskmill_paused"))
        await scheduler.group("a").resume()
        await manual_clock.advance(0)
        await bench.finish(manual_clock)

        await scheduler.domain("d").pause()
        await scheduler.submit_many(bench.prepare("b", 2))
        await manual_clock.advance(0)
        seen.append(scrape.denials())
        await scheduler.domain("d").resume()
        await manual_clock.advance(0)
        await bench.finish(manual_clock)

        await scheduler.pause()
        await scheduler.submit_many(bench.prepare("", 1))
        await manual_clock.advance(0)
        seen.append(scrape.denials())
        paused.append(scrape.all("taskmill_paused"))
        await scheduler.resume()
        await manual_clock.advance(0)
        await bench.finish(manual_clock)
    counted = {"group_paused": 1.0, "domain_paused": 1.0, "scheduler_paused": 1.0}
    assert seen == [{}, *({reason: counted[reason] for reason in [*counted][:n]} for n in (1, 2, 3))]
    assert paused == [{("a", "group"): 1}, {("", "scheduler"): 1}]
    assert (scrape.events("GroupPaused"), scrape.events("GroupResumed")) == (1, 1)


async def test_a_group_that_has_its_share_is_held_by_it(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    groups = {"a": Group(weight=3), "b": Group()}
    scheduler = await taskmill_scheduler(domains=[bench.domain], groups=groups, max_concurrency=4)
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await scheduler.submit_many([*bench.prepare("a", 8), *bench.prepare("b", 8)])
        await manual_clock.advance(0)
        seen = scrape.denials()
        await bench.finish(manual_clock)
    assert seen == {"share": 2, "slots": 1}


async def test_tasks_without_a_handler_here_are_held(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, tmp_path: object
) -> None:
    bench = Bench()
    path = f"{tmp_path}/tasks.db"
    owner = await taskmill_scheduler(store=path, domains=[bench.domain])
    await owner.submit_many(bench.prepare("", 2))
    await owner.close()
    other = Bench("other")
    scheduler = await taskmill_scheduler(store=path, domains=[other.domain])
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await manual_clock.advance(0)
    assert scrape.denials() == {"no_handler": 1}


async def test_a_machine_that_is_pressed_or_full_holds_what_waits(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench, machine = Bench(), PlayedMachine()
    machine.pressures["cpu"] = 0.6
    scheduler = await taskmill_scheduler(
        domains=[bench.domain],
        pressure=machine.sources(),
        resources=machine.resources(IoBudget(disk_write=100)),
    )
    scrape = Scrape(scheduler)
    seen: list[dict[str, float]] = []
    async with scheduler.running():
        await scheduler.submit_many(bench.prepare("a", 2, Priority.LOW))
        await manual_clock.advance(3)
        seen.append(scrape.denials())
        pressure = scrape.all("taskmill_pressure")
        machine.pressures["cpu"] = 0.0
        await manual_clock.advance(3)
        await bench.finish(manual_clock)
        large = bench.work.options(io=IoBudget(disk_write=150))
        await scheduler.submit_many([large.prepare(n) for n in range(3)])
        await manual_clock.advance(3)
        seen.append(scrape.denials())
        await bench.finish(manual_clock)
    assert seen == [{"pressure": 1.0}, {"pressure": 1.0, "io": 1.0}]
    assert pressure == {("cpu",): 0.6}
