"""A system that allows no more threads: a store says so when it opens, and needs no other thread later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taskmill import Domain, Scheduler, StoreError
from taskmill.store.sqlite.connection import connect
from taskmill.store.sqlite.log import LogFile
from taskmill.store.sqlite.writer import INLINE_ROWS

domain = Domain("work")


@domain.task
async def noop(number: int) -> None:
    """Do nothing."""


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Refuse to start threads whose name begins with a prefix."""
    start, refused = threading.Thread.start, list[str]()

    def start_or_refuse(thread: threading.Thread) -> None:
        if any(map(thread.name.startswith, refused)):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_refuse)
    yield refused.append
    refused.clear()


@pytest.mark.parametrize("name", ["taskmill-reader", "taskmill-writer", "taskmill-sync"])
async def test_a_file_whose_threads_cannot_be_started_is_not_opened(
    tmp_path: Path, refuse: Callable[[str], None], name: str
) -> None:
    path = tmp_path / "tasks.db"
    refuse(name)
    before = threading.active_count()
    with pytest.raises(StoreError, match=r"can't start new thread; allow this process more threads"):
        await Scheduler(path, domains=[domain]).__aenter__()
    assert threading.active_count() == before
    other = connect(str(path))
    other.execute("BEGIN IMMEDIATE")
    other.close()


@pytest.mark.parametrize("name", ["taskmill-reader", "taskmill-writer"])
async def test_a_server_for_which_no_thread_can_be_started_is_not_opened(
    postgres_store: str, refuse: Callable[[str], None], name: str
) -> None:
    refuse(name)
    before = threading.active_count()
    with pytest.raises(StoreError, match=r"can't start new thread; allow this process more threads"):
        await Scheduler(postgres_store, domains=[domain]).__aenter__()
    assert threading.active_count() == before


async def test_an_open_file_needs_no_other_thread(
    tmp_path: Path, refuse: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:
        refuse("")
        monkeypatch.setattr(LogFile, "wants_checkpoint", lambda _: True)
        await noop.submit(1)
        await scheduler.submit_many([noop.prepare(number) for number in range(2 * INLINE_ROWS)])
        await scheduler.run_until_idle()
        assert (await scheduler.stats("work::noop")).completed == 2 * INLINE_ROWS + 1
