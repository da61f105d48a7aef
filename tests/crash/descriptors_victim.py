"""A scheduler in a process that has no file descriptors left, or only a few.

Each part prints what went wrong, and "survived" if nothing did.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import taskmill
from taskmill import Domain, Retention, Retry, Scheduler, StoreError, Submission, TaskmillError

MOST_NEEDED = 20
"""More descriptors than a scheduler on any store needs at once."""

work = Domain("work", group="g", tags={"a": "b"})


@work.task
async def on_loop() -> str:
    return "done"


@work.task
def in_thread() -> str:
    return "done"


@work.task(retry=Retry.none())
async def breaks() -> None:
    raise ValueError("broken")


async def nightly() -> None: ...


def a_scheduler(store: str) -> Scheduler:
    return Scheduler(store, domains=[work], cron=[("nightly", "0 3 * * *", nightly, 60)])


@contextlib.contextmanager
def only(spare: int) -> Iterator[None]:
    """Take all file descriptors but this many."""
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(spare):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)


def count_open() -> int:
    return len(os.listdir("/proc/self/fd"))


async def raised_by(verbs: Sequence[Callable[[], Awaitable[object]]]) -> list[str]:
    """Call verbs; return what they raise that is not an error of ours."""
    wrong: list[str] = []
    for verb in verbs:
        try:
            await verb()
        except TaskmillError as ours:
            if not str(ours):
                wrong.append(f"{type(ours).__name__} says nothing")
        except Exception:
            wrong.append(traceback.format_exc())
    return wrong


async def look_at(scheduler: Scheduler, id: int) -> list[str]:
    return await raised_by(
        [
            lambda: scheduler.get(id),
            lambda: scheduler.find("work::on_loop", "k"),
            scheduler.tasks,
            scheduler.history,
            scheduler.count,
            scheduler.dead_letters,
            scheduler.snapshot,
            scheduler.facts,
            lambda: scheduler.stats("work::on_loop"),
            lambda: scheduler.tag_values("a"),
            lambda: scheduler.explain(id),
            lambda: scheduler.graph(id),
        ]
    )


async def use(scheduler: Scheduler) -> list[str]:
    loop, thread, broken = [
        await scheduler.submit(Submission(f"work::{name}", {})) for name in ("on_loop", "in_thread", "breaks")
    ]
    later = await scheduler.submit(Submission("work::on_loop", {}, run_after=3600, key="k"))
    results = [await handle.result(timeout=30) for handle in (loop, thread)]
    wrong = [] if results == ["done", "done"] else [f"results are {results}"]
    await broken.wait(timeout=30)
    for handle in (loop, broken, later):
        wrong += await look_at(scheduler, handle.id)
    return wrong + await raised_by(
        [
            lambda: scheduler.set_priority(later.id, 1),
            lambda: scheduler.group("g").pause(duration=0.01),
            lambda: scheduler.group("g").resume(),
            lambda: scheduler.group("g").set(weight=2),
            lambda: scheduler.domain("work").pause(),
            lambda: scheduler.domain("work").resume(),
            lambda: scheduler.set_max_concurrency(3),
            lambda: scheduler.retry_dead(broken.id),
            lambda: scheduler.cancel(later.id),
            lambda: scheduler.prune(Retention(max_count=1)),
        ]
    )


async def look(store: str) -> list[str]:
    """A scheduler that only reads returns answers, or a clear error."""
    async with a_scheduler(store) as scheduler:
        handle = await scheduler.submit(Submission("work::on_loop", {}))
        await scheduler.run_until_idle(timeout=30)
        with only(0):
            return await look_at(scheduler, handle.id)


async def start(store: str) -> list[str]:
    """A start without descriptors is refused with an error of ours, and one with descriptors succeeds."""
    async with a_scheduler(store) as scheduler:
        handle = await scheduler.submit(Submission("work::on_loop", {}))
        with only(0):
            try:
                await scheduler.run_until_idle(timeout=30)
            except StoreError as wrong:
                if "open files" not in str(wrong):
                    return [f"the error does not name the reason: {wrong}"]
        await scheduler.run_until_idle(timeout=30)
        return [] if await handle.result(timeout=30) == "done" else ["no result"]


async def run(store: str) -> list[str]:
    """A dispatching scheduler continues without descriptors."""
    async with a_scheduler(store) as scheduler, scheduler.running():
        with only(0):
            return await use(scheduler)


async def load(store: str) -> list[str]:
    """An open scheduler imports nothing more of the package."""
    package = str(Path(taskmill.__file__).parent)
    touched: set[str] = set()

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir", "import") and watching:
            touched.update(name for name in map(str, arguments) if name.startswith((package, "taskmill.")))

    watching = False
    sys.addaudithook(hook)
    async with a_scheduler(store) as scheduler:
        watching = True
        async with scheduler.running():
            wrong = await use(scheduler)
    async with a_scheduler(store):
        watching = False
    return [*wrong, *(f"read {name}" for name in sorted(touched))]


async def live(store: str) -> list[str]:
    """With any number of descriptors a scheduler works or raises a clear error, and leaves nothing behind."""
    wrong: list[str] = []
    before = count_open()
    worked = False
    for spare in range(MOST_NEEDED):
        with only(spare):
            try:
                async with a_scheduler(store) as scheduler, scheduler.running():
                    wrong += await use(scheduler)
                worked = True
            except TaskmillError as said:
                if worked:
                    wrong.append(f"with {spare} descriptors: {said}")
            except Exception:
                wrong.append(f"with {spare} descriptors: {traceback.format_exc()}")
        # The cycle of an exception and its traceback may keep a failed scheduler alive.
        gc.collect()
        if count_open() != before:
            wrong.append(f"with {spare} descriptors: {count_open() - before} are left open")
            before = count_open()
    async with a_scheduler(store) as scheduler, scheduler.running():
        wrong += await use(scheduler)
    return wrong if worked else [*wrong, f"{MOST_NEEDED} descriptors were not enough"]


PARTS = {part.__name__: part for part in (look, start, run, load, live)}

if __name__ == "__main__":
    logging.disable()
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    found = asyncio.run(PARTS[sys.argv[1]](sys.argv[2]))
    print("\n".join(found) or "survived")
