"""The choice between a thread and the loop follows from the recent cost of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmill import Domain, Scheduler
from taskmill.store.sqlite import disk_sync
from taskmill.store.sqlite.disk_sync import Handover
from taskmill.store.sqlite.log import LogFile


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1000.0]
    monkeypatch.setattr("taskmill.store.sqlite.disk_sync.time.monotonic", lambda: moment[0])
    return moment


def test_quick_hand_overs_keep_the_thread(now: list[float]) -> None:
    watch = Handover()
    for _ in range(100):
        watch.thread_took(0.001)
    assert not watch.loop_is_busy


def test_a_starved_thread_moves_the_work_to_the_loop_for_a_while(now: list[float]) -> None:
    watch = Handover()
    watch.thread_took(0.15)
    assert watch.loop_is_busy
    now[0] += disk_sync.STAY_FOR
    assert not watch.loop_is_busy, "then the thread is tried again"


def test_one_slow_moment_of_the_disk_does_not_send_the_work_back_to_a_starved_thread(now: list[float]) -> None:
    watch = Handover()
    watch.thread_took(0.15)
    watch.loop_took(0.03)
    for _ in range(20):
        watch.loop_took(0.0004)
    assert watch.loop_is_busy


def test_a_slow_disk_goes_back_to_the_thread_and_stays_there(now: list[float]) -> None:
    watch = Handover()
    watch.thread_took(0.015)
    for _ in range(5):
        watch.loop_took(0.014)
    assert not watch.loop_is_busy
    watch.thread_took(0.015)
    assert not watch.loop_is_busy
    now[0] += disk_sync.GIVE_UP_FOR
    watch.thread_took(0.015)
    assert watch.loop_is_busy


@pytest.mark.parametrize(("longest", "first"), [(60.0, "the handler"), (0.0, "the sync")])
async def test_a_sync_on_the_loop_comes_after_a_handler_that_can_start_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: float, first: str
) -> None:
    domain, order, really_sync = Domain("work"), list[str](), LogFile.sync

    @domain.task
    async def note() -> None:
        order.append("the handler")

    def sync(log: LogFile) -> None:
        order.append("the sync")
        really_sync(log)

    monkeypatch.setattr(Handover, "loop_is_busy", True)
    monkeypatch.setattr(LogFile, "sync", sync)
    monkeypatch.setattr(disk_sync, "LONGEST_DELAY", longest)
    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler, scheduler.running():
        await (await note.submit()).result()
        await scheduler._store.durable()
        order.clear()
        await (await note.submit()).result()
    assert order[0] == first
    assert set(order) == {"the handler", "the sync"}
