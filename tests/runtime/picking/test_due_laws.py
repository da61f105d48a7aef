"""Laws of tasks that come due while others wait: they start in order, and no other lane is read for them."""

from __future__ import annotations

import random

import pytest

from taskmill import Context, Domain, RetryLater, Scheduler
from taskmill.model.turn import Turn, TurnResult
from taskmill.policy import aging
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.repetition import seeds


@pytest.mark.parametrize("seed", seeds(3))
async def test_no_task_starts_before_one_that_is_due_and_comes_first(
    taskmill_scheduler: SchedulerFactory,
    any_store: str,
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    # A small front, so that lanes are read, forgotten and found again all the time.
    monkeypatch.setattr(aging, "LARGEST_FRONT", 8)
    monkeypatch.setattr(aging, "SMALLEST_FRONT", 2)
    monkeypatch.setattr(aging, "MOST_IN_SIGHT", 32)
    chance = random.Random(seed)
    domain = Domain("d")
    waiting: dict[int, tuple[int, tuple[int, int, int]]] = {}
    """When each task is due, and its rank: priority, start of waiting, id."""
    ran: list[int] = []
    tries: dict[int, int] = {}

    async def work(ctx: Context, failures: int) -> None:
        id, now = ctx.task.id, manual_clock.now_ms()
        _, rank = waiting.pop(id)
        first = min((rank for due, rank in waiting.values() if due < now), default=rank)
        assert rank <= first, f"{id} passes over {first}"
        await manual_clock.sleep(chance.choice([0, 0.001, 0.004, 0.05]))
        if tries.setdefault(id, 0) < failures:
            tries[id] += 1
            delay = chance.choice([1, 3, 40])
            waiting[id] = manual_clock.now_ms() + delay, rank
            raise RetryLater("again", after=delay / 1000)
        ran.append(id)

    types = [domain.task(name=name)(work) for name in ("one", "two")]
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)

    async def submit() -> None:
        delay, priority = chance.choice([0, 0, 0, 1, 5, 20, 100]), chance.randint(1, 3)
        queued_at = manual_clock.now_ms() + delay
        task = chance.choice(types).options(priority=priority, run_after=delay / 1000)
        handle = await task.submit(chance.choice([0, 0, 1, 2]))
        waiting[handle.id] = queued_at, (priority, queued_at, handle.id)

    for _ in range(60):
        await submit()
    async with scheduler.running():
        for _ in range(60):
            await submit()
            await manual_clock.advance(chance.choice([0, 0.001, 0.01, 0.03]))
        await manual_clock.advance(60)
    assert waiting == {}
    assert sorted(ran) == sorted(tries)


@pytest.mark.parametrize("retried", [False, True], ids=["due", "retried"])
async def test_a_task_that_comes_due_makes_no_other_lane_be_read(
    taskmill_scheduler: SchedulerFactory,
    any_store: str,
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    retried: bool,
) -> None:
    domain, held = Domain("d"), Domain("held")
    started: list[str] = []

    @domain.task
    async def work(ctx: Context, word: str) -> None:
        started.append(word)
        if retried and ctx.attempt == 1:
            raise RetryLater("again", after=1)

    @held.task
    async def wait(n: int) -> None:
        """Do nothing; each of many tasks waits in its own lane."""

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain, held])
    await scheduler.domain("held").pause()
    await scheduler.submit_many([wait.options(group=f"g{n}").prepare(n) for n in range(100)])
    read = _lanes_read(scheduler, monkeypatch)
    async with scheduler.running():
        await manual_clock.advance(1)
        before = sum(read)
        for n in range(10):
            await work.options(group=f"g{n}", run_after=0 if retried else 1).submit(f"{n}")
            await manual_clock.advance(2)
        after = sum(read)
    assert before >= 100
    assert len(started) == (20 if retried else 10)
    assert after == before


def _lanes_read(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each later turn appends the number of lanes that it reads."""
    read: list[int] = []
    turn = scheduler._store.turn

    async def counted(planned: Turn) -> TurnResult:
        result = await turn(planned)
        read.append(len(result.fronts))
        return result

    monkeypatch.setattr(scheduler._store, "turn", counted)
    return read
