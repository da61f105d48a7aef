"""DBOS: workflows on a queue, in a file or on PostgreSQL.

Its queue takes at most as many workflows per poll as may run, and polls once a second by default; here it polls as
often as its settings allow.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.rivals.program import Countdown, Starts, rate, rate_of_submits

POLL = 0.001
QUEUE = "bench"


def launch(where: str, handler: Callable[[], None]) -> Any:
    """Start DBOS and return its workflow; nothing runs before :func:`listen`."""
    from dbos import DBOS

    address = where if where.startswith("postgresql") else f"sqlite:///{where}"
    DBOS(config={"name": "bench", "system_database_url": address, "log_level": "ERROR"})

    @DBOS.workflow()  # type: ignore[untyped-decorator]
    def noop(i: int) -> None:
        handler()

    DBOS.launch()
    return noop


def listen(slots: int) -> None:
    from dbos import DBOS

    DBOS.register_queue(QUEUE, worker_concurrency=slots, polling_interval_sec=POLL)


def add(workflow: Any, i: int) -> None:
    from dbos import DBOS

    DBOS.enqueue_workflow(QUEUE, workflow, i)


class Dbos:
    def drain(self, where: str, tasks: int, slots: int) -> float:
        last = Countdown(tasks)
        noop = launch(where, last)
        for i in range(tasks):
            add(noop, i)
        began = time.perf_counter()
        listen(slots)
        return rate(tasks, began, last.wait())

    def submit(self, where: str, tasks: int, slots: int) -> float:
        noop = launch(where, lambda: None)
        return rate_of_submits(lambda i: add(noop, i), tasks)

    def latency(self, where: str, tasks: int, slots: int) -> float:
        starts = Starts()
        noop = launch(where, starts)
        listen(slots)
        return starts.median_wait(lambda i: add(noop, i), tasks)


CONTESTANT = Dbos()
