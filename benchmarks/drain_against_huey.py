"""``drain_vs_huey``: how fast a full queue is emptied, against SqliteHuey at its own defaults.

Both files lie on the same disk and are filled before the clock starts. huey runs its real ``Consumer`` with default
settings (one worker thread, WAL, SQLite's default ``synchronous``, which is FULL unless the library was built
otherwise, results on, though a handler that returns ``None`` stores none), from the start of the consumer until the
last handler has run. taskmill runs with its defaults too, full durability and retention among them, until all tasks
are in history. ``drain_vs_huey_1_slot`` and ``drain_vs_huey_100_slots`` change only its number of slots: with one it
has as many as huey has workers. huey deletes a row when it is taken, so a kill loses the work; taskmill keeps it and
writes history. huey drains fewer tasks where it is slow; rates are compared.

``about`` also has ``raw_vs_huey``: how fast the bare loop of :mod:`benchmarks.raw_sqlite` empties the same file,
without handlers. No queue that keeps history can be much faster than that.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measuring import Report, Settings, Target, flush_to_disk, interleaved, ratios, summary
from benchmarks.raw_sqlite import RawQueue
from benchmarks.workload import DEFAULT_SLOTS, check_all_ended, domain, fill
from taskmill import Scheduler


def measure(settings: Settings) -> Report:
    huey_tasks = settings.tasks // 4
    rates = interleaved(
        settings.rounds,
        {
            "huey": partial(_huey, settings, huey_tasks),
            "taskmill": partial(_taskmill, settings, settings.tasks, DEFAULT_SLOTS),
            "taskmill_1_slot": partial(_taskmill, settings, huey_tasks, 1),
            "taskmill_100_slots": partial(_taskmill, settings, settings.tasks, 100),
            "raw": partial(_raw, settings),
        },
    )
    report = Report()
    for name, found in rates.items():
        report.about[f"{name}_tasks_per_s"] = summary(found)
    report.add_ratio("drain_vs_huey", rates["taskmill"], rates["huey"], Target(">=", 6))
    report.add_ratio("drain_vs_huey_1_slot", rates["taskmill_1_slot"], rates["huey"], Target(">=", 1.2))
    report.add_ratio("drain_vs_huey_100_slots", rates["taskmill_100_slots"], rates["huey"], Target(">=", 5))
    report.about["raw_vs_huey"] = summary(ratios(rates["raw"], rates["huey"]))
    report.about |= {
        "max_concurrency": DEFAULT_SLOTS,
        "taskmill_tasks": settings.tasks,
        "taskmill_1_slot_tasks": huey_tasks,
        "huey_tasks": huey_tasks,
        **_huey_facts(settings),
    }
    return report


def _taskmill(settings: Settings, tasks: int, slots: int) -> float:
    file = settings.new_file("drain")

    async def drain() -> float:
        async with Scheduler(file, domains=[domain], max_concurrency=slots) as scheduler:
            await fill(scheduler, tasks)
            flush_to_disk()
            began = time.perf_counter()
            await scheduler.run_until_idle()
            took = time.perf_counter() - began
            await check_all_ended(scheduler, tasks)
            return took

    took = asyncio.run(drain())
    settings.discard(file)
    return tasks / took


def _raw(settings: Settings) -> float:
    file = settings.new_file("raw")
    queue = RawQueue(file)
    queue.insert(settings.tasks)
    flush_to_disk()
    began = time.perf_counter()
    done = queue.work()
    took = time.perf_counter() - began
    queue.close()
    settings.discard(file)
    return done / took


def _huey(settings: Settings, tasks: int) -> float:
    file = settings.new_file("huey")
    last = threading.Event()
    left = tasks

    def count(i: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            last.set()

    _fill_huey(file, tasks)
    huey = _new_huey(file)
    huey.task(name="noop")(count)
    flush_to_disk()
    handlers = {signum: signal.getsignal(signum) for signum in signal.valid_signals()}
    consumer = huey.create_consumer()
    began = time.perf_counter()
    consumer.start()
    last.wait()
    took = time.perf_counter() - began
    consumer.stop(graceful=True)
    _restore(handlers)
    huey.storage.close()
    settings.discard(file)
    return tasks / took


def _fill_huey(file: Path, tasks: int) -> None:
    """Store the tasks without waiting for the disk: filling is not measured."""
    huey = _new_huey(file, fsync=False)
    noop = huey.task(name="noop")(lambda i: None)
    for i in range(tasks):
        noop(i)
    huey.storage.close()


def _new_huey(file: Path, **options: Any) -> Any:
    from huey import SqliteHuey

    # Its consumer would print two lines per task; without them huey is faster.
    logging.getLogger("huey").setLevel(logging.WARNING)
    return SqliteHuey(filename=str(file), **options)


def _restore(handlers: dict[Any, Any]) -> None:
    for signum, handler in handlers.items():
        if handler is not None and signal.getsignal(signum) is not handler:
            signal.signal(signum, handler)


def _huey_facts(settings: Settings) -> dict[str, Any]:
    import huey as package
    from huey.consumer_options import ConsumerConfig

    file = settings.new_file("huey")
    storage = _new_huey(file).storage
    (synchronous,) = storage.sql("PRAGMA synchronous", results=True)[0]
    (journal,) = storage.sql("PRAGMA journal_mode", results=True)[0]
    storage.close()
    settings.discard(file)
    config = ConsumerConfig()
    return {
        "huey_version": package.__version__,
        "huey_synchronous": synchronous,
        "huey_journal_mode": journal,
        "huey_workers": config.workers,
        "huey_worker_type": config.worker_type,
    }
