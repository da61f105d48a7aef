"""Spawning from worker processes works as elsewhere, including refusals."""

from __future__ import annotations

import sys

import pytest

from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.processes import handlers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="worker processes need POSIX")


async def test_a_refusal_is_the_error_that_it_would_be_on_the_loop(taskmill_scheduler: SchedulerFactory) -> None:
    scheduler = await taskmill_scheduler(domains=[handlers.work])
    handle = await scheduler.submit(handlers.spawn_what_is_refused.prepare())
    await scheduler.run_until_idle()
    record = await handle.wait()
    assert record.error == (
        f"DuplicateTask {handle.id + 1} InvalidDependency 10000 CyclicDependency"
        " SubmissionError SubmissionError UnknownTaskType"
    )
    assert [child.ending for child in await scheduler.history(parent=handle.id)] == ["cancelled"]
