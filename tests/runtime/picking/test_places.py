"""The replacement of a waiting task has exactly the place of the replaced one, even within one millisecond."""

from __future__ import annotations

import random

import pytest

from taskmill import Aging, Domain, Scheduler
from taskmill.policy import aging
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

BATCH = 100
domain = Domain("queue")
ran: list[tuple[int, int]] = []


@domain.task(key=lambda n, version: str(n), on_duplicate="supersede")
async def work(n: int, version: int) -> None:
    ran.append((n, version))


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.fixture
async def queue(taskmill_scheduler: SchedulerFactory, any_store: str) -> Scheduler:
    """A batch of tasks with the same submission millisecond."""
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    await scheduler.submit_many([work.prepare(n, 1) for n in range(BATCH)])
    return scheduler


@pytest.mark.parametrize("later", [0, 1, 5000])
async def test_the_replacement_of_the_first_of_a_batch_runs_first(
    queue: Scheduler, manual_clock: ManualClock, later: int
) -> None:
    await manual_clock.advance(later / 1000)
    await work.submit(0, 2)
    await queue.run_until_idle()
    assert ran == [(0, 2), *((n, 1) for n in range(1, BATCH))]


@pytest.mark.parametrize("aging", [None, Aging(grace=1, interval=1)])
async def test_whatever_is_replaced_in_whatever_order_the_order_stays(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock, aging: Aging | None
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1, aging=aging)
    await scheduler.submit_many([work.prepare(n, 1) for n in range(BATCH)])
    chance = random.Random(1)
    versions = dict.fromkeys(range(BATCH), 1)
    for at in (0, 0, 0.001, 0.4):
        await manual_clock.advance(at)
        for n in chance.sample(range(BATCH), 60):
            versions[n] += 1
            await work.submit(n, versions[n])
    await scheduler.run_until_idle()
    assert ran == list(versions.items())


async def test_a_replacement_inside_the_same_batch_has_the_place_of_the_first(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    batches = [[(0, 1), (1, 1), (2, 1)], [(2, 2), (0, 2), (3, 1)], [(1, 2), (0, 3)]]
    for batch in batches:
        await scheduler.submit_many([work.prepare(*each) for each in batch])
    await scheduler.run_until_idle()
    assert ran == [(0, 3), (1, 2), (2, 2), (3, 1)]


@pytest.mark.parametrize("later", [0, 1])
async def test_explain_counts_the_place_and_not_the_id(queue: Scheduler, manual_clock: ManualClock, later: int) -> None:
    await manual_clock.advance(later / 1000)
    replacement = await work.submit(40, 2)
    last = await queue.find("queue::work", str(BATCH - 1))
    assert last is not None
    assert (await replacement.explain()).ahead == 40
    assert (await queue.explain(last.id)).ahead == BATCH - 1


async def test_the_place_survives_a_restart(taskmill_scheduler: SchedulerFactory, any_store: str) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    await scheduler.submit_many([work.prepare(n, 1) for n in range(5)])
    await work.submit(1, 2)
    await work.submit(0, 2)
    if any_store != ":memory:":
        await scheduler.close()
        scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    await scheduler.run_until_idle()
    assert ran == [(0, 2), (1, 2), (2, 1), (3, 1), (4, 1)]


async def test_a_replacement_far_beyond_what_is_in_sight_keeps_its_place(
    taskmill_scheduler: SchedulerFactory, any_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aging, "LARGEST_FRONT", 20)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    many = 3 * aging.LARGEST_FRONT
    await scheduler.submit_many([work.prepare(n, 1) for n in range(many)])
    await work.submit(many - 2, 2)
    await scheduler.run_until_idle()
    assert ran == [*((n, 1) for n in range(many - 2)), (many - 2, 2), (many - 1, 1)]
