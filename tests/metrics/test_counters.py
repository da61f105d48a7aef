"""Events, waits, runs, aging and transactions are counted, with and without listeners."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import taskmill.events
from taskmill import Aging, Context, Domain, Priority, Retry, RetryLater
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.metrics.scraping import Scrape


async def test_submissions_starts_and_endings_are_counted_by_kind(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def work(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    scrape = Scrape(scheduler)
    await scheduler.submit_many([work.prepare(False) for _ in range(3)] + [work.prepare(True)])
    await work.options(run_after=60).submit(False)
    assert scrape.events("TaskSubmitted") == 5
    assert scrape.events("TaskDispatched") == 0
    await scheduler.run_until_idle()
    counts = [scrape.events(kind) for kind in ("TaskDispatched", "TaskCompleted", "TaskFailed", "TaskDeadLettered")]
    assert counts == [4, 3, 1, 1]


async def test_counts_are_the_same_with_and_without_listeners(taskmill_scheduler: SchedulerFactory) -> None:
    async def counted(listens: bool) -> dict[tuple[str, ...], float]:
        domain = Domain("d")

        @domain.task
        async def work(n: int) -> None:
            pass

        scheduler = await taskmill_scheduler(domains=[domain])
        scrape = Scrape(scheduler)
        events = scheduler.events() if listens else None
        first = await work.submit(1)
        await work.options(depends_on=[first]).submit(2)
        await scheduler.run_until_idle()
        if events is not None:
            await events.aclose()
        return scrape.all("taskmill_events_total")

    silent, heard = await counted(False), await counted(True)
    assert silent == heard
    assert silent[("TaskBlocked",)] == silent[("TaskUnblocked",)] == 1


async def test_every_kind_of_event_has_a_counter_from_the_start(taskmill_scheduler: SchedulerFactory) -> None:
    kinds = {*taskmill.events.__all__} - {"Event", "TaskEvent", "GroupEvent"}
    scrape = Scrape(await taskmill_scheduler())
    assert scrape.all("taskmill_events_total") == {(kind,): 0.0 for kind in kinds}


async def test_a_listener_that_is_too_slow_shows_in_the_count_of_missed_events(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taskmill.observe.bus.CAPACITY", 2)
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None:
        pass

    scheduler = await taskmill_scheduler(domains=[domain])
    scrape = Scrape(scheduler)
    events = scheduler.events()
    await scheduler.submit_many([work.prepare(n) for n in range(5)])
    for _ in range(3):
        await anext(events)
    assert scrape.events("EventsMissed") == 1


async def test_the_wait_for_the_first_start_is_measured_by_group(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d", retry=Retry.constant(3, 5))

    @domain.task
    async def work(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    scrape = Scrape(scheduler)
    await work.options(group="late").submit(True)
    await work.options(run_after=40).submit(False)
    await manual_clock.advance(20)
    async with scheduler.running():
        await manual_clock.advance(60)
    name = "taskmill_task_queue_wait_seconds"
    assert scrape.events("TaskDispatched") == 5
    assert (scrape(f"{name}_count", group="late"), scrape(f"{name}_sum", group="late")) == (1, 20)
    assert (scrape(f"{name}_count", group=""), scrape(f"{name}_sum", group="")) == (1, 0), (
        "counted from when it was due"
    )
    assert scrape(f"{name}_bucket", group="late", le="10.0") == 0
    assert scrape(f"{name}_bucket", group="late", le="30.0") == 1


async def test_runs_are_measured_by_type_and_by_what_became_of_them(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def work(seconds: float, tries: int = 1) -> None:
        await manual_clock.sleep(seconds)

    @domain.task(retry=Retry.constant(1, 1))
    async def twice(ctx: Context) -> None:
        await manual_clock.sleep(2)
        if ctx.task.attempt == 1:
            raise RetryLater("not yet")

    @domain.task
    async def family(ctx: Context) -> None:
        await manual_clock.sleep(1)
        await ctx.spawn(work.prepare(4))

    scheduler = await taskmill_scheduler(domains=[domain])
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await work.submit(3)
        await twice.submit()
        await family.submit()
        stopped = await work.submit(100)
        await manual_clock.advance(10)
        await stopped.cancel()
        await manual_clock.advance(1)
    sums = scrape.all("taskmill_task_duration_seconds_sum")
    assert sums == {
        ("completed", "d::work"): 7,
        ("cancelled", "d::work"): 10,
        ("retried", "d::twice"): 2,
        ("completed", "d::twice"): 2,
        ("waiting", "d::family"): 1,
    }


async def test_an_attempt_that_fails_before_its_children_have_ended_is_measured_once(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def child() -> None:
        await manual_clock.sleep(5)

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.prepare())
        await manual_clock.sleep(2)
        raise ValueError("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    scrape = Scrape(scheduler)
    handle = await parent.submit()
    async with scheduler.running():
        await manual_clock.advance(30)
    record = await handle.wait()
    durations = scrape.all("taskmill_task_duration_seconds_count")
    assert {key: count for key, count in durations.items() if key[1] == "d::parent"} == {
        (record.ending, "d::parent"): 1
    }


async def test_a_preempted_attempt_is_measured_as_such(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def work(seconds: float) -> None:
        await manual_clock.sleep(seconds)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    scrape = Scrape(scheduler)
    async with scheduler.running():
        await work.submit(10)
        await manual_clock.advance(4)
        await work.options(priority=Priority.CRITICAL).submit(1)
        await manual_clock.advance(20)
    assert scrape("taskmill_task_duration_seconds_sum", type="d::work", ending="preempted") == 4
    assert (scrape.events("TaskPreempted"), scrape.events("TaskResumed")) == (1, 1)


async def test_each_line_that_a_task_ages_past_is_a_promotion(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    release = asyncio.Event()

    @domain.task
    async def work(n: int) -> None:
        await release.wait()

    aging = Aging(grace=60, interval=1, ceiling=Priority.HIGH)
    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1, aging=aging)
    scrape = Scrape(scheduler)
    seen: list[float] = []
    async with scheduler.running():
        await scheduler.submit_many([work.options(priority=Priority.LOW).prepare(n) for n in range(3)])
        for seconds in (30, 200, 200):
            await manual_clock.advance(seconds)
            seen.append(scrape("taskmill_aging_promotions_total"))
        release.set()
        await manual_clock.advance(0)
    assert seen[0] == 0
    assert seen[-1] == 4, "two tasks wait, and each passes NORMAL and HIGH"
    assert scrape.events("TaskAged") == 4


async def test_transactions_and_syncs_are_measured(taskmill_scheduler: SchedulerFactory, any_store: str) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None:
        pass

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    scrape = Scrape(scheduler)
    await asyncio.gather(*(scheduler.pause_recurring(n) for n in range(20)), return_exceptions=True)
    assert scrape("taskmill_store_commit_batch_size_sum") == 20
    assert scrape("taskmill_store_commit_batch_size_count") < 20, "requests of one moment share a transaction"
    await work.submit(1)
    await scheduler.submit_many([work.prepare(n) for n in range(200)])
    await scheduler.run_until_idle()
    assert scrape("taskmill_store_commit_batch_size_sum") > 20
    assert scrape("taskmill_store_commit_seconds_count") == scrape("taskmill_store_commit_batch_size_count")
    assert scrape("taskmill_store_commit_seconds_sum") > 0
    syncs = scrape("taskmill_store_sync_seconds_count")
    # PostgreSQL syncs its commits to the disk itself.
    assert (syncs > 0) == any_store.endswith("tasks.db")


async def test_reading_is_no_transaction(taskmill_scheduler: SchedulerFactory, any_store: str) -> None:
    scheduler = await taskmill_scheduler(store=any_store)
    scrape = Scrape(scheduler)
    await scheduler.snapshot()
    await scheduler.count()
    assert scrape("taskmill_store_commit_seconds_count") == 0


@pytest.mark.parametrize("when", ["before it opens", "while it is open", "while it runs"])
async def test_counting_begins_when_the_collector_is_made(manual_clock: ManualClock, when: str) -> None:
    from taskmill import Scheduler

    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None:
        pass

    scheduler = Scheduler(domains=[domain], clock=manual_clock)
    scrape: Scrape | None = Scrape(scheduler) if when == "before it opens" else None
    async with scheduler:
        scrape = Scrape(scheduler) if when == "while it is open" else scrape
        async with scheduler.running():
            await manual_clock.advance(0)
            scrape = Scrape(scheduler) if when == "while it runs" else scrape
            await work.submit(1)
            await manual_clock.advance(timedelta(seconds=1))
    assert scrape is not None
    assert (scrape.events("TaskSubmitted"), scrape.events("TaskCompleted")) == (1, 1)
    assert scrape("taskmill_store_commit_seconds_count") > 0
    assert scrape("taskmill_dispatching") == 0


async def test_a_scheduler_that_is_opened_again_counts_on(manual_clock: ManualClock) -> None:
    from taskmill import Scheduler

    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None:
        pass

    scheduler = Scheduler(domains=[domain], clock=manual_clock)
    scrape = Scrape(scheduler)
    for _ in range(2):
        async with scheduler:
            await work.submit(1)
    assert scrape.events("TaskSubmitted") == 2


async def test_all_collectors_of_a_scheduler_show_the_same(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None:
        pass

    scheduler = await taskmill_scheduler(domains=[domain])
    first = Scrape(scheduler)
    await work.submit(1)
    second = Scrape(scheduler)
    await work.submit(2)
    assert first.events("TaskSubmitted") == second.events("TaskSubmitted") == 2


async def test_very_many_groups_are_counted_together_beyond_a_bound(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("taskmill.observe.counters", "taskmill.runtime.gauges"):
        monkeypatch.setattr(f"{module}.MOST_NAMES", 3)
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None:
        pass

    scheduler = await taskmill_scheduler(domains=[domain])
    scrape = Scrape(scheduler)
    await scheduler.submit_many([work.options(group=f"g{n}").prepare(n) for n in range(8)])
    await scheduler.run_until_idle()
    counts = scrape.all("taskmill_task_queue_wait_seconds_count")
    assert sorted(counts.values()) == [1, 1, 1, 5]
    assert counts[("(other)",)] == 5
