"""The commands on a PostgreSQL database."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from taskmill import Domain, Scheduler
from taskmill.cli.commands import SUMMARIES
from taskmill.cli.store_file import shown
from taskmill.cron import Cron
from tests.acceptance.command_line import Here, taskmill
from tests.acceptance.terminal import heard, started

domain = Domain("d")


@domain.task
async def work(n: int) -> int:
    """Do nothing."""
    return n


# For each command: the arguments after the address, and a word of its answer.
EACH = {
    "status": ([], "3 pending"),
    "ls": ([], "d::work"),
    "stats": (["d::work"], "d::work"),
    "show": (["1"], "d::work"),
    "watch": (["1", "--plain"], "completed"),
    "why": (["3"], "is pending"),
    "graph": (["3"], "d::work"),
    "groups": ([], "g"),
    "cron": ([], "daily"),
    "nodes": ([], "nothing dispatches"),
    "priority": (["3", "high"], "high"),
    "rate": (["d::work", "5/s"], "5/s"),
    "pause": ([], "paused"),
    "resume": ([], "resumed"),
    "doctor": ([], "PostgreSQL"),
    "errors": ([], "no attempt has failed"),
    "forecast": ([], "d::work"),
    "simulate": (["--slots", "16"], "then"),
    "events": ([], "completed"),
    "submit": (["d::work", "n=7"], "is stored"),
    "prune": (["--older", "30d"], "no ended task matches"),
    "cancel": (["3"], "3"),
}


def _fill(address: str) -> None:
    async def fill() -> None:
        daily = Cron("daily", "0 0 * * *", dict, 1)
        async with Scheduler(address, domains=[domain], cron=[daily]) as scheduler:
            await scheduler.submit_many([work.options(group="g").prepare(n) for n in range(2)])
            await scheduler.run_until_idle(timeout=20)
            await scheduler.submit_many([work.options(group="g").prepare(n) for n in range(3)])

    asyncio.run(fill())


def test_the_program_looks_at_a_database_as_it_does_at_a_file(postgres_store: str) -> None:
    _fill(postgres_store)
    found = taskmill("status", postgres_store)
    assert (found.returncode, found.stderr) == (0, "")
    assert "3 pending" in found.stdout


def test_every_command_takes_an_address(here: Here, postgres_store: str) -> None:
    _fill(postgres_store)
    assert set(EACH) == set(SUMMARIES) - {"demo", "run", "move", "completion", "backup", "retry", "web"}
    # The other commands take no such FILE, refuse it, need a dead letter, or do not end.
    for name, (more, word) in EACH.items():
        assert word in here(name, postgres_store, *more), name
    for name in ("status", "ls", "groups", "cron", "nodes", "doctor"):
        here.answer(name, postgres_store)


@pytest.mark.parametrize("name", sorted(EACH))
def test_no_command_makes_tables(here: Here, postgres_store: str, name: str) -> None:
    assert "taskmill's tables are not in it" in here.refusal(name, postgres_store, *EACH[name][0], code=2)
    with psycopg.connect(postgres_store) as connection:
        assert connection.execute("SELECT to_regclass('taskmill_schema')").fetchone() == (None,)


@pytest.mark.one_engine("no store is opened")
def test_a_password_is_not_shown() -> None:
    assert shown("postgresql://ann:se:cret@db.example/app") == "postgresql://ann@db.example/app"
    assert shown("postgresql://db.example:5432/app") == "postgresql://db.example:5432/app"
    assert shown("odd:name@file.db") == "odd:name@file.db"
    assert shown("postgresql://db.example/app?password=secret&x=1") == ("postgresql://db.example/app?password=***&x=1")


def test_no_command_tells_a_password(here: Here, postgres_store: str) -> None:
    _fill(postgres_store)
    secret = postgres_store.replace("taskmill@", "taskmill:se-cret@")
    for name in ("status", "groups", "nodes", "doctor"):
        assert "se-cret" not in here(name, secret)
        told = str(here.answer(name, secret))
        assert "se-cret" not in told
        assert "postgresql://taskmill@/" in told, name


def test_run_names_the_database_without_a_password(postgres_store: str, tmp_path: Path) -> None:
    secret = postgres_store.replace("taskmill@", "taskmill:se-cret@")
    (tmp_path / "app.py").write_text(f"from taskmill import Scheduler\nscheduler = Scheduler({secret!r})\n")
    with started(tmp_path, "run", "app:scheduler") as process:
        said = heard(process, "is dispatching")
    assert "app:scheduler is dispatching postgresql://taskmill@/" in said
    assert "0 task types, 8 slots" in said
    assert "se-cret" not in said
