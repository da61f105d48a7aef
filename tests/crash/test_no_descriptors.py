"""Without free file descriptors a call succeeds or raises a clear error of taskmill, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.command_line import ENVIRONMENT
from tests.crash.descriptors_victim import PARTS

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["memory", "file", "postgres"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the name of a store that the process creates."""
    if request.param == "postgres":
        address: str = request.getfixturevalue("postgres_store")
        return address
    return ":memory:" if request.param == "memory" else str(tmp_path / "tasks.db")


@pytest.mark.parametrize("part", PARTS)
def test_a_process_without_descriptors_fails_clearly_or_works(new_store: str, part: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.descriptors_victim", part, new_store],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "survived", done.stderr
