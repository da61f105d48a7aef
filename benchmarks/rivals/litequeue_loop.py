"""litequeue, a table in a file: the threads that pop, run and mark messages are ours.

It sets ``synchronous = NORMAL``; here each connection sets FULL, so that it is as durable as the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.rivals.program import Countdown, Starts, rate, rate_of_submits

POLL = 0.01
"""Seconds between two polls of an idle thread: the library has no way to wait."""


def queue(where: str, synchronous: str = "FULL") -> Any:
    from litequeue import LiteQueue

    opened = LiteQueue(where, timeout=60)
    opened.conn.execute(f"PRAGMA synchronous = {synchronous}")
    return opened


def work(where: str, handler: Callable[[], None], stop: threading.Event) -> None:
    own = queue(where)
    while not stop.is_set():
        message = own.pop()
        if message is None:
            stop.wait(POLL)
            continue
        handler()
        own.done(message.message_id)


class LiteQueue:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        filling = queue(where, "OFF")
        for i in range(tasks):
            filling.put(str(i))
        last, stop = Countdown(tasks), threading.Event()
        threads = [threading.Thread(target=work, args=(where, last, stop)) for _ in range(slots)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        ended = last.wait()
        stop.set()
        return rate(tasks, began, ended)

    def submit(self, where: str, tasks: int, slots: int) -> float:
        own = queue(where)
        return rate_of_submits(lambda i: own.put(str(i)), tasks)

    def latency(self, where: str, tasks: int, slots: int) -> float:
        starts, stop, own = Starts(), threading.Event(), queue(where)
        for _ in range(slots):
            threading.Thread(target=work, args=(where, starts, stop), daemon=True).start()
        found = starts.median_wait(lambda i: own.put(str(i)), tasks)
        stop.set()
        return found


CONTESTANT = LiteQueue()
