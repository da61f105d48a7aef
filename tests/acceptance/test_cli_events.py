"""``taskmill events``: the latest endings from history, and events of other processes as they happen."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler
from tests.acceptance.command_line import Here
from tests.acceptance.terminal import heard, needs_a_terminal, started, without_colours

pytestmark = pytest.mark.timeout(60)


def test_without_follow_the_last_endings_are_printed(here: Here, template: Path) -> None:
    lines = here("events", template).splitlines()
    assert len(lines) == 3
    assert any("task 1 sync::send the first: completed in" in line for line in lines)
    assert any("sync::lose: failed: b.jpg is gone" in line for line in lines)
    assert any("sync::break_down: no attempt is left" in line for line in lines)
    assert len(here("events", template, "--last", 1).splitlines()) == 1
    assert here("events", template, "--last", 0) == ""


@needs_a_terminal
def test_on_a_terminal_events_are_wrapped(here: Here, template: Path) -> None:
    lines = without_colours(here.on_terminal("events", template, columns=50)).splitlines()
    assert max(map(len, lines)) <= 50
    assert any(line.startswith(" " * 9) for line in lines)
    assert all(line[:2].isdigit() or line.startswith(" " * 9) for line in lines)


def test_events_are_one_object_per_line_and_can_be_filtered(here: Here, template: Path) -> None:
    found = [json.loads(line) for line in here("events", template, "--json").splitlines()]
    assert sorted(event["event"] for event in found) == ["TaskCompleted", "TaskDeadLettered", "TaskFailed"]
    assert [event["at"] for event in found] == sorted(event["at"] for event in found)
    completed = next(event for event in found if event["event"] == "TaskCompleted")
    assert (completed["task_id"], completed["result"], completed["tags"]) == (1, {"size": 5}, {"user": "ann"})
    for words, number in (
        (["--type", "sync::send"], 1),
        (["--domain", "sync"], 3),
        (["--domain", "other"], 0),
        (["--kind", "completed"], 1),
        (["--kind", "TaskFailed", "--kind", "dead_lettered"], 2),
        (["--kind", "TaskFailed", "--kind", "TaskDeadLettered", "--last", 1], 1),
    ):
        assert len(here("events", template, *words, "--json").splitlines()) == number, words


def test_a_wrong_command_line_is_refused(here: Here, template: Path) -> None:
    assert "TaskCompleted" in here.refusal("events", template, "--kind", "exploded", code=2)
    assert "--follow" in here.refusal("events", template, "--kind", "dispatched", code=2)
    assert "at least 0" in here.refusal("events", template, "--last", -1, code=2)


async def test_follow_prints_what_another_process_does_until_ctrl_c(tmp_path: Path) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> int:
        return n

    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain], durability="process") as scheduler, scheduler.running():
        await (await work.submit(0)).wait()
        with started(tmp_path, "events", file, "--follow", "--json", "--last", 1, "--kind", "completed") as following:
            assert json.loads(await asyncio.to_thread(heard, following, "TaskCompleted"))["result"] == 0
            await (await work.submit(1)).wait()
            assert json.loads(await asyncio.to_thread(heard, following, "TaskCompleted"))["result"] == 1
            following.send_signal(signal.SIGINT)
            rest, wrong = await asyncio.to_thread(following.communicate)
            assert (following.returncode, rest, wrong) == (0, "", "")


@pytest.mark.one_engine("the pipe is what is tested")
async def test_a_broken_pipe_ends_it_quietly(tmp_path: Path) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> int:
        return n

    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain], durability="process") as scheduler, scheduler.running():
        await (await work.submit(0)).wait()
        with started(tmp_path, "events", file, "--follow", "--last", 1) as following:
            await asyncio.to_thread(heard, following, "completed")
            assert following.stdout is not None
            following.stdout.close()
            await (await work.submit(1)).wait()
            assert await asyncio.to_thread(following.wait) == 0
            assert following.stderr is not None
            assert following.stderr.read() == ""
            following.stdout = None  # it is closed, and cannot be read at the end
