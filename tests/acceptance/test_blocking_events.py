"""The blocking iterator of events: an interrupted wait loses nothing, and threads may share one iterator."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmill import Domain, blocking
from taskmill.events import Event, TaskCompleted

numbers = Domain("numbers")
SOON = 20.0


@numbers.task
def double(n: int) -> int:
    return 2 * n


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal to a thread")
def test_after_ctrl_c_the_iterator_continues_with_the_next_event(tmp_path: Path) -> None:
    with blocking.Scheduler(tmp_path / "tasks.db", domains=[numbers]) as scheduler, scheduler.running():
        events = scheduler.events(TaskCompleted)
        main = threading.get_ident()
        for _ in range(2):
            ctrl_c = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
            ctrl_c.start()
            with pytest.raises(KeyboardInterrupt):
                next(events)
            ctrl_c.join()
        ids = [double.submit_sync(n).id for n in range(3)]
        heard = [next(events).task_id for _ in ids]
    assert sorted(heard) == ids


def test_threads_share_an_iterator_and_each_event_reaches_one_of_them(tmp_path: Path) -> None:
    heard: list[int] = []
    raised: list[BaseException] = []

    def follow(events: Iterator[Event]) -> None:
        try:
            heard.extend(event.task_id for event in events if isinstance(event, TaskCompleted))
        except BaseException as wrong:
            raised.append(wrong)

    with blocking.Scheduler(tmp_path / "tasks.db", domains=[numbers]) as scheduler, scheduler.running():
        events = scheduler.events(TaskCompleted)
        threads = [threading.Thread(target=follow, args=(events,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        handles = [double.submit_sync(n) for n in range(10)]
        for handle in handles:
            handle.result(timeout=SOON)
        # The events are queued before this call is answered, and the iterator returns them before it ends.
        scheduler.call(_end_events(scheduler))
        for thread in threads:
            thread.join(SOON)
    assert raised == []
    assert sorted(heard) == [handle.id for handle in handles]


async def _end_events(scheduler: blocking.Scheduler) -> None:
    scheduler._scheduler._end_events()
