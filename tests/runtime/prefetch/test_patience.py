"""The result of a turn may wait until a handler ends, if nothing else needs it (docs/decisions/0044)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler
from taskmill.dispatch import prefetch
from taskmill.events import TaskCompleted
from taskmill.model.turn import Turn, TurnResult
from taskmill.runtime import loop

domain = Domain("d")
TASKS = 200


@domain.task
async def wait(number: int) -> int:
    # A few milliseconds of real time: turns wait only for handlers that have been measured to take so long.
    await asyncio.sleep(0.002)
    return number


@pytest.fixture(autouse=True)
def without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a result wait forever, so that whatever forgets to fetch it stops the test, on a slow machine too."""
    monkeypatch.setattr(loop, "PATIENCE", 1000.0)
    monkeypatch.setattr(prefetch, "HORIZON", 0.1)
    monkeypatch.setattr(prefetch, "CLUSTER_HORIZON", 0.1)


def patient_turns(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> list[Turn]:
    """Return a list that collects the turns whose result may wait."""
    turns, commit = list[Turn](), scheduler._store.turn

    async def noted(turn: Turn) -> TurnResult:
        if turn.patience:
            turns.append(turn)
        return await commit(turn)

    monkeypatch.setattr(scheduler._store, "turn", noted)
    return turns


async def test_no_verb_waits_for_a_turn_that_may_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(60), Scheduler(tmp_path / "tasks.db", domains=[domain], max_concurrency=4) as scheduler:
        patient = patient_turns(scheduler, monkeypatch)
        handles = await scheduler.submit_many([wait.prepare(number) for number in range(TASKS)])
        async with scheduler.running():
            while not patient:
                await asyncio.sleep(0)
            added = await wait.submit(-1)
            assert await handles[TASKS // 4].result() == TASKS // 4
            await scheduler.snapshot()
            assert await scheduler.cancel(handles[-1].id)
            await scheduler.group("").pause()
            await scheduler.group("").resume()
            await scheduler.set_max_concurrency(2)
            await scheduler.set_priority(added.id, 0)
            assert await added.result() == -1
            await handles[-2].wait()
        assert await scheduler.count(status="completed") == TASKS
        assert await scheduler.count(status="cancelled") == 1


async def test_the_last_turns_of_a_queue_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(60), Scheduler(tmp_path / "tasks.db", domains=[domain], max_concurrency=4) as scheduler:
        patient = patient_turns(scheduler, monkeypatch)
        await scheduler.submit_many([wait.prepare(number) for number in range(TASKS)])
        await scheduler.run_until_idle()
        assert patient


async def test_turns_wait_for_nothing_while_something_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(60), Scheduler(tmp_path / "tasks.db", domains=[domain], max_concurrency=4) as scheduler:
        patient = patient_turns(scheduler, monkeypatch)
        await scheduler.submit_many([wait.prepare(number) for number in range(TASKS)])
        events = scheduler.events(TaskCompleted)
        await scheduler.run_until_idle()
        assert not patient
        await events.aclose()
