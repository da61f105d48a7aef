"""A system that allows no more threads: the request fails, and the file stays usable."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler, StoreError
from taskmill.store.sqlite.connection import connect
from taskmill.store.sqlite.writer import INLINE_ROWS

domain = Domain("work")


@domain.task
async def noop(number: int) -> None:
    """Do nothing."""


async def test_a_thread_that_cannot_be_started_keeps_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, start = tmp_path / "tasks.db", threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "taskmill-writer":
            raise RuntimeError("can't start new thread")
        start(thread)

    many = [noop.prepare(number) for number in range(2 * INLINE_ROWS)]
    async with Scheduler(path, domains=[domain]) as scheduler:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(StoreError, match="nothing was stored"):
                await scheduler.submit_many(many)
        other = connect(str(path))
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
        assert await scheduler.count() == 0
        assert len(await scheduler.submit_many(many)) == len(many)
