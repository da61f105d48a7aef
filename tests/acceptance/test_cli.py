"""The command line as a whole: help, the choice of the file, invalid files, ids, and output without rich."""

from __future__ import annotations

import io
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from taskmill.cli.commands import MEANT, PURPOSES, SUMMARIES
from taskmill.cli.output import complain
from tests.acceptance.command_line import ENVIRONMENT, Here, taskmill
from tests.both_engines import name_of

pytestmark = pytest.mark.timeout(40)


@pytest.mark.one_engine("no store is opened")
def test_help_and_version(here: Here) -> None:
    assert here("--version").startswith("taskmill ")
    text = here("--help")
    for command in SUMMARIES:
        assert f"  {command} " in text
        assert here(command, "--help").startswith("usage: taskmill")


@pytest.mark.one_engine("no store is opened")
def test_without_a_command_the_help_is_printed_by_purpose_and_fits_80_columns() -> None:
    done = taskmill(environment={"COLUMNS": "80"}, start=subprocess.run)
    assert (done.returncode, done.stderr) == (2, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.index("Look at a queue") < done.stdout.index("  status ") < done.stdout.index("Change a queue")
    assert {name for names in PURPOSES.values() for name in names} <= set(SUMMARIES)


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("command", SUMMARIES)
def test_the_help_of_every_command_fits_80_columns(here: Here, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in here(command, "--help").splitlines() if len(line) > 80] == []


@pytest.mark.one_engine("no store is opened")
def test_on_a_terminal_a_complaint_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    said = "photos::slow computes its group from the arguments, which only its program can do; give --group or --key"
    for stream, lines in ((Terminal(), 2), (io.StringIO(), 1)):
        monkeypatch.setattr(sys, "stderr", stream)
        complain(said)
        written = stream.getvalue().splitlines()
        assert len(written) == lines
        assert " ".join(line.strip() for line in written) == f"taskmill: {said}"
        assert lines == 1 or max(map(len, written)) <= 80


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["stauts"], "status"),
        (["lss"], "ls"),
        (["ls", "--statsu", "pending"], "--status"),
        (["ls", "--limt=3"], "--limit"),
        (["ls", "--status", "pendng"], "pending"),
        (["ls", "--status", "dead"], "dead_letter"),
        (["worker"], "run"),
        (["start"], "run"),
        (["dead"], "ls --status dead_letter"),
        (["list"], "ls"),
        (["tasks"], "ls"),
        (["dashboard"], "web"),
        (["version"], "--version"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion(here: Here, words: list[str], meant: str) -> None:
    said = here.refusal(*words, code=2)
    assert re.search(rf"Did you mean .*{meant}.*\? See taskmill .*--help", said)


@pytest.mark.one_engine("no store is opened")
def test_every_word_of_another_queue_is_one_word_for_one_command() -> None:
    words = [word for others in MEANT.values() for word in others]
    assert sorted(set(words)) == sorted(words)
    assert not set(words) & {*SUMMARIES, "help"}, "a command hides the suggestion"
    assert {name.split()[0] for name in MEANT} <= {*SUMMARIES, "--version"}


@pytest.mark.one_engine("no store is opened")
def test_help_may_be_asked_for_with_a_word(here: Here) -> None:
    assert here("help") == here("--help")
    assert here("help", "ls") == here("ls", "--help")


@pytest.mark.one_engine("no store is opened")
def test_a_wrong_choice_is_not_taken_for_one_of_another_option(here: Here) -> None:
    assert "Did you mean" not in here.refusal("ls", "--status", "bogus", code=2)


@pytest.mark.one_engine("no store is opened")
def test_a_word_like_no_other_gets_no_suggestion(here: Here) -> None:
    assert here.refusal("explode", code=2) == "there is no command 'explode'. See taskmill --help"
    assert here.refusal("ls", "--xyzzy", code=2) == "taskmill ls has no option --xyzzy. See taskmill ls --help"
    assert "has no argument" in here.refusal("ls", "a.db", "b.db", code=2)


def test_the_file_may_come_from_the_environment(here: Here, template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TASKMILL_STORE" in here.refusal("status", code=2)
    assert "TASKMILL_STORE" in here.refusal("show", "1", code=2)
    monkeypatch.setenv("TASKMILL_STORE", name_of(template))
    assert "4: 3 pending" in here("status")
    assert "the first" in here("show", "1")
    assert here("doctor")


def test_ids_are_whole_numbers(here: Here, template: Path) -> None:
    assert "whole number" in here.refusal("cancel", template, "four", code=2)
    assert "whole number" in here.refusal("show", template, "-4", code=2)
    assert "id" in here.refusal("show", template, code=2)
    assert "one id" in here.refusal("show", template, 1, 2, code=2)
    assert "digits" in here.refusal("show", template, "9" * 30, code=2)


# The real program

AFTER_FILE_AND_SAID = {
    "status": ([], "4: 3 pending"),
    "ls": ([], "sync::send"),
    "stats": (["sync::send"], "sync::send"),
    "show": (["1"], "the first"),
    "errors": ([], "sync::lose"),
    "watch": (["1"], "completed in"),
    "why": (["5"], "is pending"),
    "forecast": (["--samples", "2"], "have ended"),
    "simulate": (["--slots", "1"], "deadlines missed"),
    "graph": (["5"], "sync::send"),
    "groups": ([], "s3://prod"),
    "events": ([], "completed in"),
    "submit": (["sync::send", "path=g.jpg"], "task 8 is stored"),
    "prune": (["--older", "30d"], "no ended task matches"),
    "cron": ([], "no cron tasks are declared"),
    "nodes": ([], "nothing dispatches"),
    "retry": (["3"], "task 3 is in the queue again"),
    "cancel": (["4"], "task 4 is cancelled"),
    "priority": (["5", "high"], "now has the priority high"),
    "rate": (["sync::send", "5/s"], "starts at most 5/s"),
    "pause": ([], "is paused"),
    "resume": ([], "was not paused"),
    "doctor": ([], "write-ahead log"),
    "move": (["moved.db"], "is the same"),
    "backup": (["copied.db"], "checked the copy"),
}


@pytest.mark.parametrize("command", sorted(SUMMARIES.keys() - {"demo", "run", "completion", "web"}))
@pytest.mark.one_engine("the start of the program is what is tested; what commands do is tested in process")
def test_the_program_runs_every_command(file: Path, command: str) -> None:
    """The others are started in test_cli_demo.py, test_cli_run.py, test_cli_completion.py and test_cli_web.py."""
    rest, said = AFTER_FILE_AND_SAID[command]
    done = taskmill(command, file, *rest, cwd=file.parent, start=subprocess.run)
    assert (done.returncode, done.stderr) == (0, "")
    assert said in done.stdout


# Files that are none


AFTER_FILE = {
    "submit": ["sync::send"],
    "prune": ["--older", "30d"],
    "show": ["1"],
    "stats": ["sync::send"],
    "watch": ["1"],
    "why": ["1"],
    "graph": ["1"],
    "retry": ["1"],
    "cancel": ["1"],
    "priority": ["1", "high"],
    "rate": ["sync::send", "1/s"],
    "groups": ["set", "a", "--weight", "3"],
    "backup": ["copied.db"],
    "move": ["postgresql://nobody@/none?host=/nonexistent"],
}


@pytest.mark.parametrize("command", sorted(SUMMARIES.keys() - {"demo", "run", "completion"}))
@pytest.mark.one_engine("a file is missing; for schemas without tables see test_cli_postgres.py")
def test_no_command_creates_a_database(here: Here, tmp_path: Path, command: str) -> None:
    rest = AFTER_FILE.get(command, [])
    missing = tmp_path / "missing.db"
    assert "does not exist" in here.refusal(command, missing, *rest, code=2)
    assert list(tmp_path.iterdir()) == []

    text = tmp_path / "notes.txt"
    text.write_text("not a database at all")
    assert "not an SQLite database" in here.refusal(command, text, *rest, code=2)
    assert text.read_text() == "not a database at all"
    assert "is a folder" in here.refusal(command, tmp_path, *rest, code=2)


@pytest.mark.one_engine("the file is what is tested")
def test_the_database_of_another_program_is_left_alone(here: Here, tmp_path: Path) -> None:
    other = tmp_path / "app.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE customer (name TEXT)")
    connection.commit()
    connection.close()
    before = other.read_bytes()
    assert "tables are not in it" in here.refusal("status", other, code=2)
    assert other.read_bytes() == before


# Without rich

WITHOUT_RICH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "rich":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from taskmill.cli import main
for command in (
    ["status", FILE], ["ls", FILE], ["show", FILE, "1"], ["why", FILE, "5"], ["groups", FILE], ["rate", FILE],
    ["doctor", FILE], ["watch", FILE, "1"], ["stats", FILE, "sync::send"], ["demo", "--fast"],
    ["forecast", FILE], ["simulate", FILE, "--slots", "1"],
):
    assert main(command) == 0, command
assert "rich" not in sys.modules
"""


def test_everything_but_the_live_view_works_without_rich(template: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"FILE = {name_of(template)!r}\n{WITHOUT_RICH}"],
        check=False,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
