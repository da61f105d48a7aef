"""Completion: the scripts for shells, and the words that bash completes with them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from taskmill.cli.commands import SUMMARIES
from tests.acceptance.command_line import Here, taskmill

pytestmark = [pytest.mark.timeout(60), pytest.mark.one_engine("no store is opened")]

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
function=$(complete -p taskmill | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" taskmill "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    done = taskmill("completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    path = tmp_path_factory.mktemp("completion") / "taskmill.bash"
    path.write_text(done.stdout)
    return path


def completed(script: Path, *words: str, folder: Path | None = None) -> set[str]:
    """Return what bash offers for the last word."""
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", str(script), "taskmill", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder or script.parent,
        timeout=30,
    )
    assert done.stderr == ""
    return {word.strip() for word in done.stdout.split("\n") if word.strip()}


@needs_bash
def test_bash_accepts_the_script(script: Path) -> None:
    done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_bash
def test_bash_completes_commands_options_and_words(script: Path) -> None:
    assert completed(script, "sta") == {"stats", "status"}
    assert completed(script, "") >= set(SUMMARIES)
    assert {"--history", "--sort", "--columns", "--json"} <= completed(script, "ls", "--")
    assert completed(script, "ls", "--status", "pen") == {"pending"}
    assert completed(script, "completion", "f") == {"fish"}


@needs_bash
def test_bash_completes_files(script: Path, tmp_path: Path) -> None:
    (tmp_path / "queue.db").touch()
    assert "queue.db" in completed(script, "status", "que", folder=tmp_path)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_scripts_of_other_shells_name_every_command_and_option(here: Here, shell: str) -> None:
    text = here("completion", shell)
    for command in SUMMARIES:
        assert command in text
    assert "history" in text
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=text, text=True, check=True, timeout=30)


def test_an_unknown_shell_is_refused_with_a_suggestion(here: Here) -> None:
    assert "Did you mean fish or zsh?" in here.refusal("completion", "fsh", code=2)
