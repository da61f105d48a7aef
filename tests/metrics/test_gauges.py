"""Gauges are read from the dispatcher's memory, by any thread, without using the store or the loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from taskmill import Aging, ConfigError, Domain, Group, Priority, Scheduler, blocking
from taskmill.metrics import Collector
from taskmill.runtime.gauges import level_of
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.both_engines import Engine
from tests.metrics.scraping import Scrape
from tests.metrics.test_holds import Bench


async def test_slots_and_what_runs_and_waits_are_shown(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    scheduler = await taskmill_scheduler(domains=[bench.domain], max_concurrency=3)
    scrape = Scrape(scheduler)
    names = ("taskmill_dispatching", "taskmill_slots", "taskmill_slots_taken")
    stopped = [scrape(name) for name in names]
    async with scheduler.running():
        await scheduler.submit_many([*bench.prepare("", 2), *bench.prepare("a", 2, Priority.LOW)])
        await manual_clock.advance(0)
        running = [scrape(name) for name in names]
        by_type = scrape.all("taskmill_tasks_running")
        waiting, taken = scrape.all("taskmill_tasks_waiting"), scrape.all("taskmill_group_slots_taken")
        next_priority = scrape.all("taskmill_group_next_priority")
        await scheduler.set_max_concurrency(5)
        slots = scrape("taskmill_slots")
        await bench.finish(manual_clock)
    assert (stopped, running, slots) == ([0, 3, 0], [1, 3, 3], 5)
    assert by_type == {("d::work",): 3}
    assert (waiting, taken) == ({("",): 0, ("a",): 1}, {("",): 2, ("a",): 1})
    assert next_priority == {("a",): Priority.LOW}


async def test_effective_priorities_are_shown_by_level_as_tasks_age(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    aging = Aging(grace=10, interval=1, ceiling=Priority.HIGH)
    scheduler = await taskmill_scheduler(domains=[bench.domain], max_concurrency=1, aging=aging)
    scrape = Scrape(scheduler)

    def levels() -> dict[tuple[str, ...], float]:
        return {key: count for key, count in scrape.all("taskmill_task_effective_priority").items() if count}

    seen: list[dict[tuple[str, ...], float]] = []
    async with scheduler.running():
        await scheduler.submit_many([*bench.prepare("", 1), *bench.prepare("a", 1, Priority.LOW)])
        await manual_clock.advance(0)
        seen.append(levels())
        await manual_clock.advance(10 + 64)
        seen.append(levels())
        bench.let_go(1)
        await manual_clock.advance(0)
        seen.append(levels())
        await bench.finish(manual_clock)
    assert seen == [
        {("normal", "running"): 1, ("low", "next"): 1},
        {("normal", "running"): 1, ("normal", "next"): 1},
        {("normal", "running"): 1},
    ]


@pytest.mark.parametrize(
    ("effective", "level"),
    [(0, "critical"), (1, "high"), (64, "high"), (65, "normal"), (128, "normal"), (192, "low"), (193, "idle")],
)
@pytest.mark.one_engine("no store is opened")
def test_a_level_counts_as_reached_where_aging_crosses_it(effective: int, level: str) -> None:
    assert level_of(effective) == level


async def test_shares_their_use_and_what_is_lent_are_shown(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    groups = {"a": Group(weight=3, cap=12), "b": Group(cap=6, min_slots=2)}
    scheduler = await taskmill_scheduler(domains=[bench.domain], groups=groups, max_concurrency=16)
    scrape = Scrape(scheduler)
    excess = "taskmill_group_excess_redistributed_total"
    async with scheduler.running():
        await scheduler.submit_many([*bench.prepare("a", 50), *bench.prepare("b", 3)])
        await manual_clock.advance(0)
        allocation, used = (
            scrape.all("taskmill_group_weight_allocation"),
            scrape.all("taskmill_group_weight_utilization"),
        )
        lent = scrape.all(excess)
        await scheduler.submit_many(bench.prepare("b", 1))
        await manual_clock.advance(0)
        unchanged = scrape.all(excess)
        await bench.finish(manual_clock)
    assert allocation == {("a",): 12, ("b",): 3}
    assert used == {("a",): 1, ("b",): 1}
    assert lent == {("a",): 2}, "by weight alone it is 10 and 6"
    assert unchanged == lent
    assert scrape.events("GroupAllocationChanged") > 0


async def test_a_group_that_holds_less_than_its_share_shows_it(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    scheduler = await taskmill_scheduler(
        domains=[bench.domain], groups={"a": Group(weight=3), "b": Group()}, max_concurrency=4
    )
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await scheduler.submit_many(bench.prepare("b", 8))
        await manual_clock.advance(0)
        await scheduler.submit_many(bench.prepare("a", 8))
        await manual_clock.advance(0)
        allocation, used = (
            scrape.all("taskmill_group_weight_allocation"),
            scrape.all("taskmill_group_weight_utilization"),
        )
        await bench.finish(manual_clock)
    assert allocation == {("a",): 3, ("b",): 1}
    assert used == {("a",): 0, ("b",): 4}


async def test_without_weights_there_are_no_shares_to_show(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    bench = Bench()
    scheduler = await taskmill_scheduler(domains=[bench.domain])
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await scheduler.submit_many(bench.prepare("a", 3))
        await manual_clock.advance(0)
        allocation = scrape.all("taskmill_group_weight_allocation")
        await bench.finish(manual_clock)
    assert allocation == {}


async def test_the_idlest_of_very_many_groups_are_summed_up(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskmill.runtime.gauges.MOST_NAMES", 2)
    bench = Bench()
    scheduler = await taskmill_scheduler(domains=[bench.domain], max_concurrency=2)
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await scheduler.submit_many([task for n in range(6) for task in bench.prepare(f"g{n}", 2)])
        await manual_clock.advance(0)
        waiting, taken = scrape.all("taskmill_tasks_waiting"), scrape.all("taskmill_group_slots_taken")
        await bench.finish(manual_clock)
    assert (waiting.pop(("(other)",)), taken.pop(("(other)",))) == (8, 0)
    assert [*waiting.values()] == [*taken.values()] == [1, 1]


async def test_a_scrape_needs_neither_the_loop_nor_the_store(tmp_path: object) -> None:
    """The loop is kept busy here until another thread has scraped: if it was needed, this would never end."""
    domain = Domain("d")
    scraped: list[float] = []

    @domain.task
    async def hog() -> None:
        def scrape_now() -> None:
            scraped.append(scrape("taskmill_slots_taken"))

        thread = threading.Thread(target=scrape_now)
        thread.start()
        thread.join(20)

    async with Scheduler(f"{tmp_path}/tasks.db", domains=[domain]) as scheduler:
        scrape = Scrape(scheduler)
        await hog.submit()
        await scheduler.run_until_idle()
    assert scraped == [1]


async def test_scraping_all_the_time_disturbs_nothing(tmp_path: object, engine: Engine) -> None:
    domain, count = Domain("d"), engine.fewer(500)

    @domain.task
    async def work(n: int) -> None:
        await asyncio.sleep(0)

    groups = {f"g{n}": Group(weight=n + 1) for n in range(20)}
    async with Scheduler(f"{tmp_path}/tasks.db", domains=[domain], groups=groups) as scheduler:
        scrape, over = Scrape(scheduler), threading.Event()

        def scrape_on() -> int:
            times = 0
            while not over.is_set():
                scrape.all("taskmill_tasks_waiting")
                times += 1
            return times

        with ThreadPoolExecutor(2) as threads:
            scrapers = [threads.submit(scrape_on) for _ in range(2)]
            try:
                async with scheduler.running():
                    for at in range(0, count, 100):
                        await scheduler.submit_many(
                            [work.options(group=f"g{n % 40}").prepare(n) for n in range(at, at + 100)]
                        )
                await scheduler.run_until_idle()
            finally:
                over.set()
        assert min(scraper.result() for scraper in scrapers) > 0
        assert scrape.events("TaskCompleted") == count


def test_the_blocking_scheduler_is_measured_alike() -> None:
    domain = Domain("d")

    @domain.task
    def work(n: int) -> int:
        return n

    with blocking.Scheduler(domains=[domain]) as scheduler:
        scrape = Scrape(scheduler)
        scheduler.submit(work.prepare(1))
        scheduler.run_until_idle()
        assert scrape.events("TaskCompleted") == 1


@pytest.mark.parametrize("wrong", [None, "tasks.db", Scheduler])
@pytest.mark.one_engine("no store is opened")
def test_a_collector_wants_a_scheduler(wrong: object) -> None:
    with pytest.raises(ConfigError, match="scheduler must be a Scheduler"):
        Collector(wrong)  # type: ignore[arg-type]
