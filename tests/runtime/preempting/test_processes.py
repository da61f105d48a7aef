"""A handler in a worker process is preempted too: it is ended, and later continues from its saved state."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from taskmill import Scheduler
from taskmill.events import TaskPreempted, TaskProgressed
from tests.runtime.preempting.process import domain, slow, urgent
from tests.runtime.records import ended

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX")


async def test_a_handler_in_a_process_is_preempted_and_continues(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], max_concurrency=1, shutdown_grace=0) as scheduler:
        events = scheduler.events(TaskProgressed, TaskPreempted)
        handle = await slow.submit()
        async with scheduler.running():
            first = await asyncio.wait_for(anext(events), 30)
            assert isinstance(first, TaskProgressed)
            critical = await urgent.options(priority=0).submit()
            await critical.wait(timeout=30)
            result = await handle.result(timeout=30)
        record = await ended(scheduler, handle.id)
        seen = await asyncio.wait_for(anext(events), 30)
    assert (result, record.attempt, record.retries) == (2, 2, 0)
    assert isinstance(seen, TaskPreempted)
