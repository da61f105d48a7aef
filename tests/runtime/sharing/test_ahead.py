"""``explain`` counts the tasks ahead exactly, up to a limit, and says if it has stopped there."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from taskmill import Aging, Domain, Scheduler, TaskRecord
from taskmill.store.sql import ahead, connection
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

AGING = Aging(grace=60, interval=60, step=16, ceiling=64)

domain = Domain("d")


@domain.task
async def work(n: int) -> None:
    """Do nothing."""


@domain.task(on_duplicate="supersede")
async def other(n: int) -> None:
    """Do nothing; tasks of this type are replaced and keep their places."""


async def fill(scheduler: Scheduler, clock: ManualClock, seed: int, groups: int) -> None:
    chance = random.Random(seed)
    for n in range(40):
        group, priority = f"g{chance.randrange(groups)}", chance.choice([100, 128, 192])
        if chance.random() < 0.4:
            await other.options(group=group, priority=priority, key=str(chance.randrange(4))).submit(n)
        else:
            await work.options(group=group, priority=priority).submit(n)
        await clock.advance(chance.choice([0, 1, 40]))


def expected(asked: TaskRecord, tasks: list[TaskRecord], places: dict[int, int]) -> int:
    """Count by the definition: more urgent tasks of all groups, and groups of equal urgency in turn."""
    more, equal = 0, defaultdict[str, int](int)
    for task in tasks:
        if task.effective_priority < asked.effective_priority:
            more += 1
        elif task.effective_priority == asked.effective_priority and (
            task.group != asked.group or places[task.id] < places[asked.id]
        ):
            equal[task.group] += 1
    own = equal.pop(asked.group, 0)
    return more + own + sum(min(number, own) for number in equal.values())


@pytest.mark.parametrize("at_once", [1, 16])
@pytest.mark.parametrize("aging", [None, AGING])
@pytest.mark.parametrize("groups", [3, 12], ids=["several lanes in a group", "one lane in some groups"])
@pytest.mark.parametrize("seed", range(3))
async def test_the_number_of_tasks_ahead_follows_from_urgency_place_and_turns(
    taskmill_scheduler: SchedulerFactory,
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    aging: Aging | None,
    seed: int,
    groups: int,
    at_once: int,
) -> None:
    monkeypatch.setattr(ahead, "FIRST_COUNTED", at_once)
    scheduler = await taskmill_scheduler(domains=[domain], aging=aging)
    await fill(scheduler, manual_clock, seed, groups)
    tasks = await scheduler.tasks()
    first_of: dict[tuple[str, str | None], int] = {}
    for record in await scheduler.history():
        first_of[record.type, record.key] = min(record.id, first_of.get((record.type, record.key), record.id))
    places = {task.id: first_of.get((task.type, task.key), task.id) if task.key else task.id for task in tasks}
    for task in tasks:
        why = await scheduler.explain(task.id)
        assert (why.ahead, why.ahead_is_exact) == (expected(task, tasks, places), True), task


@pytest.mark.parametrize("groups", [1, 3])
async def test_beyond_the_limit_it_says_that_there_are_more(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    monkeypatch.setattr(ahead, "MOST_AHEAD", 5)
    await taskmill_scheduler(domains=[domain])
    handles = [await work.options(group=f"g{n % groups}").submit(n) for n in range(12)]
    found = [await handle.explain() for handle in handles]
    exact = [0, 1, 2, 3, 4, 5] if groups == 1 else [0, 0, 0, 3, 3, 3]
    assert [(why.ahead, why.ahead_is_exact) for why in found] == [
        *((number, True) for number in exact),
        *[(5, False)] * 6,
    ]
    assert "more than 5 tasks start before it" in str(found[-1])
    assert "more than" not in str(found[5])


async def test_lanes_are_not_visited_once_the_limit_is_passed(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "MOST_AHEAD", 20)
    monkeypatch.setattr(ahead, "FIRST_COUNTED", 4)
    visited: list[int] = []

    def encoded(rows: list[object]) -> str:
        visited.append(len(rows))
        return connection.encoded(rows)

    monkeypatch.setattr(ahead, "encoded", encoded)
    scheduler = await taskmill_scheduler(domains=[domain])
    # Two lanes of a group and type: the kept numbers do not tell how many tasks each of them has.
    options = [work.options(group=f"g{n % 200}", priority=n // 200 % 2) for n in range(2_000)]
    await scheduler.submit_many([each.prepare(n) for n, each in enumerate(options)])
    last = await work.options(group="last").submit(0)
    why = await last.explain()
    assert (why.ahead, why.ahead_is_exact) == (20, False)
    assert 0 < sum(visited) <= 20, visited


async def test_a_lane_is_not_counted_if_its_number_of_tasks_is_kept(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await taskmill_scheduler(domains=[domain], aging=AGING)
    for n in range(12):
        await work.options(group=f"g{n % 3}", priority=n % 3).submit(n)
    last = await work.options(group="last").submit(0)
    visited: list[str] = []

    def encoded(rows: list[tuple[int, str]]) -> str:
        visited.extend(row[1] for row in rows)
        return connection.encoded(rows)

    monkeypatch.setattr(ahead, "encoded", encoded)
    assert (await last.explain()).ahead == 12
    # Its own lane is counted up to its place.
    assert visited == ["last"]


async def test_tasks_whose_age_differs_from_their_place_are_read_up_to_a_limit(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await taskmill_scheduler(domains=[domain], aging=AGING)
    for round in range(2):
        for n in range(6):
            await other.options(key=str(n)).submit(round)
        await manual_clock.advance(10)
    last = await other.submit(0)
    assert (await last.explain()).ahead == 6
    monkeypatch.setattr(ahead, "MOST_LOOKED_AT", 3)
    why = await last.explain()
    assert (why.ahead, why.ahead_is_exact) == (3, False)
