"""Announced changes survive a power cut: the ending of a replaced task, and commits of another process."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.events import TaskSubmitted, TaskSuperseded
from taskmill.store.sqlite import disk_sync
from taskmill.store.sqlite.log import LogFile
from taskmill.store.sqlite.store import SqliteStore
from tests.store.contract import new_task


async def test_a_replaced_task_is_announced_once_its_ending_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d")

    @domain.task(key="k", on_duplicate="supersede")
    async def work() -> None: ...

    may_sync = threading.Event()
    really_sync = LogFile.sync

    def slow_sync(log: LogFile) -> None:
        may_sync.wait(30)
        really_sync(log)

    # A blocked sync must not move to the loop, however slow the machine is.
    monkeypatch.setattr(disk_sync, "SLOW_HANDOVER", 60.0)
    async with Scheduler(tmp_path / "t.db", domains=[domain]) as scheduler:
        old = await work.submit()
        monkeypatch.setattr(LogFile, "sync", slow_sync)
        submitted, superseded = scheduler.events(TaskSubmitted), scheduler.events(TaskSuperseded)
        replacing = asyncio.ensure_future(work.submit())
        await anext(submitted)
        announced = asyncio.ensure_future(anext(superseded))
        assert (await scheduler.get(old.id)).id == old.id, "a read of the store, so that the loop has time to announce"
        assert not announced.done()
        may_sync.set()
        told = await announced
        assert isinstance(told, TaskSuperseded)
        assert told.new_task_id == (await replacing).id
        assert (await replacing).replaced_id == old.id


async def test_durable_means_also_what_another_process_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = 0
    really_sync = LogFile.sync

    def counted(log: LogFile) -> None:
        nonlocal syncs
        syncs += 1
        really_sync(log)

    path = str(tmp_path / "t.db")
    here, there = SqliteStore(path, "full", SystemClock()), SqliteStore(path, "process", SystemClock())
    await here.open()
    await there.open()
    await here.durable()
    monkeypatch.setattr(LogFile, "sync", counted)
    await here.durable()
    assert syncs == 0, "nothing was committed"
    await there.add([new_task()])
    await here.durable()
    assert syncs == 1
    await here.durable()
    assert syncs == 1, "all of it is on the disk"
    await here.close()
    await there.close()
