"""A handler that outlasts its run keeps its task from starting again beside it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from taskmill import AlreadyRunning, Context, Domain, Handle, Scheduler
from taskmill.testing import ManualClock

pytestmark = pytest.mark.one_engine("nodes of a cluster do not wait for each other; tests/postgres has their tests")


class Stuck:
    """A task whose first attempt ignores a request to stop, until it is let go."""

    def __init__(self) -> None:
        self.domain = Domain("d")
        self.attempts: list[int] = []
        self.go_on = threading.Event()
        self._began = threading.Event()

        @self.domain.task
        def stuck(ctx: Context) -> None:
            self.attempts.append(ctx.attempt)
            self._began.set()
            if ctx.attempt == 1:
                self.go_on.wait(30)

        self._task = stuck

    async def outlasts_a_run(self, scheduler: Scheduler, clock: ManualClock) -> Handle[None]:
        handle = await self._task.submit()
        async with scheduler.running():
            while not self._began.is_set():
                await clock.advance(0)
        return handle


@pytest.fixture(params=[":memory:", "tasks.db"], ids=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.param if request.param == ":memory:" else str(tmp_path / request.param)


async def test_no_attempt_starts_beside_a_handler_that_outlasts_its_run(manual_clock: ManualClock, place: str) -> None:
    stuck = Stuck()
    async with Scheduler(
        place, domains=[stuck.domain], clock=manual_clock, shutdown_grace=0, cancel_timeout=0.1
    ) as scheduler:
        handle = await stuck.outlasts_a_run(scheduler, manual_clock)
        assert (await handle.record()).state == "pending"
        with pytest.raises(AlreadyRunning, match="standby=True"):
            await scheduler.run_until_idle()
        async with scheduler.running(standby=True):
            await manual_clock.advance(2)
            assert stuck.attempts == [1]
            stuck.go_on.set()
            while len(stuck.attempts) == 1:
                await manual_clock.advance(1)
    assert stuck.attempts == [1, 2]


async def test_a_run_waits_a_moment_for_a_handler_that_is_about_to_end(manual_clock: ManualClock, place: str) -> None:
    stuck = Stuck()
    async with Scheduler(
        place, domains=[stuck.domain], clock=manual_clock, shutdown_grace=0, cancel_timeout=0.1
    ) as scheduler:
        handle = await stuck.outlasts_a_run(scheduler, manual_clock)
        stuck.go_on.set()
        await scheduler.run_until_idle()
        assert (await handle.record()).state == "completed"
    assert stuck.attempts == [1, 2]


async def test_a_new_store_in_memory_does_not_wait_for_handlers_of_the_one_before(manual_clock: ManualClock) -> None:
    stuck = Stuck()
    scheduler = Scheduler(domains=[stuck.domain], clock=manual_clock, shutdown_grace=0, cancel_timeout=0.1)
    async with scheduler:
        await stuck.outlasts_a_run(scheduler, manual_clock)
    async with scheduler:
        await scheduler.run_until_idle()
        assert await scheduler.count() == 0
    stuck.go_on.set()


def test_a_handler_that_outlasts_the_event_loop_frees_the_right_to_dispatch_when_it_ends(tmp_path: Path) -> None:
    began, go_on, attempts = threading.Event(), threading.Event(), list[int]()
    domain = Domain("d")

    @domain.task
    def stuck(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        began.set()
        if ctx.attempt == 1:
            go_on.wait(30)

    async def run(*, standby: bool) -> None:
        async with Scheduler(
            tmp_path / "tasks.db", domains=[domain], shutdown_grace=0, cancel_timeout=0.1
        ) as scheduler:
            if not standby:
                await stuck.submit()
            async with scheduler.running(standby=standby):
                if standby:
                    await scheduler.wait(1, timeout=20)
                else:
                    await asyncio.to_thread(began.wait, 20)

    asyncio.run(run(standby=False))
    go_on.set()
    asyncio.run(run(standby=True))
    assert attempts == [1, 2]
