"""A standby scheduler opens at once and dispatches when the right to dispatch becomes free."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from taskmill import AlreadyRunning, Domain, Scheduler, blocking
from tests.both_engines import Engine

work = Domain("work")


@work.task
async def double(n: int) -> int:
    return 2 * n


async def test_running_with_standby_enters_at_once_and_takes_over(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "q.db"
    async with Scheduler(path, domains=[work]) as first, Scheduler(path, domains=[work]) as second:
        standing_by = second.running(standby=True)
        async with first.running():
            async with asyncio.timeout(10):
                await standing_by.__aenter__()
            assert first.is_dispatching
            assert second.is_dispatching == engine.is_postgres, "in a cluster every node dispatches"
        handle = await second.submit(double.prepare(2))
        assert await handle.result(10) == 4
        assert second.is_dispatching
        await standing_by.__aexit__(None, None, None)
        assert not second.is_dispatching


async def test_with_standby_a_free_right_is_taken_before_the_block_is_entered(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "q.db", domains=[work]) as scheduler, scheduler.running(standby=True):
        assert scheduler.is_dispatching


async def test_leaving_ends_the_standby(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with Scheduler(path, domains=[work]) as first, Scheduler(path, domains=[work]) as second, first.running():
        async with asyncio.timeout(10), second.running(standby=True):
            pass
        assert not second.is_dispatching
        async with asyncio.timeout(10), second.running(standby=True):
            pass


@pytest.mark.one_engine("on PostgreSQL any number of nodes dispatch")
async def test_the_error_names_the_option(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with Scheduler(path) as first, Scheduler(path) as second, first.running():
        with pytest.raises(AlreadyRunning, match=r"running\(standby=True\)"):
            async with second.running():
                raise AssertionError("the block must not be entered")


def test_the_blocking_scheduler_stands_by_too(tmp_path: Path, engine: Engine) -> None:
    path = tmp_path / "q.db"
    with (
        blocking.Scheduler(path, domains=[work]) as first,
        blocking.Scheduler(path, domains=[work]) as second,
        first.running(),
        second.running(standby=True),
    ):
        assert second.is_dispatching == engine.is_postgres
        assert second.submit(double.prepare(4)).result(10) == 8
