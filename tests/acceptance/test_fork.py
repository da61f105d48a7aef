"""A scheduler inherited by a forked process raises an error instead of hanging, and leaves its parent alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.both_engines import Engine, name_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

ROOT = Path(__file__).parents[2]


def run(what: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.acceptance.forking_program", name_of(folder / "q.db"), what],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_explained(message: str, parent: int) -> bool:
    return message.startswith(f"InvalidState: this scheduler was opened in process {parent}") and (
        "close it before the fork and open one in each process" in message
    )


def test_an_inherited_scheduler_raises_in_the_child_and_works_on_in_the_parent(tmp_path: Path) -> None:
    found = run("async", tmp_path)
    child = found["child"]
    for verb in (
        "open",
        "submit",
        "submit_sync",
        "get",
        "result",
        "events",
        "next event",
        "provide",
        "stop",
        "open again",
    ):
        assert is_explained(child[verb], child["parent"]), (verb, child[verb])
    assert child["dispatching"] is False
    assert child["close"] == "no error"
    assert (found["parent"], found["dispatching"]) == (8, True)


def test_an_inherited_blocking_scheduler_raises_in_the_child_and_works_on_in_the_parent(
    tmp_path: Path, engine: Engine
) -> None:
    found = run("blocking", tmp_path)
    child = found["child"]
    for verb in ("open", "submit", "submit_sync", "result", "events", "next event", "provide", "open again"):
        assert is_explained(child[verb], child["parent"]), (verb, child[verb])
    assert child["exit"] == "no error"
    # SQLite's records about locks are inherited, so the file cannot be opened with them.
    if engine.is_postgres:
        assert child["new"] == "no error"
    else:
        assert child["new"].startswith(f"InvalidState: process {child['parent']} had ")
        assert "close the scheduler before the fork" in child["new"]
    assert (found["parent"], found["exit"]) == (8, 0)


def test_a_scheduler_that_is_opened_after_the_fork_works(tmp_path: Path) -> None:
    assert run("before", tmp_path) == {"child": {"result": 8}}
