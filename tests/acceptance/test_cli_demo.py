"""The demonstration: its numbers add up, and it leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.command_line import ENVIRONMENT, Here, answer, taskmill

pytestmark = [pytest.mark.timeout(40), pytest.mark.one_engine("the demonstration has a file of its own")]


def test_the_demonstration_accounts_for_every_task(tmp_path: Path) -> None:
    done = taskmill("demo", "--seconds", 1, "--tasks", 120, environment={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "120 tasks submitted, 120 accounted for" in done.stdout
    assert "✗" not in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_numbers_of_the_demonstration_add_up() -> None:
    document = answer("demo", "--fast", "--tasks", 100)
    assert document["balances"] is True
    assert document["submitted"] == document["accounted_for"] == 100
    assert sum(document["endings"].values()) == 100
    assert set(document["endings"]) == {"completed", "failed", "dead_letter", "cancelled", "expired"}
    assert all(check["holds"] for check in document["checks"])


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are a Unix thing")
def test_the_demonstration_draws_on_a_terminal_and_leaves_it_as_it_was() -> None:
    terminal, end = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "taskmill", "demo", "--fast", "--tasks", "40"],
        env={**ENVIRONMENT, "TERM": "xterm", "LINES": "30", "COLUMNS": "100"},
        stdout=end,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(end)
        seen = b"".join(iter(partial(_read, terminal), b"")).decode()
        os.close(terminal)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    frames, _, after = seen.rpartition("\x1b[?1049l")
    assert "taskmill demo" in frames
    assert "of 12 slots" in frames
    assert "40 tasks submitted, 40 accounted for" in after
    assert "\x1b[?1049h" not in after


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # Linux reports the closed other end this way.
        return b""


def test_the_demonstration_refuses_what_it_cannot_show(here: Here) -> None:
    assert "--tasks" in here.refusal("demo", "--tasks", "0", code=2)
    assert "--seconds" in here.refusal("demo", "--seconds", "nan", code=2)
