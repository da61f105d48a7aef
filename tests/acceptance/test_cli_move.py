"""The output and the exit codes of ``taskmill move``; tests/moving checks that everything is moved."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from taskmill import Scheduler, blocking
from tests.acceptance.command_line import Here
from tests.acceptance.terminal import CURSOR_IS_BACK, needs_a_terminal, on_terminal

pytestmark = pytest.mark.one_engine("a move names both of its ends")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "other.db"


def test_a_file_goes_to_postgresql_and_back(here: Here, file: Path, postgres_store: str) -> None:
    there = here("move", file, postgres_store)
    assert "every row was read again in both and is the same" in there
    assert "copied" in there
    assert "compared" in there
    assert f"taskmill move '{postgres_store}' {file}" in there
    assert here.refusal("status", file, code=1).startswith(f"{file} was moved to ")
    assert "d.jpg" in here("show", postgres_store, 5)
    here("move", postgres_store, file)
    assert "d.jpg" in here("show", file, 5)


def test_programs_get_json_objects(here: Here, file: Path, target: Path) -> None:
    lines = [json.loads(line) for line in here("move", file, target, "--json").splitlines()]
    assert {"copying", "comparing", "moved"} == {line["event"] for line in lines}
    moved = lines[-1]
    assert (moved["source"], moved["target"], moved["before"]) == (str(file), str(target), False)
    assert moved["rows"]["task"] == 4
    assert moved["rows"]["history"] == 3
    (again,) = [json.loads(line) for line in here("move", file, target, "--json").splitlines()]
    assert again["before"]


def test_a_moved_store_says_where_it_is(here: Here, file: Path, target: Path) -> None:
    here("move", file, target)
    for command in (("status", file), ("cancel", file, 4), ("doctor", file)):
        said = here.refusal(*command, code=1)
        assert said.startswith(f"{file} was moved to {target} (")
        assert said.endswith(f"bring the queue back with `taskmill move {target} {file}`")
    assert "there is nothing to do" in here("move", file, target)
    assert "bring it back with" in here.refusal("move", "--undo", file, target, code=1)


def test_refusals_have_the_codes_of_the_other_commands(here: Here, file: Path, target: Path, tmp_path: Path) -> None:
    assert "does not exist" in here.refusal("move", tmp_path / "none.db", target, code=2)
    assert "both SOURCE and TARGET" in here.refusal("move", file, file, code=2)
    assert "can only be used with --undo" in here.refusal("move", "--target-is-lost", file, target, code=2)
    assert "nothing to undo" in here.refusal("move", "--undo", "--target-is-lost", file, target, code=1)
    assert "cannot be reached" in here.refusal("move", file, "postgresql://nobody@/none?host=/nonexistent", code=2)
    assert not target.exists()


def test_a_lost_target_has_to_be_said_to_be_lost(here: Here, file: Path, target: Path, tmp_path: Path) -> None:
    here("move", file, target)
    for lost in tmp_path.glob("other.db*"):
        lost.unlink()
    assert "add --target-is-lost" in here.refusal("move", "--undo", file, target, code=2)
    assert "is usable again" in here("move", "--undo", "--target-is-lost", file, target)
    assert here("status", file)


def test_a_file_that_is_dispatched_is_refused(here: Here, file: Path, target: Path) -> None:
    with blocking.Scheduler(file) as scheduler, scheduler.running():
        assert f"by process {os.getpid()}; stop it" in here.refusal("move", file, target, code=1)
    here("move", file, target)


@needs_a_terminal
def test_a_terminal_gets_a_bar_that_goes_away(here: Here, file: Path, target: Path) -> None:
    seen = here.on_terminal("move", file, target)
    assert "━" in seen
    assert CURSOR_IS_BACK in seen
    assert "is the same" in seen[seen.rindex(CURSOR_IS_BACK) :]


@needs_a_terminal
def test_control_c_leaves_a_move_that_resumes_later(here: Here, tmp_path: Path, target: Path) -> None:
    file = tmp_path / "many.db"
    asyncio.run(_fill(file, 40_000))
    with on_terminal(tmp_path, "move", file, target, "--plain") as terminal:
        terminal.until("copied 0 of")
        terminal.process.send_signal(signal.SIGINT)
        terminal.rest()
        said = terminal.process.stderr.read() if terminal.process.stderr else ""
        assert terminal.process.wait() == 130
    assert "run the same command again to resume" in said
    assert "Traceback" not in said
    assert "moved" in here("move", file, target)


async def _fill(file: Path, count: int) -> None:
    from tests.acceptance.box import box, put

    async with Scheduler(file, domains=[box], durability="process") as scheduler:
        await scheduler.submit_many([put.prepare("a") for _ in range(count)])
