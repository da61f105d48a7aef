"""Code that a program plugs in cannot keep a task running or its slot taken: logging, exceptions, key functions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from taskmill import Domain, GiveUp, Retry, RetryLater, Scheduler, Task
from taskmill.cron import Cron
from taskmill.events import TaskCompleted
from taskmill.testing import ManualClock
from tests.runtime.processes import handlers as process_handlers


class Raising(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("the filter is broken")


class Exiting(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise SystemExit(7)


def _filter() -> Callable[[], None]:
    logger, broken = logging.getLogger("taskmill"), Raising()
    logger.addFilter(broken)
    return lambda: logger.removeFilter(broken)


def _handler() -> Callable[[], None]:
    logger, broken = logging.getLogger("taskmill"), Exiting()
    logger.addHandler(broken)
    return lambda: logger.removeHandler(broken)


def _factory() -> Callable[[], None]:
    before = logging.getLogRecordFactory()

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = before(*args, **kwargs)
        record.task_id = "ours"  # taskmill sets the same attribute, and logging refuses that
        return record

    logging.setLogRecordFactory(make)
    return lambda: logging.setLogRecordFactory(before)


@pytest.fixture(params=[_filter, _handler, _factory], ids=["filter", "handler", "factory"])
def broken_logging(request: pytest.FixtureRequest) -> Iterator[None]:
    logger = logging.getLogger("taskmill")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    mend = request.param()
    yield
    mend()
    logger.setLevel(level)


@pytest.mark.usefixtures("broken_logging")
async def test_logging_that_raises_keeps_no_task_from_its_end() -> None:
    domain = Domain("d", retry=Retry.constant(1, 0), max_concurrency=2)
    started = asyncio.Event()

    @domain.task
    async def on_loop() -> None:
        raise ValueError("no")

    @domain.task
    def in_thread() -> None:
        raise ValueError("no")

    @domain.task
    async def gives_up() -> None:
        raise GiveUp("never")

    @domain.task
    async def cancelled() -> None:
        started.set()
        await asyncio.Event().wait()

    @cancelled.on_cancel
    async def hook() -> None:
        raise ValueError("no")

    domains = [domain, process_handlers.work]
    async with Scheduler(domains=domains, max_concurrency=2, retry=Retry.none()) as scheduler, scheduler.running():
        handles = [
            await on_loop.submit(),
            await in_thread.submit(),
            await gives_up.submit(),
            await process_handlers.fail.submit("no"),
            await process_handlers.refuse.submit(),
        ]
        endings = [(await handle.wait(timeout=30)).ending for handle in handles]
        stopped = await cancelled.submit()
        await started.wait()
        await stopped.cancel()
        endings.append((await stopped.wait(timeout=10)).ending)
        running = (await scheduler.snapshot()).running
    assert endings == ["dead_letter", "dead_letter", "failed", "dead_letter", "failed", "cancelled"]
    assert list(running) == []


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("says nothing")

    __repr__ = __str__


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(5)


class Lazy(RetryLater):
    def __init__(self) -> None:
        """Leave out the call of ``RetryLater.__init__``."""


class Odd(str):
    def __format__(self, spec: str) -> str:
        raise RuntimeError("cannot be formatted")


class OddlySaid(Exception):
    def __str__(self) -> str:
        return Odd("said")


@pytest.mark.parametrize("wrong", [Mute, Exits, Lazy, OddlySaid])
@pytest.mark.parametrize("place", ["loop", "thread", "hook"])
async def test_an_exception_that_cannot_be_described_ends_its_attempt_all_the_same(
    wrong: type[Exception], place: str
) -> None:
    domain = Domain("d", retry=Retry.none())
    started = asyncio.Event()

    @domain.task
    async def loop() -> None:
        raise wrong

    @domain.task
    def thread() -> None:
        raise wrong

    @domain.task
    async def hook() -> None:
        started.set()
        await asyncio.Event().wait()

    @hook.on_cancel
    async def broken() -> None:
        raise wrong

    tasks: dict[str, Task[[], None]] = {"loop": loop, "thread": thread, "hook": hook}
    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await tasks[place].submit()
        if place == "hook":
            await started.wait()
            await handle.cancel()
        record = await handle.wait(timeout=10)
    assert record.ending == ("cancelled" if place == "hook" else "dead_letter")


@pytest.mark.parametrize("handler", ["raises_mute", "flushes_badly", "leaves_a_bad_log"])
async def test_a_worker_process_answers_whatever_its_handler_leaves_behind(handler: str) -> None:
    task = getattr(process_handlers, handler)
    async with Scheduler(domains=[process_handlers.work], retry=Retry.none()) as scheduler, scheduler.running():
        record = await (await task.submit()).wait(timeout=30)
        other = await (await process_handlers.double.submit(2)).result(timeout=30)
    assert record.ending == ("completed" if handler == "flushes_badly" else "dead_letter")
    assert "crashed" not in (record.error or "")
    assert other == 4


async def test_a_key_function_that_raises_holds_up_no_other_cron_task(manual_clock: ManualClock) -> None:
    domain = Domain("d")

    def key() -> str:
        raise Mute

    @domain.task(key=key)
    async def broken() -> None:
        return

    @domain.task
    async def healthy() -> None:
        return

    crons = [Cron("broken", "* * * * *", broken, 60), Cron("healthy", "* * * * *", healthy, 60)]
    async with Scheduler(domains=[domain], cron=crons, clock=manual_clock) as scheduler:
        ended = scheduler.events(TaskCompleted)
        async with scheduler.running():
            await manual_clock.advance(120)
            async with asyncio.timeout(10):
                event = await anext(ended)
    assert event.type == "d::healthy"


class Unspeakable:
    """A source of pressure whose name cannot be read once it was checked."""

    reads = 0

    @property
    def name(self) -> str:
        self.reads += 1
        if self.reads > 3:
            raise RuntimeError("no name")
        return "unspeakable"

    def pressure(self) -> float:
        raise Mute


async def test_a_source_of_pressure_that_raises_holds_up_nothing() -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> int:
        return 1

    async with Scheduler(domains=[domain], pressure=[Unspeakable()]) as scheduler, scheduler.running():
        for _ in range(5):
            assert await (await work.submit()).result(timeout=10) == 1
