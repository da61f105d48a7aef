"""Many large results at once are stored in several turns."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Domain
from taskmill.ports import Turn, TurnResult
from taskmill.runtime import judging
from taskmill.testing.plugin import SchedulerFactory

LARGE = "x" * 300


async def test_no_turn_stores_more_than_an_engine_takes_and_none_starts_more_than_there_are_slots(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "MOST_RESULTS", 1000)
    domain = Domain("d")
    all_run = asyncio.Barrier(20)

    @domain.task
    async def large() -> str:
        await all_run.wait()
        return LARGE

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=20)
    judged: list[int] = []
    at_work: list[int] = []
    whole = scheduler._store.turn

    async def turn(turn: Turn) -> TurnResult:
        result = await whole(turn)
        judged.append(len(turn.judged))
        at_work.append(await scheduler.count(status="running"))
        return result

    monkeypatch.setattr(scheduler._store, "turn", turn)
    handles = await scheduler.submit_many([large.prepare() for _ in range(60)])
    await scheduler.run_until_idle()
    assert [await handle.result() for handle in handles] == [LARGE] * 60
    assert max(judged) == 3
    assert max(at_work) == 20
