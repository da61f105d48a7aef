"""A start that fails, at any point, releases the right to dispatch."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler, StoreError, Submission
from taskmill.core.ports import DispatchRight
from taskmill.execute.in_threads import ThreadExecutor
from taskmill.runtime.executors import Executors
from tests.raw_rows import raw, refusing

WORK = Submission("work::work", {})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def _scheduler(path: Path, pressure: tuple[Hesitating, ...] = ()) -> Scheduler:
    domain = Domain("work")

    @domain.task
    async def work() -> str:
        return "done"

    async def nightly() -> None: ...

    return Scheduler(path, domains=[domain], cron=[("nightly", "0 3 * * *", nightly, 60)], pressure=pressure)


class Hesitating:
    """A source of pressure that answers only when the test lets it, so that a start has to wait for it."""

    name = "hesitating"

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answer = threading.Event()

    def pressure(self) -> float:
        self.asked.set()
        self.answer.wait()
        return 0.0


async def _dispatches(scheduler: Scheduler) -> None:
    handle = await scheduler.submit(WORK)
    await scheduler.run_until_idle(timeout=20)
    assert await handle.result(timeout=20) == "done"


STEPS = {
    "recovery": ("UPDATE", "taskmill_task"),
    "cron": ("INSERT", "taskmill_cron"),
    "declaring": ("INSERT", "taskmill_setting"),
}


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_the_store_refuses_leaves_the_right_free(path: Path, step: str) -> None:
    async with _scheduler(path) as scheduler, _scheduler(path) as other:
        await scheduler.submit(WORK)
        with raw(path) as connection:
            # The file of a dispatcher that was killed.
            connection.execute("UPDATE taskmill_task SET status = 'running', attempt = 1, started_at = created_at")
        with refusing(path, *STEPS[step]):
            for _ in range(2):
                with pytest.raises(StoreError, match="full"):
                    await scheduler.run_until_idle(timeout=20)
            assert not scheduler.is_dispatching
        await _dispatches(other)
        await _dispatches(scheduler)


async def test_a_start_that_is_cancelled_leaves_the_right_free(path: Path) -> None:
    hesitating = Hesitating()
    async with _scheduler(path, pressure=(hesitating,)) as scheduler, _scheduler(path) as other:
        starting = asyncio.create_task(scheduler.run())
        await asyncio.to_thread(hesitating.asked.wait, 10)
        starting.cancel()
        hesitating.answer.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await _dispatches(other)
        await _dispatches(scheduler)


@pytest.mark.parametrize("failing", ["making", "closing"])
async def test_executors_that_fail_leave_the_right_free(path: Path, failing: str) -> None:
    async with _scheduler(path) as scheduler, _scheduler(path) as other:
        dispatching = scheduler._session
        make = dispatching._make_executors

        class Unclosable(ThreadExecutor):
            async def close(self) -> None:
                raise OSError(errno.EIO, "closing")

        def make_badly(right: DispatchRight) -> Executors:
            if failing == "making":
                raise OSError(errno.EMFILE, "making")
            made = make(right)
            made.threads = Unclosable(scheduler._clock)
            return made

        dispatching._make_executors = make_badly
        with pytest.raises(OSError, match=failing):
            await scheduler.run_until_idle(timeout=20)
        dispatching._make_executors = make
        await _dispatches(other)
        await _dispatches(scheduler)
