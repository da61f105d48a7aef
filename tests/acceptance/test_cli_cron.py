"""The commands that show and run cron tasks."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskmill import Scheduler
from taskmill.cron import Cron
from taskmill.testing import ManualClock
from tests.acceptance.command_line import Here
from tests.acceptance.terminal import needs_a_terminal, without_colours

pytestmark = pytest.mark.timeout(40)


def _fails() -> None:
    raise ValueError("no")


def declare(file: Path, *cron: Cron, at: datetime | None = None) -> Path:
    async def run() -> None:
        async with Scheduler(file, cron=list(cron), clock=ManualClock(at)) as scheduler:
            await scheduler.run_until_idle(timeout=20)

    asyncio.run(run())
    return file


def test_cron_lists_what_is_declared_in_words_with_last_and_next_run(here: Here, tmp_path: Path) -> None:
    file = declare(
        tmp_path / "t.db",
        Cron("seldom", "30 2 29 2 1-5", dict, 1),
        Cron("often", "* * * * *", _fails, timedelta(hours=2)),
        at=datetime.now(UTC),
    )
    headings, seldom, often = here("cron", file).splitlines()
    assert re.split(r"\s{2,}", headings) == ["name", "runs", "last run", "began at", "next run", "due at"]
    assert seldom.startswith("seldom  at 02:30")
    assert re.search(r"  never {2,}in \d+ d.*  20\d\d-\d\d-\d\d 02:30:00$", seldom)
    assert often.startswith("often   every minute")
    instant = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.search(rf"  failed .* +{instant}  in .*, task 1 +{instant}$", often)

    first, second = here.answer("cron", file)
    assert (first["name"], first["expression"], first["last_run"], first["runs"]) == (
        "seldom",
        "30 2 29 2 1-5",
        None,
        0,
    )
    assert (second["type"], second["last_outcome"], second["task_id"], second["runs"]) == (
        "cron::often",
        "failed",
        1,
        1,
    )
    assert second["next_run"] > second["last_run"]


@needs_a_terminal
@pytest.mark.parametrize("columns", [80, 120, 200])
def test_on_a_terminal_of_any_width_every_cell_is_whole(here: Here, tmp_path: Path, columns: int) -> None:
    long_words = Cron("backup of the database", "0,20,40 9-17 1,15 1-6 *", dict, 1)
    file = declare(
        tmp_path / "t.db", long_words, Cron("often", "* * * * *", _fails, timedelta(hours=2)), at=datetime.now(UTC)
    )
    lines = without_colours(here.on_terminal("cron", file, columns=columns)).splitlines()
    assert (
        re.split(r"\s{2,}", lines[0].strip())
        == {
            80: ["name", "runs", "last run", "next run"],
            120: ["name", "runs", "last run", "next run", "due at"],
            200: ["name", "runs", "last run", "began at", "next run", "due at"],
        }[columns]
    )
    assert max(map(len, lines)) <= columns
    said = " ".join(lines)
    assert "…" not in said, "nothing is cut off"
    for word in ("database", "January", "never", "failed", "task 1", "often"):
        assert word in said


@needs_a_terminal
def test_ordinary_cron_tasks_take_one_line_each_in_80_columns(here: Here, tmp_path: Path) -> None:
    file = declare(
        tmp_path / "t.db",
        Cron("clean-thumbnails", "0,15,30,45 * * * *", dict, 1),
        Cron("nightly-backup", "30 2 * * *", dict, 1),
        Cron("weekly-report", "0 9 * * 1", dict, 1),
        Cron("often", "* * * * *", _fails, timedelta(hours=2)),
        at=datetime.now(UTC) - timedelta(minutes=58),
    )
    lines = without_colours(here.on_terminal("cron", file, columns=80)).splitlines()
    assert len(lines) == 5, lines
    assert max(map(len, lines)) <= 80


def test_a_task_that_was_never_started_is_due_since_its_occurrence(here: Here, tmp_path: Path) -> None:
    begin = datetime.now(UTC) - timedelta(hours=3)
    file = declare(tmp_path / "t.db", Cron("hourly", "59 * * * *", dict, 1), at=begin.replace(minute=30))
    assert re.search(r"  overdue [1-3] h.*  20\d\d-.*:59:00$", here("cron", file), re.MULTILINE)


async def test_a_running_cron_task_is_shown_as_running(here: Here, tmp_path: Path) -> None:
    file, running, may_end = tmp_path / "t.db", asyncio.Event(), asyncio.Event()

    async def work() -> None:
        running.set()
        await may_end.wait()

    async with Scheduler(file, cron=[Cron("often", "* * * * *", work, 1)]) as scheduler, scheduler.running():
        await running.wait()
        said = await asyncio.to_thread(here, "cron", file)
        may_end.set()
    assert "running as task 1" in said


def test_cron_says_that_nothing_is_declared(here: Here, tmp_path: Path) -> None:
    file = declare(tmp_path / "t.db")
    assert here("cron", file) == "no cron tasks are declared in this file\n"
    assert here.answer("cron", file) == []


@pytest.mark.one_engine("a file is missing; for schemas without tables see test_cli_postgres.py")
def test_cron_refuses_a_file_that_is_not_there(here: Here, tmp_path: Path) -> None:
    assert "does not exist" in here.refusal("cron", tmp_path / "none.db", code=2)


# Running one now


def test_a_cron_task_is_run_once_beside_its_schedule(here: Here, tmp_path: Path) -> None:
    file = declare(tmp_path / "t.db", Cron("seldom", "30 2 29 2 1-5", dict, 1))
    before = here.answer("cron", file)[0]["next_run"]
    said = here("cron", file, "run", "seldom")
    assert said.splitlines() == [
        "cron task seldom runs once as task 1; its schedule is unchanged",
        "nothing dispatches this store now; it starts with the next dispatcher",
    ]
    assert "active already, as task 1" in here.refusal("cron", file, "run", "seldom", code=1)
    declare(file, Cron("seldom", "30 2 29 2 1-5", dict, 1))
    (after,) = here.answer("cron", file)
    assert (after["runs"], after["last_outcome"], after["next_run"]) == (1, "succeeded", before)
    assert here.answer("cron", file, "run", "seldom") == {"name": "seldom", "task_id": 2, "dispatched": False}


def test_a_cron_task_that_is_not_declared_is_refused(here: Here, tmp_path: Path) -> None:
    file = declare(tmp_path / "t.db", Cron("seldom", "30 2 29 2 1-5", dict, 1))
    assert "declared are: seldom" in here.refusal("cron", file, "run", "often", code=1)
    for words in (["run"], ["start", "seldom"], ["run", "a", "b"]):
        assert "run NAME" in here.refusal("cron", file, *words, code=2)
    assert here.answer("status", file)["active"]["pending"] == 0
