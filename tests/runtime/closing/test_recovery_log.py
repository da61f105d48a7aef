"""A dispatcher that starts after a crash logs what it recovered."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler
from taskmill.testing import ManualClock
from tests.both_engines import copied_as_killed


async def test_tasks_of_a_dead_dispatcher_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    domain = Domain("d")
    go = asyncio.Event()

    @domain.task
    async def hang() -> None:
        await go.wait()

    clock = ManualClock()
    async with Scheduler(tmp_path / "a.db", domains=[domain], clock=clock) as scheduler, scheduler.running():
        await scheduler.submit_many([hang.prepare(), hang.prepare()])
        await clock.advance(0)
        if not copied_as_killed(tmp_path / "a.db", tmp_path / "b.db"):
            for file in tmp_path.glob("a.db*"):
                if not file.name.endswith("-dispatch"):
                    shutil.copy(file, tmp_path / file.name.replace("a.db", "b.db"))
        go.set()
        await clock.advance(0)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "taskmill"):
        async with Scheduler(tmp_path / "b.db", domains=[domain]) as scheduler:
            await scheduler.run_until_idle()
    assert [record.message for record in caplog.records] == ["2 tasks of a dead dispatcher return to the queue"]
