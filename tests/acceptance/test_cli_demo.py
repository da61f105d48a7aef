"""The demonstration: its numbers add up, and it leaves nothing behind."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.acceptance.command_line import ENVIRONMENT, Here, taskmill
from tests.acceptance.terminal import needs_a_terminal, on_terminal

pytestmark = [pytest.mark.timeout(40), pytest.mark.one_engine("the demonstration has a file of its own")]


def test_the_demonstration_accounts_for_every_task(tmp_path: Path) -> None:
    done = taskmill("demo", "--seconds", 1, "--tasks", 120, environment={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "120 tasks submitted, 120 accounted for" in done.stdout
    assert "✗" not in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_numbers_of_the_demonstration_add_up(here: Here) -> None:
    document = here.answer("demo", "--fast", "--tasks", 100)
    assert document["balances"] is True
    assert document["submitted"] == document["accounted_for"] == 100
    assert sum(document["endings"].values()) == 100
    assert set(document["endings"]) == {"completed", "failed", "dead_letter", "cancelled", "expired"}
    assert all(check["holds"] for check in document["checks"])


@needs_a_terminal
def test_the_demonstration_draws_on_a_terminal_and_leaves_it_as_it_was(here: Here) -> None:
    seen = here.on_terminal("demo", "--fast", "--tasks", 40, lines=30)
    frames, _, after = seen.rpartition("\x1b[?1049l")
    assert "taskmill demo" in frames
    assert "of 12 slots" in frames
    assert "40 tasks submitted, 40 accounted for" in after
    assert "\x1b[?1049h" not in after


def test_the_demonstration_refuses_what_it_cannot_show(here: Here) -> None:
    assert "--tasks" in here.refusal("demo", "--tasks", "0", code=2)
    assert "--seconds" in here.refusal("demo", "--seconds", "nan", code=2)


@needs_a_terminal
def test_with_its_page_the_demonstration_draws_and_reports_before_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "BROWSER", "true")  # a program that opens nothing
    with on_terminal(tmp_path, "demo", "--web", "--fast", "--tasks", 40) as terminal:
        assert terminal.process.stderr is not None
        assert "#token=" in terminal.process.stderr.readline()
        frames, _, after = terminal.until("added no task").rpartition("\x1b[?1049l")
        assert "#token=" in frames, "the live view names the page"
        assert "40 tasks submitted, 40 accounted for" in after
        assert terminal.process.stderr.readline() == "taskmill: the page stays open until Ctrl-C\n"
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait() == 0
