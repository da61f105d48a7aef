"""Many large results at once are stored in several turns."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Domain, Scheduler
from taskmill.model.turn import Turn, TurnResult
from taskmill.runtime import planning
from taskmill.testing.plugin import SchedulerFactory

LARGE = "x" * 300


async def test_no_turn_stores_more_than_an_engine_takes_and_none_starts_more_than_there_are_slots(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "MOST_TEXT", 1000)
    domain = Domain("d")
    all_run = asyncio.Barrier(20)
    at_work = [0]

    @domain.task
    async def large() -> str:
        at_work.append(at_work[-1] + 1)
        await all_run.wait()
        at_work.append(at_work[-1] - 1)
        return LARGE

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=20)
    judged: list[int] = []
    whole = scheduler._store.turn

    async def turn(turn: Turn) -> TurnResult:
        result = await whole(turn)
        judged.append(len(turn.judged))
        return result

    monkeypatch.setattr(scheduler._store, "turn", turn)
    handles = await scheduler.submit_many([large.prepare() for _ in range(60)])
    await scheduler.run_until_idle()
    assert [await handle.result() for handle in handles] == [LARGE] * 60
    assert max(judged) == 3
    assert max(at_work) == 20


@pytest.mark.one_engine("the dispatcher takes its leave alike on both")
async def test_a_shutdown_stores_every_result_however_slowly_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MOST_TEXT", 1)
    domain = Domain("d")
    running = 0
    may_end = asyncio.Event()

    @domain.task
    async def large() -> str:
        nonlocal running
        running += 1
        await may_end.wait()
        return LARGE

    async with Scheduler(domains=[domain], max_concurrency=15) as scheduler:
        whole = scheduler._store.turn

        async def turn(turn: Turn) -> TurnResult:
            if turn.judged:
                # As on a busy disk: more turns than the shutdown waits for.
                await asyncio.sleep(0.15)
            return await whole(turn)

        monkeypatch.setattr(scheduler._store, "turn", turn)
        await scheduler.submit_many([large.prepare() for _ in range(15)])
        async with scheduler.running():
            while running < 15:
                await asyncio.sleep(0.01)
            may_end.set()
            await asyncio.sleep(0.05)
            await scheduler.stop(grace=0)
        assert await scheduler.count(status="completed") == 15
