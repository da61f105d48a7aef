"""The parts that the programs of all contestants share: command line, countdown, and the loop that measures latency."""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

IDLE = 0.02
"""Seconds between two tasks of the latency workload, so that the queue is idle."""
PATIENCE = 100.0


class Contestant(Protocol):
    """The three workloads; ``where`` is a file or the address of an empty PostgreSQL database."""

    def drain(self, where: str, tasks: int, slots: int) -> float: ...
    def submit(self, where: str, tasks: int, slots: int) -> float: ...
    def latency(self, where: str, tasks: int, slots: int) -> float: ...


class Countdown:
    """Counts handlers, from any thread, and notes when the last of ``tasks`` has run."""

    def __init__(self, tasks: int) -> None:
        self._left = tasks
        self._lock = threading.Lock()
        self._reached = threading.Event()
        self.at = 0.0

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self.at = time.perf_counter()
                self._reached.set()

    def wait(self) -> float:
        """Return when the last task has run; raise an error if that takes too long."""
        if not self._reached.wait(PATIENCE):
            raise TimeoutError(f"{self._left} tasks did not run within {PATIENCE:g} s")
        return self.at


def rate(tasks: int, began: float, ended: float) -> float:
    return tasks / (ended - began)


def rate_of_submits(add: Callable[[int], object], tasks: int) -> float:
    """Return how many tasks per second one caller adds."""
    began = time.perf_counter()
    for number in range(tasks):
        add(number)
    return rate(tasks, began, time.perf_counter())


class Starts:
    """The start of the task that was added last."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._at = 0.0

    def __call__(self) -> None:
        self._at = time.perf_counter()
        self._started.set()

    def median_wait(self, add: Callable[[int], object], tasks: int) -> float:
        """Add tasks one by one and return the median time until they start, in milliseconds."""
        waits = []
        for number in range(tasks):
            self._started.clear()
            began = time.perf_counter()
            add(number)
            if not self._started.wait(PATIENCE):
                raise TimeoutError(f"a task did not start within {PATIENCE:g} s")
            waits.append((self._at - began) * 1000)
            time.sleep(IDLE)
        return statistics.median(waits)


def main() -> None:
    """Run the workload of a module of this folder that the command line names, and print its number."""
    module, workload, where, tasks, slots = sys.argv[1:]
    contestant: Contestant = importlib.import_module(f"benchmarks.rivals.{module}").CONTESTANT
    measure = {"drain": contestant.drain, "submit": contestant.submit, "latency": contestant.latency}[workload]
    print(measure(where, int(tasks), int(slots)), flush=True)
    # Some contestants leave threads behind that would wait for their next poll of the queue.
    os._exit(0)


if __name__ == "__main__":
    main()
