"""The commands on a database of PostgreSQL."""

from __future__ import annotations

from taskmill import Domain, Scheduler
from taskmill.cli.store_file import without_password
from tests.acceptance.command_line import taskmill as run

domain = Domain("d")


@domain.task
async def work(n: int) -> int:
    """Nothing."""
    return n


async def test_commands_look_at_a_database_as_they_do_at_a_file(postgres_store: str) -> None:
    async with Scheduler(postgres_store, domains=[domain]) as scheduler:
        await scheduler.submit_many([work.options(group="g").prepare(n) for n in range(3)])
    assert "3 pending" in run("status", postgres_store).stdout
    assert "d::work" in run("ls", postgres_store).stdout
    assert run("cancel", postgres_store, "2").returncode == 0
    assert "is pending" in run("why", postgres_store, "1").stdout
    found = run("doctor", postgres_store)
    assert found.returncode == 0
    assert "PostgreSQL" in found.stdout


def test_a_password_is_not_shown() -> None:
    assert without_password("postgresql://ann:se:cret@db.example/app") == "postgresql://ann@db.example/app"
    assert without_password("postgresql://db.example:5432/app") == "postgresql://db.example:5432/app"
    assert without_password("odd:name@file.db") == "odd:name@file.db"
