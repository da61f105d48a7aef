"""An event loop that is ended from outside uses no retry of a task, and the program ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taskmill import HistoryRecord, Scheduler, TaskRecord
from taskmill.store.postgres import lease
from tests.acceptance.command_line import ENVIRONMENT
from tests.crash import loop_victim
from tests.warm_python import run as warm_run

ROOT = Path(__file__).parents[2]
LONGEST = 30.0
"""Seconds within which a program must have ended, start and shutdown included."""


@pytest.fixture(params=["file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "tasks.db")
    address: str = request.getfixturevalue("postgres_store")
    return address


def _end(store: str, way: str) -> subprocess.CompletedProcess[str]:
    """Run a program until its loop has ended in this way."""
    done = warm_run(
        [sys.executable, "-m", "tests.crash.loop_victim", store, way],
        check=False,
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert "ready" in done.stdout, done.stderr
    return done


async def _left_running(store: str, expected: int) -> list[TaskRecord]:
    """Check that every task is back in the queue without using a retry, and that nothing has failed."""
    async with Scheduler(store, domains=[loop_victim.work]) as scheduler:
        await scheduler.pause()
        await scheduler.run_until_idle(timeout=LONGEST)
        tasks = await scheduler.tasks()
        ended = await scheduler.history()
        await scheduler.resume()
        await scheduler.run_until_idle(timeout=LONGEST)
        after = await scheduler.history()
    # The hook of a cancelled task runs even though everything is paused.
    assert {_told(task) for task in ended} <= {
        ("work::child", "completed", None),
        ("work::stop_slowly", "cancelled", None),
    }
    assert {(task.status, task.retries) for task in tasks} <= {("paused", 0), ("pending", 0)}, tasks
    assert len(tasks) == expected, tasks
    assert {task.ending for task in after} <= {"completed", "cancelled"}, [_told(task) for task in after]
    return tasks


def _told(task: HistoryRecord) -> tuple[str, str, str | None]:
    return task.type, task.ending, task.error


WAYS = {
    "main_returns": 0,
    "main_raises": 1,
    "main_exits": 3,
    "another_task_runs_it": 0,
    "block_raises": 1,
    "ctrl_c": -2,
    "terminated": 4,
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", WAYS)
async def test_a_loop_that_ends_from_outside_costs_no_running_task_a_retry(store: str, way: str) -> None:
    done = _end(store, way)
    assert done.returncode == WAYS[way], done.stderr
    left = await _left_running(store, len(loop_victim.TASKS) + (way == "terminated"))
    assert {task.last_error for task in left} == {None}


@pytest.mark.timeout(120)
async def test_a_loop_that_stops_without_a_word_loses_nothing(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE", 2.0)
    done = _end(store, "loop_closed")
    assert done.returncode == 0, done.stderr
    await _left_running(store, len(loop_victim.TASKS))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", ["swallowed", "swallowed_by_the_loop"])
async def test_a_handler_that_swallows_cancellation_does_not_keep_the_program_alive(store: str, way: str) -> None:
    done = _end(store, way)
    assert done.returncode == 0, done.stderr
    assert "task 1 (work::swallow)" in done.stderr
    (left,) = await _left_running(store, 1)
    assert left.attempt == 1
