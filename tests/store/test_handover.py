"""The choice between a thread and the loop follows from the recent cost of both."""

from __future__ import annotations

import pytest

from taskmill.store.sqlite import disk_sync
from taskmill.store.sqlite.disk_sync import Handover


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
