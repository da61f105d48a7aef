"""A claim whose answer is lost: the server has made it, and the node does not know which tasks it has."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from taskmill import Context, Domain, Scheduler, StoreError, TtlFrom
from taskmill.model.turn import Turn, TurnResult
from taskmill.testing import ManualClock


async def test_a_claim_whose_answer_is_lost_is_no_attempt(postgres_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, domain = ManualClock(datetime.now(UTC)), Domain("d")
    attempts: list[int] = []

    @domain.task
    async def work(ctx: Context) -> None:
        attempts.append(ctx.attempt)

    async with Scheduler(postgres_store, domains=[domain], clock=clock) as scheduler:
        plain = await work.submit()
        limited = await work.options(ttl=1, ttl_from=TtlFrom.FIRST_ATTEMPT).submit()
        commit = scheduler._store.turn
        lost: list[Turn] = []

        async def losing(turn: Turn) -> TurnResult:
            result = await commit(turn)
            if result.claimed and not lost:
                lost.append(turn)
                raise StoreError("the answer is lost")
            return result

        monkeypatch.setattr(scheduler._store, "turn", losing)
        async with scheduler.running():
            await clock.advance(10)
        assert lost
        assert attempts == [1, 1]
        assert [(await handle.record()).state for handle in (plain, limited)] == ["completed"] * 2
