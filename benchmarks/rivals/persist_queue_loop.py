"""persist-queue's acknowledged queue in a file: the threads that get, run and acknowledge items are ours."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.rivals.program import Countdown, Starts, rate, rate_of_submits

POLL = 0.05


def queue(where: str) -> Any:
    from persistqueue import SQLiteAckQueue

    return SQLiteAckQueue(os.path.dirname(where), multithreading=True, auto_commit=True)


def work(shared: Any, handler: Callable[[], None], stop: threading.Event) -> None:
    from persistqueue import Empty

    while not stop.is_set():
        try:
            item = shared.get(timeout=POLL)
        except Empty:
            continue
        handler()
        shared.ack(item)


class PersistQueue:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        shared = queue(where)
        for i in range(tasks):
            shared.put(i)
        last, stop = Countdown(tasks), threading.Event()
        threads = [threading.Thread(target=work, args=(shared, last, stop)) for _ in range(slots)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        ended = last.wait()
        stop.set()
        return rate(tasks, began, ended)

    def submit(self, where: str, tasks: int, slots: int) -> float:
        return rate_of_submits(queue(where).put, tasks)

    def latency(self, where: str, tasks: int, slots: int) -> float:
        starts, stop, shared = Starts(), threading.Event(), queue(where)
        for _ in range(slots):
            threading.Thread(target=work, args=(shared, starts, stop), daemon=True).start()
        found = starts.median_wait(shared.put, tasks)
        stop.set()
        return found


CONTESTANT = PersistQueue()
