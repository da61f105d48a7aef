"""A process that dispatches forks: its children do not keep the right to dispatch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler
from tests.acceptance.command_line import ENVIRONMENT
from tests.crash.forking_victim import FORKS
from tests.warm_python import Popen

ROOT = Path(__file__).parents[2]


class Victim:
    """A dispatcher in a process of its own, and the child it has forked."""

    def __init__(self, *arguments: str) -> None:
        self.process = Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.crash.forking_victim", *arguments],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.child = int(self.says())

    def says(self) -> str:
        assert self.process.stdout is not None
        return str(self.process.stdout.readline()).strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def child_lives(self) -> bool:
        try:
            os.kill(self.child, 0)
        except ProcessLookupError:
            return False
        return True


@contextlib.contextmanager
def victim(*arguments: str) -> Iterator[Victim]:
    started = Victim(*arguments)
    try:
        yield started
    finally:
        started.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(started.child, signal.SIGKILL)
        assert started.process.stdout is not None
        started.process.stdout.close()


@pytest.mark.parametrize("how", FORKS)
def test_a_process_that_has_forked_can_stop_and_dispatch_again(tmp_path: Path, how: str) -> None:
    with victim(str(tmp_path / "tasks.db"), "stop", how) as forked:
        assert forked.says() == "runs again"
        assert forked.process.wait(timeout=10) == 0
        assert forked.child_lives


async def _takes_over(file: Path) -> None:
    domain = Domain("work")

    @domain.task
    async def work() -> str:
        return "done"

    async with Scheduler(file, domains=[domain]) as scheduler:
        running = asyncio.create_task(scheduler.run(standby=True))
        handle = await work.submit()
        assert await handle.result(timeout=10) == "done"
        await scheduler.stop()
        await running


@pytest.mark.parametrize("how", FORKS)
async def test_a_killed_dispatcher_is_replaced_while_its_forked_child_lives(tmp_path: Path, how: str) -> None:
    with victim(str(tmp_path / "tasks.db"), "wait", how) as forked:
        forked.kill()
        await _takes_over(tmp_path / "tasks.db")
        assert forked.child_lives


@pytest.mark.parametrize("how", ["in_a_thread", "in_a_worker"])
async def test_a_process_forked_by_a_handler_does_not_keep_the_right_to_dispatch(tmp_path: Path, how: str) -> None:
    with victim(str(tmp_path / "tasks.db"), "run", how) as forked:
        forked.kill()
        await _takes_over(tmp_path / "tasks.db")
        assert forked.child_lives
