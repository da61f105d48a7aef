"""The logger ``taskmill.task``: one line when an attempt starts and one when it ends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from taskmill import Context, Domain, GiveUp, Retry, Scheduler
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "taskmill.task")
    return caplog


def records(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "taskmill.task"]


def outcomes(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "outcome", "starts") for record in records(caplog)]


async def test_a_task_has_one_line_for_its_start_and_one_for_its_end(lines: pytest.LogCaptureFixture) -> None:
    domain = Domain("d")

    @domain.task(group="g")
    async def work() -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
    start, end = records(lines)
    assert start.getMessage() == f"task {handle.id} (d::work) attempt 1 starts"
    assert end.getMessage().startswith(f"task {handle.id} (d::work) attempt 1 completed after 0")
    for record in (start, end):
        assert record.levelno == logging.INFO
        assert (record.task_id, record.task_type, record.attempt, record.group) == (handle.id, "d::work", 1, "g")
    assert (end.outcome, end.retries, end.error) == ("completed", 0, None)
    assert end.duration >= 0


async def test_failures_tell_the_retry_its_delay_and_the_error(
    lines: pytest.LogCaptureFixture, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d", retry=Retry.constant(1, delay=3))

    @domain.task
    async def fail() -> None:
        raise ValueError("boom")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await fail.submit()
    async with scheduler.running():
        await manual_clock.advance(3)
        await handle.wait()
    assert [record.getMessage() for record in records(lines)] == [
        f"task {handle.id} (d::fail) attempt 1 starts",
        f"task {handle.id} (d::fail) attempt 1 failed after 0 s, retry 1 in 3 s: ValueError: boom",
        f"task {handle.id} (d::fail) attempt 2 starts",
        f"task {handle.id} (d::fail) attempt 2 ended as dead_letter after 0 s and 1 retry: ValueError: boom",
    ]
    assert [record.attempt for record in records(lines)] == [1, 1, 2, 2]


async def test_every_way_an_attempt_ends_has_a_line(lines: pytest.LogCaptureFixture) -> None:
    domain = Domain("d", retry=Retry.none())
    runs = asyncio.Event()

    @domain.task
    async def child() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.prepare())

    @domain.task
    async def give_up() -> None:
        raise GiveUp("never")

    @domain.task
    async def wait() -> None:
        runs.set()
        await asyncio.Event().wait()

    async def last_outcomes(submitted: Any) -> list[str]:
        handle = await submitted
        await handle.wait()
        return [
            record.outcome for record in records(lines) if record.task_id == handle.id and "outcome" in vars(record)
        ]

    async with Scheduler(domains=[domain], shutdown_grace=0) as scheduler:
        async with scheduler.running():
            assert await last_outcomes(parent.submit()) == ["waiting", "completed"]
            assert await last_outcomes(give_up.submit()) == ["failed"]
            handle = await wait.submit()
            await runs.wait()
            await handle.cancel()
            await handle.wait()
            runs.clear()
            await wait.submit()
            await runs.wait()
        assert outcomes(lines)[-4:] == ["starts", "cancelled", "starts", "returned"]


async def test_a_task_that_ends_while_it_waits_has_a_line_without_an_attempt(lines: pytest.LogCaptureFixture) -> None:
    domain = Domain("d")

    @domain.task(group="g")
    async def work() -> None: ...

    async with Scheduler(domains=[domain]):
        handle = await work.submit()
        await handle.cancel()
    (end,) = records(lines)
    assert end.getMessage() == f"task {handle.id} (d::work) ended as cancelled"
    assert (end.task_id, end.attempt, end.group, end.outcome) == (handle.id, None, "g", "cancelled")


async def test_nothing_is_built_while_info_is_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "taskmill")
    monkeypatch.setattr("taskmill.runtime.task_log._about", lambda *_: pytest.fail("a line was built"))
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
        assert (await handle.record()).state == "completed"
    assert records(caplog) == []
