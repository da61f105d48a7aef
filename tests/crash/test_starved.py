"""Without file descriptors no worker process can be started; that uses no retry of a task."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.acceptance.command_line import ENVIRONMENT
from tests.warm_python import run as warm_run

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine_name", ["file", "postgres"])
def test_a_task_for_which_no_worker_could_be_started_returns_to_the_queue_without_using_a_retry(
    engine_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = str(tmp_path / "tasks.db") if engine_name == "file" else request.getfixturevalue("postgres_store")
    done = warm_run(
        [sys.executable, "-m", "tests.crash.starved_victim", store],
        check=False,
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["results"] == [1, 2, 3]
    assert told["aside"] == "done", "other tasks run meanwhile"
    for retries, error in told["seen"]:
        assert retries == 0
        assert "no worker process could be started" in error
    complaints = done.stderr.count("returns to the queue: no worker process could be started")
    assert 3 <= complaints < 60, "it tries again after a pause, not in a busy loop"
