"""A process of the mixed workload, with its orders as JSON: a node that dispatches and submits, or only submits.

On a file one node dispatches and the others stand by. A process ends gracefully when its input is closed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from taskmill import Scheduler
from taskmill.errors import StoreError
from tests.cluster import work
from tests.cluster.pace import SPEED, FastClock, hasten
from tests.cluster.producer import Producer
from tests.crash.journal import Journal, boot_time

TICK = 0.1
LATE = 0.7
"""Seconds by which a sleeping thread must be late to show that its process did not run: stopped, or no CPU was free."""


def mind_gaps(journal: Journal) -> None:
    """Record when this process did not run. Without CPU time it cannot stop its handlers in time."""
    before = boot_time()
    while True:
        time.sleep(TICK)
        now = boot_time()
        if now - before > TICK + LATE:
            journal.write("gap", since=before)
        before = now


def scheduler_of(address: str, **more: Any) -> Scheduler:
    """Return a scheduler with the settings that all processes declare."""
    return Scheduler(
        address,
        domains=work.DOMAINS,
        groups=work.GROUPS,
        retention=None,
        clock=FastClock(),
        shutdown_grace=5 * SPEED,
        **more,
    )


async def main(orders: dict[str, Any], journal: Journal) -> None:
    numbers = itertools.count(1)
    while True:
        try:
            return await serve(orders, journal, numbers)
        except StoreError as wrong:
            # Opening a store does not wait for its server; a process manager would start the program again.
            journal.write("start failed", error=repr(wrong))
            await asyncio.sleep(0.2)


async def serve(orders: dict[str, Any], journal: Journal, numbers: Iterator[int]) -> None:
    cron = work.CRON if orders["slots"] else ()
    async with scheduler_of(orders["address"], cron=cron, max_concurrency=orders["slots"] or 1) as scheduler:
        dispatching = asyncio.create_task(scheduler.run(standby=True)) if orders["slots"] else None
        producer = Producer(scheduler, journal, orders["seed"], numbers)
        submitting = asyncio.create_task(producer.work(orders["pause"])) if orders["pause"] else None
        ending = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        journal.write("open")
        while submitting is not None and not Path(orders["enough"]).exists():
            if submitting.done() or (dispatching is not None and dispatching.done()):
                break
            await asyncio.sleep(0.1)
        if submitting is not None and not submitting.done():
            submitting.cancel()
        journal.write("quiet")
        await asyncio.wait([ending, *([] if dispatching is None else [dispatching])], return_when="FIRST_COMPLETED")
        journal.write("leaving")
        await scheduler.stop()
        if dispatching is not None:
            await dispatching
    journal.write("left")


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    hasten()
    random.seed(given["seed"])
    threading.Thread(target=mind_gaps, args=(work.journal(),), daemon=True).start()
    asyncio.run(main(given, work.journal()))
