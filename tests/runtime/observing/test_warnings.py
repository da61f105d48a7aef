"""A caller that waits for something impossible gets one warning, with advice."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmill import Domain, Handle, RateLimit, Scheduler, Submission
from taskmill.execute.loop_watch import LOOK_INTERVAL, LOOKS
from taskmill.testing import ManualClock

BLOCKED = "has blocked the event loop for more than half a second"
NO_DISPATCHER = "no scheduler dispatches this store"
NO_SLOT = "are held by handlers that wait for other tasks"


class Heard(logging.Handler):
    """Collects the warnings of taskmill, from any thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())

    def about(self, words: str) -> list[str]:
        return [line for line in self.said if words in line]


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler = Heard()
    logging.getLogger("taskmill").addHandler(handler)
    yield handler
    logging.getLogger("taskmill").removeHandler(handler)


# Nothing dispatches


def numbers() -> Domain:
    domain = Domain("numbers")

    @domain.task
    async def double(n: int) -> int:
        return 2 * n

    return domain


async def result_of(scheduler: Scheduler, n: int) -> asyncio.Task[int]:
    handle: Handle[int] = await scheduler.submit(Submission("numbers::double", {"n": n}))
    return asyncio.get_running_loop().create_task(handle.result())


async def test_a_second_without_a_dispatcher_is_reported_once_and_names_running(
    tmp_path: Path, manual_clock: ManualClock, heard: Heard
) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[numbers()], clock=manual_clock) as scheduler:
        waiting = [await result_of(scheduler, n) for n in range(3)]
        await manual_clock.advance(0.9)
        assert heard.said == []
        await manual_clock.advance(0.2)
        (said,) = heard.about(NO_DISPATCHER)
        assert "async with scheduler.running():" in said
        waiting.append(await result_of(scheduler, 3))
        await manual_clock.advance(60)
        assert len(heard.said) == 1
        async with scheduler.running():
            assert await asyncio.gather(*waiting) == [0, 2, 4, 6]
    assert len(heard.said) == 1


async def test_short_waits_without_a_dispatcher_add_up(tmp_path: Path, manual_clock: ManualClock, heard: Heard) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[numbers()], clock=manual_clock) as scheduler:
        handle = await scheduler.submit(Submission("numbers::double", {"n": 1}))
        for waits in range(1, 6):
            waiting = asyncio.ensure_future(handle.result("400ms"))
            await manual_clock.advance(0.5)
            with pytest.raises(TimeoutError):
                await waiting
            assert len(heard.about(NO_DISPATCHER)) == (waits > 2), waits


async def test_a_dispatcher_here_or_in_another_scheduler_is_no_reason_to_warn(
    tmp_path: Path, manual_clock: ManualClock, heard: Heard
) -> None:
    domain = Domain("slow")
    free = asyncio.Event()

    @domain.task
    async def hold() -> None:
        await free.wait()

    async with (
        Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler,
        Scheduler(tmp_path / "tasks.db", clock=manual_clock) as onlooker,
        scheduler.running(),
    ):
        handle = await scheduler.submit(hold.prepare())
        here = asyncio.ensure_future(scheduler.wait(handle.id))
        elsewhere = asyncio.ensure_future(onlooker.wait(handle.id))
        while not onlooker._store.dispatcher_is_alive():
            # On a server its heartbeat notices the other node, in real time.
            await asyncio.sleep(0.01)
        await manual_clock.advance(5)
        free.set()
        await asyncio.gather(here, elsewhere)
    assert heard.about(NO_DISPATCHER) == []


# Every slot waits for a slot


def parents() -> Domain:
    domain = Domain("family", group="family")

    @domain.task
    async def child() -> int:
        return 1

    @domain.task
    async def parent() -> int:
        return await (await child.submit()).result()

    @domain.task
    def parent_in_thread() -> int:
        return child.submit_sync().result()

    return domain


@pytest.mark.parametrize("kind", ["parent", "parent_in_thread"])
async def test_handlers_that_hold_all_slots_and_wait_for_queued_tasks_are_reported(
    tmp_path: Path, manual_clock: ManualClock, heard: Heard, kind: str
) -> None:
    domain = parents()
    async with (
        Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock, max_concurrency=2) as scheduler,
        scheduler.running(),
    ):
        handles = await scheduler.submit_many([Submission(f"family::{kind}", {}) for _ in range(2)])
        while await scheduler.count(type="family::child") < 2:
            await manual_clock.advance(0)
        await manual_clock.advance(0.9)
        assert heard.said == []
        await manual_clock.advance(2)
        (said,) = heard.about(NO_SLOT)
        assert "all slots (2)" in said
        assert "(family::child) waits for a slot" in said
        assert "max_concurrency" in said
        await scheduler.set_max_concurrency(4)
        assert [await handle.result() for handle in handles] == [1, 1]
    assert len(heard.said) == 1


