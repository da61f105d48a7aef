"""Groups from the command line: the share of each, once or live, and every setting of them."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain, Group, Scheduler, Submission, blocking
from taskmill.events import TaskDispatched
from tests.acceptance.command_line import Here
from tests.acceptance.terminal import CURSOR_IS_BACK, heard, needs_a_terminal, on_terminal, started
from tests.both_engines import name_of

pytestmark = pytest.mark.timeout(40)

work = Domain("work")


@work.task
async def wait_long() -> None:
    await asyncio.Event().wait()


def groups(here: Here, file: Path, *options: object) -> dict[str, Any]:
    found: dict[str, Any] = here.answer("groups", file, *options)["groups"]
    return found


# Looking


def test_groups_without_weights_have_no_shares_to_show(here: Here, file: Path) -> None:
    text = here("groups", file)
    first, second, _, headings, *rows = text.splitlines()
    assert "the most urgent task first" in first
    assert "nothing dispatches this file" in second
    assert headings.split() == ["group", "running", "waiting", "next"]
    assert [row.split() for row in rows] == [
        ["(no", "group)", "0", "1", "100"],
        ["s3://prod", "0", "2", "high"],
        ["total", "0", "3"],
    ]
    document = here.answer("groups", file)
    assert (document["is_shared"], document["dispatching"], document["paused"]) == (False, False, False)
    assert document["total"] == {"slots": 3, "running": 0, "pending": 3}


def test_groups_with_weights_show_their_settings_and_shares(here: Here, file: Path) -> None:
    here("groups", file, "set", "s3://prod", "--weight", 3, "--cap", 4, "--min-slots", 1, "--rate", "100/min")
    text = here("groups", file)
    assert "8 slots, shared by weight" in text
    headings, *rows = text.splitlines()[3:]
    assert headings.split() == ["group", "weight", "min", "cap", "rate", "share", "running", "waiting", "next"]
    assert rows[1].split() == ["s3://prod", "3", "1", "4", "100/min", "2", "0", "2", "high"]
    assert rows[2].split() == ["total", "3", "0", "3"]


def test_a_file_without_groups_says_so(here: Here, tmp_path: Path) -> None:
    async def empty() -> None:
        async with Scheduler(tmp_path / "tasks.db"):
            pass

    asyncio.run(empty())
    assert "no group has work or settings" in here("groups", tmp_path / "tasks.db")


# Changing


def test_set_changes_what_is_named_and_tells_how_things_are(here: Here, file: Path) -> None:
    said = here("groups", file, "set", "s3://prod", "--weight", 3, "--cap", 4)
    assert said == "group s3://prod: weight 3, cap 4, no minimum, no rate limit; share now 2 of 8 slots\n"
    changed = here.answer("groups", file, "set", "s3://prod", "--rate", "10/s", "--burst", 2)
    assert (changed["weight"], changed["cap"]) == (3, 4)
    assert changed["rate"] == {"permits": 10, "interval": 1.0, "burst": 2}
    lifted = here.answer("groups", file, "set", "s3://prod", "--cap", "none", "--rate", "none")
    assert (lifted["weight"], lifted["cap"], lifted["rate"]) == (3, None, None)


def test_tasks_without_a_group_are_a_group_too(here: Here, file: Path) -> None:
    assert here("groups", file, "set", "", "--weight", "0.5").startswith("tasks without a group: weight 0.5,")
    assert groups(here, file)[""]["weight"] == 0.5


def test_an_unused_group_can_be_set_but_is_marked(here: Here, file: Path) -> None:
    assert "no task of it runs or waits now" in here("groups", file, "set", "s3://prd", "--weight", 2)


def test_reset_weights_gives_every_group_the_same(here: Here, file: Path) -> None:
    here("groups", file, "set", "s3://prod", "--weight", 3)
    assert "every group has the same weight" in here("groups", file, "reset-weights")
    assert groups(here, file)["s3://prod"]["weight"] == 1


def test_the_name_of_a_group_to_pause_may_be_mistyped(here: Here, file: Path) -> None:
    said = here("groups", file, "pause", "nosuch")
    assert said == "group nosuch: paused until it is resumed; no task of group nosuch is known\n"
    assert here("groups", file, "pause", "") == "tasks without a group: paused until it is resumed\n"


def test_a_group_is_paused_and_resumed(here: Here, file: Path) -> None:
    assert here("groups", file, "pause", "s3://prod") == "group s3://prod: paused until it is resumed\n"
    (row,) = [line for line in here("groups", file).splitlines() if "s3://prod" in line]
    assert row.endswith("paused")
    assert "paused      group s3://prod\n" in here("status", file)
    assert here("groups", file, "resume", "s3://prod") == "group s3://prod: resumed\n"
    assert here("groups", file, "resume", "s3://prod") == "group s3://prod: was not paused\n"
    assert not groups(here, file)["s3://prod"]["paused"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), ("2 days", 172_800)]
)
def test_a_pause_may_have_a_length(here: Here, file: Path, text: str, seconds: int) -> None:
    before = datetime.now(UTC)
    until = datetime.fromisoformat(here.answer("groups", file, "pause", "s3://prod", "--for", text)["paused_until"])
    assert timedelta(seconds=seconds - 1) < until - before < timedelta(seconds=seconds + 30)


def test_a_pause_may_have_an_end_in_local_time_or_with_an_offset(here: Here, file: Path) -> None:
    end = (datetime.now(UTC) + timedelta(days=2)).replace(microsecond=0)
    local = end.astimezone().replace(tzinfo=None).isoformat()
    for text in (local, end.isoformat(), end.isoformat().replace("+00:00", "Z")):
        found = here.answer("groups", file, "pause", "s3://prod", "--until", text)["paused_until"]
        assert datetime.fromisoformat(found) == end
    assert f"paused until {end.astimezone():%Y-%m-%d %H:%M}" in here("groups", file)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (["set", "a"], "at least one of --weight"),
        (["set", "--weight", "3"], "the name of one group"),
        (["set", "a", "b", "--weight", "3"], "the name of one group"),
        (["set", "a", "--weight", "heavy"], "--weight is a number, got 'heavy'"),
        (["set", "a", "--weight", "0"], "weight must be from"),
        (["set", "a", "--weight", "nan"], "--weight is a number"),
        (["set", "a", "--cap", "0"], "to stop a group, pause it"),
        (["set", "a", "--cap", "1.5"], "--cap is a whole number of slots or none"),
        (["set", "a", "--min-slots", "none"], "--min-slots is a whole number"),
        (["set", "a", "--rate", "fast"], "--rate is written as 10/s"),
        (["set", "a", "--rate", "10/fortnight"], "--rate is written as 10/s"),
        (["set", "a", "--rate", "0/s"], "permits must be from 1"),
        (["set", "a", "--rate", "1/0s"], "interval must be longer than zero"),
        (["set", "a", "--burst", "3"], "--burst can only be used with --rate"),
        (["set", "a", "--rate", "none", "--burst", "3"], "--burst needs a rate"),
        (["pause"], "the name of one group"),
        (["pause", "a", "--for", "soon"], "--for is written as 250ms"),
        (["pause", "a", "--for", "0"], "longer than zero"),
        (["pause", "a", "--for", "999999999999d"], "--for is too long"),
        (["pause", "a", "--until", "noon"], "--until is written as"),
        (["pause", "a", "--until", "2020-01-01"], "until must be in the future"),
        (["pause", "a", "--for", "1m", "--until", "2030-01-01"], "exclude each other"),
        (["pause", "a", "--weight", "3"], "--weight can only be used with set"),
        (["resume", "a", "--for", "1m"], "--for can only be used with pause"),
        (["reset-weights", "a"], "takes no name"),
        (["resume", "a", "--watch"], "--watch shows groups"),
        (["--cap", "3"], "--cap can only be used with set"),
        (["stop", "a"], "groups can set, pause, resume or reset-weights, not 'stop'"),
    ],
)
def test_a_refusal_names_what_is_wrong_and_changes_nothing(
    here: Here, template: Path, order: list[str], words: str
) -> None:
    before = groups(here, template)
    assert words in here.refusal("groups", template, *order, code=2)
    assert groups(here, template) == before


def test_the_file_of_groups_may_come_from_the_environment(
    here: Here, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "TASKMILL_STORE" in here.refusal("groups", code=2)
    monkeypatch.setenv("TASKMILL_STORE", name_of(file))
    assert "s3://prod" in here("groups")
    assert "paused until" in here("groups", "pause", "s3://prod")


# While another scheduler dispatches


@pytest.fixture
def dispatcher(path: Path) -> Generator[blocking.Scheduler]:
    """A scheduler that runs 6 tasks of ``heavy`` and 2 of ``light``."""
    groups = {"heavy": Group(weight=3), "light": Group(cap=6)}
    with blocking.Scheduler(path, domains=[work], max_concurrency=8, shutdown_grace=0.1, groups=groups) as scheduler:
        dispatched = scheduler.events(TaskDispatched)
        with scheduler.running():
            scheduler.submit_many(
                Submission("work::wait_long", {}, group=group) for group in ("heavy", "light") for _ in range(20)
            )
            for _ in range(8):
                next(dispatched)
            yield scheduler


@pytest.mark.usefixtures("dispatcher")
def test_shares_are_those_of_the_scheduler_that_dispatches(here: Here, path: Path) -> None:
    document = here.answer("groups", path)
    assert document["dispatching"] is True
    assert document["is_shared"] is True
    assert document["max_concurrency"] == 8
    shares = {name: (group["slots"], group["running"]) for name, group in document["groups"].items()}
    assert shares == {"heavy": (6, 6), "light": (2, 2)}
    assert document["total"] == {"slots": 8, "running": 8, "pending": 32}
    assert "running  share  pending  group" in here("status", path)


def test_watch_follows_changes_of_others_and_ends_with_an_interrupt(path: Path, dispatcher: blocking.Scheduler) -> None:
    with started(path.parent, "groups", path, "--watch", "--json") as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert first["groups"]["heavy"]["slots"] == 6
        dispatcher.group("heavy").pause(duration=3600)
        told = json.loads(heard(watching, '"paused":true'))
        assert told["groups"]["heavy"]["paused"] is True
        assert told["at"] > first["at"]
        watching.send_signal(signal.SIGINT)
        rest, wrong = watching.communicate(timeout=30)
        assert watching.returncode == 0
        assert wrong == ""
        assert all(json.loads(line) for line in rest.splitlines())


@pytest.mark.usefixtures("dispatcher")
def test_watch_into_a_pipe_is_plain(path: Path) -> None:
    with started(path.parent, "groups", path, "--watch") as watching:
        assert heard(watching, "heavy").split() == ["heavy", "3", "-", "6", "6", "14", "normal"]
        heard(watching, "total")
        heard(watching, "heavy")
        watching.send_signal(signal.SIGINT)
        rest, wrong = watching.communicate(timeout=30)
        assert (watching.returncode, wrong) == (0, "")
        assert "\x1b" not in rest


@needs_a_terminal
@pytest.mark.usefixtures("dispatcher")
def test_watch_draws_on_a_terminal_and_leaves_it_as_it_was_with_the_last_picture(path: Path) -> None:
    with on_terminal(path.parent, "groups", path, "--watch", columns=110) as terminal:
        terminal.until("Ctrl-C ends", times=2)
        terminal.process.send_signal(signal.SIGINT)
        seen = terminal.rest()
        assert terminal.process.wait(30) == 0
        assert terminal.process.stderr is not None
        assert terminal.process.stderr.read() == ""
    frames, _, after = seen.rpartition("\x1b[?1049l")
    assert "8 slots, shared by weight" in frames
    assert "■■■■■■" in frames
    assert CURSOR_IS_BACK in seen
    assert "8 slots, shared by weight" in after
    assert "heavy" in after
