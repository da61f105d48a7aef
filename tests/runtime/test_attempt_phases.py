"""An attempt moves through its phases as the table says, and its slot is free at the end of each path."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from taskmill import Context, Domain, Scheduler, Submission
from taskmill.model.records import HistoryRecord
from taskmill.model.turn import Turn, TurnResult
from taskmill.runtime.attempt import FOLLOWS, Attempt, Phase


def _reached(start: Phase, without: Iterable[tuple[Phase, Phase]] = ()) -> set[Phase]:
    """Return the phases that can follow ``start``."""
    found: set[Phase] = set()
    ahead = [start]
    while ahead:
        here = ahead.pop()
        following = {phase for phase in FOLLOWS[here] if (here, phase) not in without} - found
        found |= following
        ahead += following
    return found


@pytest.mark.one_engine("no store is opened")
def test_every_phase_follows_the_first_and_every_attempt_can_end() -> None:
    assert set(FOLLOWS) == set(Phase)
    assert _reached(Phase.STARTING) == set(Phase) - {Phase.STARTING}
    assert all(Phase.ENDED in _reached(phase) for phase in Phase)


@pytest.mark.one_engine("no store is opened")
def test_only_a_refused_verdict_leads_back() -> None:
    back = (Phase.ENDED, Phase.STOPPING)
    assert [phase for phase in Phase if phase in _reached(phase, without=[back])] == []


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch) -> list[Phase]:
    """The phases that attempts enter, in order."""
    entered: list[Phase] = []
    enter = Attempt.enter

    def record(attempt: Attempt, phase: Phase) -> None:
        enter(attempt, phase)
        entered.append(phase)

    monkeypatch.setattr(Attempt, "enter", record)
    return entered


async def _until_slots_are_free(scheduler: Scheduler) -> None:
    loop = scheduler._session.loop
    assert loop is not None
    async with asyncio.timeout(10):
        while loop.attempts.slots_taken:
            await asyncio.sleep(0.01)


async def test_a_plain_attempt_runs_and_ends(phases: list[Phase]) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> int:
        return 1

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        assert await (await work.submit()).result(timeout=10) == 1
    assert phases == [Phase.RUNNING, Phase.ENDED]


async def test_a_phase_that_may_not_follow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain("d")
    seen: list[Attempt] = []
    enter = Attempt.enter

    def keep(attempt: Attempt, phase: Phase) -> None:
        seen.append(attempt)
        enter(attempt, phase)

    monkeypatch.setattr(Attempt, "enter", keep)

    @domain.task
    async def work() -> None:
        return

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        await (await work.submit()).wait(timeout=10)
    with pytest.raises(RuntimeError, match="attempt 1 of task 1 cannot go from ended to running"):
        enter(seen[0], Phase.RUNNING)
    assert seen[0].phase is Phase.ENDED


async def test_a_cancelled_attempt_stops_then_cleans_up_then_ends(phases: list[Phase]) -> None:
    domain = Domain("d")
    started = asyncio.Event()

    @domain.task
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    @work.on_cancel
    async def hook() -> None:
        return

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await work.submit()
        await started.wait()
        await handle.cancel()
        assert (await handle.wait(timeout=10)).ending == "cancelled"
    assert phases == [Phase.RUNNING, Phase.STOPPING, Phase.CLEANING_UP, Phase.ENDED]


async def test_a_handler_that_ignores_cancellation_lingers_and_then_ends(phases: list[Phase]) -> None:
    domain = Domain("d")
    started, may_end = threading.Event(), threading.Event()

    @domain.task
    def work() -> None:
        started.set()
        may_end.wait(30)

    async with Scheduler(domains=[domain], cancel_timeout=0.05) as scheduler, scheduler.running():
        handle = await work.submit()
        await asyncio.to_thread(started.wait)
        await handle.cancel()
        assert (await handle.wait(timeout=10)).ending == "cancelled"
        lingering = list(phases)
        may_end.set()
        await _until_slots_are_free(scheduler)
    assert lingering == [Phase.RUNNING, Phase.STOPPING, Phase.HANDLER_LINGERS]
    assert phases == [*lingering, Phase.ENDED]


async def test_a_finalize_cancelled_while_its_children_are_read_gives_its_slot_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    domain = Domain("d")
    asked, may_answer = asyncio.Event(), asyncio.Event()

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.prepare())

    @domain.task
    async def child() -> None:
        return

    @parent.finalize
    async def gather(ctx: Context) -> None:
        raise AssertionError("it was cancelled before")

    async with Scheduler(domains=[domain], cancel_timeout=0.05) as scheduler, scheduler.running():
        children = scheduler._store.children

        async def slowly(id: int) -> Sequence[HistoryRecord]:
            asked.set()
            await may_answer.wait()
            return await children(id)

        monkeypatch.setattr(scheduler._store, "children", slowly)
        handle = await parent.submit()
        await asked.wait()
        await handle.cancel()
        assert (await handle.wait(timeout=10)).ending == "cancelled"
        may_answer.set()
        await _until_slots_are_free(scheduler)


@pytest.mark.one_engine("in a cluster a task is not returned while its handler is at work")
async def test_a_cancellation_that_overtakes_the_last_commit_of_a_shutdown_runs_the_hook_after_the_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, may_end = threading.Event(), threading.Event()
    at_work: list[str] = []

    def domain() -> Domain:
        domain = Domain("d")

        @domain.task
        def work() -> None:
            at_work.append("handler begins")
            started.set()
            may_end.wait(30)
            at_work.append("handler ends")

        @work.on_cancel
        async def hook() -> None:
            at_work.append("hook")

        return domain

    path = tmp_path / "tasks.db"
    async with Scheduler(path, domains=[domain()]) as other:
        async with Scheduler(path, domains=[domain()], shutdown_grace=0) as scheduler:
            async with scheduler.running():
                handle = await scheduler.submit(Submission("d::work", {}))
                await asyncio.to_thread(started.wait)
                turn = scheduler._store.turn
                cancelled: list[bool] = []

                async def after_a_cancellation(plan: Turn) -> TurnResult:
                    if plan.judged and not cancelled:
                        cancelled.append(await other.cancel(handle.id))
                    return await turn(plan)

                monkeypatch.setattr(scheduler._store, "turn", after_a_cancellation)
            may_end.set()
        running = asyncio.create_task(other.run(standby=True))
        record = await other.wait(handle.id, timeout=30)
        await other.stop()
        await running
    assert (cancelled, record.ending) == ([True], "cancelled")
    assert at_work == ["handler begins", "handler ends", "hook"]