@pytest.mark.parametrize("limited", ["group 'family'", "domain 'family'"])
async def test_handlers_that_hold_all_slots_of_a_group_or_domain_and_wait_are_reported(
    tmp_path: Path, manual_clock: ManualClock, heard: Heard, limited: str
) -> None:
    domain = parents()
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler:
        group = scheduler.group("family")
        await (group.set(cap=1) if "group" in limited else scheduler.domain("family").set_max_concurrency(1))
        async with scheduler.running():
            handle = await scheduler.submit(Submission("family::parent", {}))
            while await scheduler.count(type="family::child") < 1:
                await manual_clock.advance(0)
            await manual_clock.advance(0.9)
            assert heard.said == []
            await manual_clock.advance(2)
            (said,) = heard.about(NO_SLOT)
            assert f"all slots of {limited} (1)" in said
            await (group.set(cap=2) if "group" in limited else scheduler.domain("family").set_max_concurrency(2))
            assert await handle.result() == 1
    assert len(heard.said) == 1


async def test_a_handler_that_waits_beside_a_free_slot_is_not_reported(
    tmp_path: Path, manual_clock: ManualClock, heard: Heard
) -> None:
    async with Scheduler(
        tmp_path / "tasks.db", domains=[parents()], clock=manual_clock, max_concurrency=2
    ) as scheduler:
        await scheduler.domain("family").set_max_concurrency(2)
        await scheduler.set_rate_limit("family::child", RateLimit(1, "10s"))
        async with scheduler.running():
            await (await scheduler.submit(Submission("family::child", {}))).result()
            handle = await scheduler.submit(Submission("family::parent", {}))
            while await scheduler.count(type="family::child") < 1:
                await manual_clock.advance(0)
            await manual_clock.advance(5)
            assert heard.said == []
            await manual_clock.advance(10)
            assert await handle.result() == 1


# A handler that blocks the loop


def sleepers() -> Domain:
    domain = Domain("sleepers")
    block_for = (LOOKS + 3) * LOOK_INTERVAL

    @domain.task
    async def blocks() -> None:
        time.sleep(block_for)  # the line that the warning names

    @domain.task
    async def yields() -> None:
        for _ in range(LOOKS + 3):
            await asyncio.sleep(0)
            time.sleep(LOOK_INTERVAL)

    @domain.task
    def in_a_thread() -> None:
        time.sleep(block_for)

    return domain


@pytest.mark.one_engine("the store plays no part in it")
async def test_an_async_handler_that_blocks_the_loop_is_reported_once_per_place_with_its_line(heard: Heard) -> None:
    async with Scheduler(domains=[sleepers()]) as scheduler:
        await scheduler.submit_many([Submission("sleepers::blocks", {}) for _ in range(2)])
        await scheduler.run_until_idle()
    (said,) = heard.about(BLOCKED)
    lines = enumerate(Path(__file__).read_text().splitlines(), 1)
    (line,) = [number for number, text in lines if text.endswith("  # the line that the warning names")]
    assert f"{__file__}:{line} in blocks: time.sleep(block_for)" in said
    assert "(sleepers::blocks)" in said


@pytest.mark.one_engine("the store plays no part in it")
@pytest.mark.parametrize("kind", ["yields", "in_a_thread"])
async def test_a_handler_that_lets_the_loop_run_is_not_reported(heard: Heard, kind: str) -> None:
    async with Scheduler(domains=[sleepers()]) as scheduler:
        await scheduler.submit(Submission(f"sleepers::{kind}", {}))
        await scheduler.run_until_idle()
    assert heard.about(BLOCKED) == []


def watches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "taskmill-loop-watch"]


@pytest.mark.one_engine("the store plays no part in it")
async def test_the_loop_is_watched_from_the_first_handler_to_the_end_of_dispatching() -> None:
    for watch in watches():
        watch.join()
    async with Scheduler(domains=[numbers()]) as scheduler:
        async with scheduler.running():
            assert watches() == []
            await (await result_of(scheduler, 1))
            (watch,) = watches()
        await asyncio.to_thread(watch.join, 20)
        assert not watch.is_alive()
