"""What the command line tells about cron tasks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from taskmill import Scheduler
from taskmill.cron import Cron
from taskmill.testing import ManualClock
from tests.acceptance.command_line import Here

pytestmark = pytest.mark.timeout(40)


def _fails() -> None:
    raise ValueError("no")


def declare(file: Path, *cron: Cron) -> Path:
    async def run() -> None:
        async with Scheduler(file, cron=list(cron), clock=ManualClock()) as scheduler:
            await scheduler.run_until_idle(timeout=20)

    asyncio.run(run())
    return file


def test_cron_lists_what_is_declared_in_words_with_last_and_next_run(here: Here, tmp_path: Path) -> None:
    file = declare(
        tmp_path / "t.db",
        Cron("seldom", "30 2 29 2 1-5", dict, 1),
        Cron("often", "* * * * *", _fails, timedelta(hours=2)),
    )
    headings, seldom, often = here("cron", file).splitlines()
    assert headings.split() == ["name", "runs", "last", "run", "outcome", "next", "run"]
    assert seldom.startswith("seldom  at 02:30")
    assert "never" in seldom
    assert "(in " in seldom
    assert often.startswith("often   every minute")
    assert "failed, task 1 active" in often

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


def test_cron_says_that_nothing_is_declared(here: Here, tmp_path: Path) -> None:
    file = declare(tmp_path / "t.db")
    assert here("cron", file) == "no cron tasks are declared in this file\n"
    assert here.answer("cron", file) == []


def test_cron_refuses_a_file_that_is_not_there(here: Here, tmp_path: Path) -> None:
    assert "does not exist" in here.refusal("cron", tmp_path / "none.db", code=2)
