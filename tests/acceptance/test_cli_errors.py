"""``taskmill errors`` shows which errors tasks had."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from pathlib import Path

import pytest

from taskmill import Domain, Retry, Scheduler
from tests.acceptance.command_line import Here
from tests.acceptance.terminal import needs_a_terminal, without_colours

pytestmark = pytest.mark.timeout(40)


@needs_a_terminal
@pytest.mark.one_engine("the width of a table is what is tested")
def test_errors_shows_the_groups_within_80_columns(here: Here, path: Path) -> None:
    domain = Domain("a_domain_with_quite_a_long_name", retry=Retry.none())

    class AVeryLongNameOfAnExceptionThatSaysItAll(Exception):
        """An exception whose whole name is in the JSON."""

    @domain.task
    async def a_handler_with_a_long_name_too() -> None:
        raise AVeryLongNameOfAnExceptionThatSaysItAll("no")

    @domain.task(name="b")
    async def short() -> None:
        raise KeyError("no")

    async def fill() -> None:
        async with Scheduler(path, domains=[domain]) as scheduler:
            for _ in range(2):
                await a_handler_with_a_long_name_too.submit()
            await short.submit()
            await scheduler.run_until_idle()

    asyncio.run(fill())
    lines = without_colours(here.on_terminal("errors", path, columns=80)).splitlines()
    assert lines[0].split() == ["count", "dead", "last", "task", "type", "exception", "location"]
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "AVeryLong" in line)
    assert row.split()[0] == "2"
    assert "…" in row
    assert "KeyError" in next(line for line in lines if "AVeryLong" not in line and "count" not in line)
    names = {group["exception"] for group in here.answer("errors", path)}
    assert names == {"AVeryLongNameOfAnExceptionThatSaysItAll", "KeyError"}


def test_errors_shows_each_attempt_of_a_task_with_its_traceback(here: Here, template: Path) -> None:
    text = here("errors", template, 3)
    lines = text.splitlines()
    assert [line.split(" after ")[0] for line in lines if line.startswith("attempt")] == [
        "attempt 1 failed",
        "attempt 2 failed",
    ]
    assert lines.count("  Traceback (most recent call last):") == 2
    assert lines.count("  ValueError: first line") == 2
    assert lines.count("  second line") == 2
    document = here.answer("errors", template, 3)
    assert [error["attempt"] for error in document] == [1, 2]
    assert document[0]["kind"] == "failed"


def test_show_shows_each_attempt_with_its_error(here: Here, template: Path) -> None:
    lines = [line.strip() for line in here("show", template, 3).splitlines()]
    assert lines.count("ValueError: first line") == 2
    assert not any("Traceback" in line for line in lines)
    assert "went wrong" not in here("show", template, 1)


def test_show_names_the_commands_that_help_as_they_can_be_pasted(here: Here, template: Path) -> None:
    facts = dict(line.split("  ", 1) for line in here("show", template, 3).splitlines() if "taskmill " in line)
    commands = {name: shlex.split(command)[1:] for name, command in facts.items()}
    assert set(commands) == {"tracebacks", "run it again"}
    assert "Traceback" in here(*commands["tracebacks"])
    assert "in the queue again" in here(*commands["run it again"])


def test_errors_says_when_nothing_went_wrong(here: Here, template: Path) -> None:
    assert here("errors", template, 1) == "no attempt of task 1 has failed\n"
    assert here("errors", template, "--since", "0s") == "no attempt has failed in the last 0s\n"
    assert here.answer("errors", template, "--since", "0s") == []
    assert len(here.answer("errors", template, "--since", "1d")) == 2


def test_bad_arguments_are_refused(here: Here, template: Path) -> None:
    assert "--since is written as" in here.refusal("errors", template, "--since", "yesterday", code=2)
    assert "leave out the id" in here.refusal("errors", template, 3, "--since", "2h", code=2)
    assert "whole number" in here.refusal("errors", template, "three", code=2)
    assert "one id" in here.refusal("errors", template, 1, 2, code=2)
    assert "no task has the id 99" in here.refusal("errors", template, 99, code=1)


@pytest.mark.one_engine("the bytes of a file are what is compared")
def test_reading_errors_changes_nothing_in_the_file(here: Here, template: Path) -> None:
    before = hashlib.sha256(template.read_bytes()).hexdigest()
    here("errors", template)
    here("errors", template, 3)
    assert hashlib.sha256(template.read_bytes()).hexdigest() == before


def test_stored_text_cannot_drive_the_terminal(here: Here, path: Path) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def fail() -> None:
        raise ValueError("\x1b[2J evil")

    async def fill() -> None:
        async with Scheduler(path, domains=[domain]) as scheduler:
            await fail.submit()
            await scheduler.run_until_idle()

    asyncio.run(fill())
    for command in (("errors", path), ("errors", path, 1), ("show", path, 1)):
        text = here(*command)
        assert "\x1b" not in text
    assert "\\x1b[2J evil" in here("errors", path, 1)
