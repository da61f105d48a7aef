"""``taskmill prune``: old tasks are deleted from history, after a question."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command_line import Here
from tests.acceptance.terminal import needs_a_terminal, on_terminal

pytestmark = pytest.mark.timeout(60)


def ended(here: Here, file: Path) -> dict[str, int]:
    return {word: number for word, number in here.answer("status", file)["ended"].items() if number}


def test_nothing_is_deleted_before_yes(here: Here, file: Path) -> None:
    before = ended(here, file)
    assert "3 ended tasks match; add --yes" in here.refusal("prune", file, "--keep", 0, code=1)
    assert here("prune", file, "--keep", 1, "--dry-run") == "2 ended tasks match, and nothing was deleted\n"
    assert here.answer("prune", file, "--older", "0s", "--dry-run") == {"matched": 3, "dry_run": True}
    assert here("prune", file, "--older", "30d", "--yes") == "no ended task matches; nothing was deleted\n"
    assert ended(here, file) == before


def test_the_newest_are_kept_and_other_endings_are_left_alone(here: Here, file: Path) -> None:
    assert here("prune", file, "--keep", 0, "--status", "completed", "--yes") == "deleted 1 ended task\n"
    assert ended(here, file) == {"failed": 1, "dead_letter": 1}
    newest = here.answer("ls", file, "--history")[0]["id"]
    assert here.answer("prune", file, "--keep", 1, "--older", "1h", "--yes") == {
        "matched": 1,
        "dry_run": False,
        "deleted": 1,
    }
    assert [record["id"] for record in here.answer("ls", file, "--history")] == [newest]
    statuses = ["--status", "failed", "--status", "dead_letter", "--status", "cancelled"]
    assert here.answer("prune", file, "--older", "0s", *statuses, "--yes")["deleted"] == 1
    assert ended(here, file) == {}
    assert here.answer("status", file)["active"]["pending"] == 3


def test_a_wrong_command_line_is_refused(here: Here, template: Path) -> None:
    assert "--older 30d" in here.refusal("prune", template, code=2)
    assert "at least 0" in here.refusal("prune", template, "--keep", -1, code=2)
    assert "30d ago" in here.refusal("prune", template, "--older", "old", code=2)
    assert "in the future" in here.refusal("prune", template, "--older", "2999-01-01", code=2)


@needs_a_terminal
@pytest.mark.parametrize(("answer", "left"), [("y\n", {}), ("n\n", {"completed": 1, "failed": 1, "dead_letter": 1})])
@pytest.mark.one_engine("the terminal is what is tested")
def test_on_a_terminal_the_command_asks_first(here: Here, file: Path, answer: str, left: dict[str, int]) -> None:
    with on_terminal(file.parent, "prune", file, "--keep", 0, columns=80) as terminal:
        assert "3 ended tasks match" in terminal.until("[y/N]")
        terminal.type(answer)
        terminal.rest()
        assert terminal.process.wait() == (0 if not left else 1)
    assert ended(here, file) == left
