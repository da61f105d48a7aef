"""A program that forks while its schedulers are open; the arguments are the store and what to do.

It prints one line of JSON: what the child observed, and what the parent did afterwards.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from taskmill import Domain, Scheduler, TaskmillError, blocking

work = Domain("work")


@work.task
async def double(n: int) -> int:
    return 2 * n


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except TaskmillError as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    return "no error"


def first_step(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine up to its first wait: there is no event loop in the child."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()


def in_child(report: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run ``report`` in a forked process, and return what it returns."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(report()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as answer:
        found: dict[str, Any] = json.load(answer)
    os.waitpid(child, 0)
    return found


async def with_async(store: str) -> dict[str, Any]:
    async with Scheduler(store, domains=[work]) as scheduler, scheduler.running():
        handle = await double.submit(1)
        await handle.result(10)
        listener = scheduler.events()

        def report() -> dict[str, Any]:
            return {
                "parent": os.getppid(),
                "dispatching": scheduler.is_dispatching,
                "open": error_of(lambda: first_step(scheduler.open())),
                "next event": error_of(lambda: first_step(listener.__anext__())),
                "submit_sync": error_of(lambda: double.submit_sync(1)),
                "submit": error_of(lambda: first_step(double.submit(1))),
                "get": error_of(lambda: first_step(scheduler.get(1))),
                "result": error_of(lambda: first_step(handle.result())),
                "events": error_of(scheduler.events),
                "provide": error_of(lambda: scheduler.provide(object())),
                "stop": error_of(lambda: first_step(scheduler.stop())),
                "close": error_of(lambda: first_step(scheduler.close())),
                "open again": error_of(lambda: first_step(scheduler.open())),
            }

        child = in_child(report)
        handle = await double.submit(4)
        return {"child": child, "parent": await handle.result(10), "dispatching": scheduler.is_dispatching}


def with_blocking(store: str) -> dict[str, Any]:
    with blocking.Scheduler(store, domains=[work]) as scheduler, scheduler.running():
        handle = scheduler.submit(double.prepare(1))
        handle.result(10)
        listener = scheduler.events()
        queue = multiprocessing.get_context("fork").SimpleQueue()

        def report() -> None:
            queue.put(
                {
                    "parent": os.getppid(),
                    "open": error_of(scheduler.open),
                    "next event": error_of(lambda: next(listener)),
                    "submit_sync": error_of(lambda: double.submit_sync(1)),
                    "submit": error_of(lambda: scheduler.submit(double.prepare(1))),
                    "result": error_of(handle.result),
                    "events": error_of(scheduler.events),
                    "provide": error_of(lambda: scheduler.provide(object())),
                    "exit": error_of(lambda: scheduler.__exit__(None, None, None)),
                    "open again": error_of(scheduler.open),
                    "new": error_of(lambda: run_new(store)),
                }
            )

        child = multiprocessing.get_context("fork").Process(target=report)
        child.start()
        met = queue.get()
        child.join()
        return {"child": met, "exit": child.exitcode, "parent": scheduler.submit(double.prepare(4)).result(10)}


def run_new(store: str) -> None:
    with blocking.Scheduler(store, domains=[work]) as own:
        own.submit(double.prepare(8))


def before_opening(store: str) -> dict[str, Any]:
    """Construct in the parent and open in the child, as ``gunicorn --preload`` does."""
    scheduler = blocking.Scheduler(store, domains=[work])

    def report() -> dict[str, Any]:
        with scheduler, scheduler.running():
            return {"result": scheduler.submit(double.prepare(4)).result(10)}

    return {"child": in_child(report)}


if __name__ == "__main__":
    store, what = sys.argv[1:]
    if what == "async":
        found = asyncio.run(with_async(store))
    else:
        found = {"blocking": with_blocking, "before": before_opening}[what](store)
    sys.stdout.write(json.dumps(found))
