"""Huey with its SQLite storage: the real consumer with ``slots`` threads, synced to the disk on each commit."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks.rivals.program import Countdown, Starts, rate, rate_of_submits


def queue(where: str, handler: Callable[[], None], *, synced: bool = True) -> tuple[Any, Any]:
    from huey import SqliteHuey

    # Its consumer would print two lines per task; without them it is faster.
    logging.getLogger("huey").setLevel(logging.WARNING)
    huey = SqliteHuey(filename=where, fsync=synced)
    return huey, huey.task(name="noop")(lambda i: handler())


class Huey:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        filling, add = queue(where, print, synced=False)
        for i in range(tasks):
            add(i)
        filling.storage.close()
        last = Countdown(tasks)
        huey, _ = queue(where, last)
        os.sync()
        consumer = huey.create_consumer(workers=slots)
        began = time.perf_counter()
        consumer.start()
        ended = last.wait()
        consumer.stop(graceful=True)
        return rate(tasks, began, ended)

    def submit(self, where: str, tasks: int, slots: int) -> float:
        _, add = queue(where, print)
        return rate_of_submits(add, tasks)

    def latency(self, where: str, tasks: int, slots: int) -> float:
        starts = Starts()
        huey, add = queue(where, starts)
        consumer = huey.create_consumer(workers=slots)
        consumer.start()
        found = starts.median_wait(add, tasks)
        consumer.stop(graceful=True)
        return found


CONTESTANT = Huey()
