"""A handler that outlasts its run keeps its task from starting again beside it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from taskmill import AlreadyRunning, Context, Domain, Scheduler
from taskmill.testing import ManualClock

pytestmark = pytest.mark.one_engine("nodes of a cluster do not wait for each other; tests/postgres has their tests")


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "file"])
async def test_no_attempt_starts_beside_a_handler_that_outlasts_its_run(
    manual_clock: ManualClock, tmp_path: Path, in_memory: bool
) -> None:
    domain = Domain("d")
    attempts: list[int] = []
    began, go_on = threading.Event(), threading.Event()

    @domain.task
    def stuck(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        began.set()
        if ctx.attempt == 1:
            go_on.wait(30)

    place = ":memory:" if in_memory else str(tmp_path / "tasks.db")
    async with Scheduler(
        place, domains=[domain], clock=manual_clock, shutdown_grace=0, cancel_timeout=0.1
    ) as scheduler:
        handle = await stuck.submit()
        async with scheduler.running():
            while not began.is_set():
                await manual_clock.advance(0)
        assert (await handle.record()).state == "pending"
        with pytest.raises(AlreadyRunning, match="standby=True"):
            await scheduler.run_until_idle()
        async with scheduler.running(standby=True):
            await manual_clock.advance(2)
            assert attempts == [1]
            go_on.set()
            while len(attempts) == 1:
                await manual_clock.advance(1)
    assert attempts == [1, 2]


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "file"])
async def test_a_run_waits_a_moment_for_a_handler_that_is_about_to_end(
    manual_clock: ManualClock, tmp_path: Path, in_memory: bool
) -> None:
    domain = Domain("d")
    attempts: list[int] = []
    began, go_on = threading.Event(), threading.Event()

    @domain.task
    def stuck(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        began.set()
        go_on.wait(30)

    place = ":memory:" if in_memory else str(tmp_path / "tasks.db")
    async with Scheduler(
        place, domains=[domain], clock=manual_clock, shutdown_grace=0, cancel_timeout=0.1
    ) as scheduler:
        handle = await stuck.submit()
        async with scheduler.running():
            while not began.is_set():
                await manual_clock.advance(0)
        go_on.set()
        await scheduler.run_until_idle()
        assert (await handle.record()).state == "completed"
    assert attempts == [1, 2]
