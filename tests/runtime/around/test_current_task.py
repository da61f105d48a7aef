"""``current_task()`` and ``TaskLogFilter`` know the task that the running code belongs to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import taskmill
from taskmill import Context, Domain, Retry, Scheduler, Task, TaskLogFilter
from tests.runtime.around import handlers
from tests.runtime.around.handlers import fields_logged, told

KINDS = ["on_loop", "in_thread", "in_process", "async_in_process"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_handler_knows_its_task_wherever_it_runs(kind: str) -> None:
    task: Task[..., dict[str, Any]] = getattr(handlers, kind)
    async with Scheduler(domains=[handlers.work]) as scheduler:
        handle = await task.submit(7)
        await scheduler.run_until_idle()
        assert await handle.result() == {
            "id": handle.id,
            "type": f"work::{kind}",
            "payload": {"n": 7},
            "attempt": 1,
            "logged": [handle.id, f"work::{kind}", 1, "g"],
        }


async def test_finalize_knows_its_task_in_a_process_too() -> None:
    async with Scheduler(domains=[handlers.work]) as scheduler:
        handle = await handlers.parent_in_process.submit()
        await scheduler.run_until_idle()
        result = (await handle.wait()).result
        assert (result["id"], result["attempt"]) == (handle.id, 2)


@pytest.mark.parametrize("is_async", [True, False])
async def test_hooks_and_finalize_know_their_task(is_async: bool) -> None:
    domain = Domain("d")
    seen: dict[str, Any] = {}
    runs = asyncio.Event()

    @domain.task
    async def child() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.prepare())

    @domain.task
    async def wait() -> None:
        runs.set()
        await asyncio.Event().wait()

    def finalize() -> None:
        seen["finalize"] = told()["id"]

    def clean_up() -> None:
        seen["on_cancel"] = told()["id"]

    async def async_finalize() -> None:
        finalize()

    async def async_clean_up() -> None:
        clean_up()

    parent.finalize(async_finalize if is_async else finalize)
    wait.on_cancel(async_clean_up if is_async else clean_up)
    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        finalized = await parent.submit()
        await finalized.wait()
        cancelled = await wait.submit()
        await runs.wait()
        await cancelled.cancel()
        await cancelled.wait()
    assert seen == {"finalize": finalized.id, "on_cancel": cancelled.id}


async def test_tasks_that_run_at_once_do_not_see_each_other() -> None:
    domain = Domain("d")
    here, seen = asyncio.Barrier(3), []

    @domain.task
    async def meet(n: int) -> None:
        await here.wait()
        record = taskmill.current_task()
        assert record is not None
        seen.append((n, record.payload["n"], await asyncio.create_task(_payload()), await asyncio.to_thread(_n)))

    async def _payload() -> int:
        return _n()

    def _n() -> int:
        record = taskmill.current_task()
        assert record is not None
        return int(record.payload["n"])

    async with Scheduler(domains=[domain]) as scheduler:
        await scheduler.submit_many([meet.prepare(n) for n in range(3)])
        await scheduler.run_until_idle()
    assert sorted(seen) == [(n, n, n, n) for n in range(3)]


async def test_a_retry_is_another_attempt() -> None:
    domain = Domain("d", retry=Retry.constant(1, delay=0))
    seen = []

    @domain.task
    def fail() -> None:
        seen.append(told()["attempt"])
        raise ValueError

    async with Scheduler(domains=[domain]) as scheduler:
        await fail.submit()
        await scheduler.run_until_idle()
    assert seen == [1, 2]


async def test_outside_of_tasks_there_is_no_current_task() -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        assert taskmill.current_task() is not None

    @domain.task
    def work_in_thread() -> None:
        assert taskmill.current_task() is not None

    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        for task in (work, work_in_thread):
            handle = await task.submit()
            await handle.result()
            assert taskmill.current_task() is None
            assert await asyncio.to_thread(taskmill.current_task) is None
            assert fields_logged() == [None, None, None, None]


@pytest.mark.parametrize("kind", ["on_loop", "in_thread", "in_process"])
@pytest.mark.parametrize("middleware", [False, True], ids=["bare", "swallowed"])
async def test_all_log_records_about_a_failed_attempt_have_its_fields(
    kind: str, middleware: bool, caplog: pytest.LogCaptureFixture
) -> None:
    @contextlib.asynccontextmanager
    async def swallow(_ctx: Context) -> AsyncIterator[None]:
        with contextlib.suppress(ValueError):
            yield

    task: Task[..., None] = getattr(handlers, f"fail_{kind}")
    caplog.handler.addFilter(TaskLogFilter())
    async with Scheduler(domains=[handlers.work], middleware=[swallow] if middleware else []) as scheduler:
        handle = await task.submit()
        await scheduler.run_until_idle()
    said = {record.levelname: record for record in caplog.records if record.name == "taskmill"}
    assert set(said) == {"WARNING", "ERROR"}, "it raised, and it is a dead letter"
    for record in caplog.records:
        if record.levelno >= logging.WARNING and record.name == "taskmill":
            fields = [vars(record)[name] for name in ("task_id", "task_type", "attempt", "group")]
            assert fields == [handle.id, task.name, 1, "g"], record.getMessage()


async def test_the_filter_keeps_what_a_record_says_about_another_task() -> None:
    domain = Domain("d")

    @domain.task(group="g")
    async def fields(about: int) -> list[Any]:
        record = logging.makeLogRecord({"task_id": about, "task_type": "a::b"})
        assert TaskLogFilter().filter(record)
        return [vars(record)[name] for name in ("task_id", "task_type", "attempt", "group")]

    assert await fields(5) == [5, "a::b", None, None]
    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        assert await (await fields.submit(5)).result() == [5, "a::b", None, None]
        handle = await fields.submit(2)
        assert await handle.result() == [handle.id, "a::b", 1, "g"]
