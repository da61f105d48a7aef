"""Middleware: async context managers around each attempt, for handlers on the loop, in threads and in processes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import pytest

import taskmill
from taskmill import ConfigError, Context, Domain, GiveUp, HistoryRecord, Retry, Scheduler, Task
from taskmill.define.middleware import Middleware
from tests.runtime.around import handlers

Log = list[str]


def named(name: str, log: Log) -> Middleware:
    @contextlib.asynccontextmanager
    async def middleware(ctx: Context) -> AsyncIterator[None]:
        log.append(f"{name} enters {ctx.task.type}")
        try:
            yield
        except BaseException as wrong:
            log.append(f"{name} sees {type(wrong).__name__}: {wrong}")
            raise
        log.append(f"{name} leaves")

    return middleware


async def ended(task: Task[..., Any], *arguments: Any, **settings: Any) -> HistoryRecord:
    """Run one task to its end."""
    async with Scheduler(**settings) as scheduler, scheduler.running():
        return await (await task.submit(*arguments)).wait()


def domain_of(handler: Callable[..., Any], **options: Any) -> tuple[Domain, Task[..., Any]]:
    domain = Domain("d", retry=Retry.none(), **options)
    return domain, domain.task(name="work")(handler)


def as_async(function: Callable[[], Any]) -> Callable[..., Any]:
    async def handler() -> Any:
        return function()

    return handler


def as_thread(function: Callable[[], Any]) -> Callable[..., Any]:
    def handler() -> Any:
        return function()

    return handler


either = pytest.mark.parametrize("kind", [as_async, as_thread])


@pytest.mark.parametrize("kind", ["on_loop", "in_thread", "in_process", "async_in_process"])
async def test_the_first_is_the_outermost_around_every_kind_of_handler(kind: str) -> None:
    log: Log = []
    record = await ended(
        getattr(handlers, kind), 7, domains=[handlers.work], middleware=[named("a", log), named("b", log)]
    )
    assert record.result["payload"] == {"n": 7}
    assert log == [f"a enters work::{kind}", f"b enters work::{kind}", "b leaves", "a leaves"]


@either
async def test_it_sees_the_exception_of_the_handler_itself(kind: Callable[..., Any]) -> None:
    class OwnError(Exception): ...

    seen: list[BaseException] = []
    wrong = OwnError("boom")

    def fail() -> None:
        raise wrong

    @contextlib.asynccontextmanager
    async def watch(ctx: Context) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as raised:
            seen.append(raised)
            raise

    domain, task = domain_of(kind(fail))
    record = await ended(task, domains=[domain], middleware=[watch])
    assert record.error == "OwnError: boom"
    assert seen == [wrong]


@pytest.mark.parametrize(
    ("how", "seen", "ending", "error"),
    [
        ("boom", "HandlerError: ValueError: boom", "dead_letter", "ValueError: boom"),
        ("give up", "GiveUp: no more", "failed", "no more"),
        ("later", "RetryLater: not now", "dead_letter", "not now"),
    ],
)
async def test_it_sees_the_text_of_an_exception_in_a_process(how: str, seen: str, ending: str, error: str) -> None:
    log: Log = []
    record = await ended(handlers.fail, how, domains=[handlers.work], middleware=[named("m", log)])
    assert log == ["m enters work::fail", f"m sees {seen}"]
    assert (record.ending, record.error) == (ending, error)


@either
async def test_an_exception_that_it_swallows_fails_the_attempt_anyway(
    kind: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("boom")

    @contextlib.asynccontextmanager
    async def swallow(ctx: Context) -> AsyncIterator[None]:
        with contextlib.suppress(ValueError):
            yield

    log: Log = []
    domain, task = domain_of(kind(fail))
    record = await ended(task, domains=[domain], middleware=[named("outer", log), swallow])
    assert (record.ending, record.error) == ("dead_letter", "ValueError: boom")
    assert log == ["outer enters d::work", "outer sees ValueError: boom"]
    (warning,) = [record for record in caplog.records if "swallowed" in record.getMessage()]
    assert warning.levelno == logging.WARNING
    assert "swallow swallowed ValueError: boom" in warning.getMessage()
    assert record.errors[0].traceback is not None
    for shown in (record.errors[0].traceback, caplog.text[caplog.text.index("Traceback") :]):
        assert "in fail" in shown
        assert "in swallow" not in shown
        assert os.path.join("taskmill", "execute") not in shown


@either
@pytest.mark.parametrize("when", ["called", "entered", "left", "seeing"])
async def test_its_own_failure_is_the_failure_of_the_attempt(kind: Callable[..., Any], when: str) -> None:
    ran: list[bool] = []

    def work() -> None:
        ran.append(True)
        if when == "seeing":
            raise ValueError("of the handler")

    @contextlib.asynccontextmanager
    async def breaking(ctx: Context) -> AsyncIterator[None]:
        if when == "entered":
            raise OSError(when)
        try:
            yield
        except ValueError:
            raise OSError(when) from None
        raise OSError(when)

    def middleware(ctx: Context) -> contextlib.AbstractAsyncContextManager[None]:
        if when == "called":
            raise OSError(when)
        return breaking(ctx)

    domain, task = domain_of(kind(work))
    record = await ended(task, domains=[domain], middleware=[middleware])
    assert (record.ending, record.error) == ("dead_letter", f"OSError: {when}")
    assert ran == ([True] if when in ("left", "seeing") else [])


@either
async def test_its_signals_are_those_of_a_handler(kind: Callable[..., Any]) -> None:
    @contextlib.asynccontextmanager
    async def refuse(ctx: Context) -> AsyncIterator[None]:
        raise GiveUp("not here")
        yield

    domain, task = domain_of(kind(lambda: None))
    record = await ended(task, domains=[domain], middleware=[refuse])
    assert (record.ending, record.error) == ("failed", "not here")


@either
async def test_a_result_that_cannot_be_stored_is_a_failure_that_it_sees(kind: Callable[..., Any]) -> None:
    log: Log = []
    domain, task = domain_of(kind(object))
    record = await ended(task, domains=[domain], middleware=[named("m", log)])
    assert record.ending == "failed"
    assert log[1].startswith("m sees GiveUp: the result cannot be stored")


@either
async def test_each_attempt_has_its_own(kind: Callable[..., Any]) -> None:
    log: Log = []
    domain = Domain("d", retry=Retry.constant(1, delay=0))

    def fail() -> None:
        raise ValueError("boom")

    task = domain.task(name="work")(kind(fail))
    await ended(task, domains=[domain], middleware=[named("m", log)])
    assert log == ["m enters d::work", "m sees ValueError: boom"] * 2


@either
async def test_a_handler_sees_its_context_variables_and_its_state(kind: Callable[..., Any]) -> None:
    session: ContextVar[str] = ContextVar("session")
    left: list[str] = []

    class Database:
        name = "db"

    @contextlib.asynccontextmanager
    async def open_session(ctx: Context) -> AsyncIterator[None]:
        record = taskmill.current_task()
        assert record is not None
        token = session.set(f"{ctx.state(Database).name} of {record.type}")
        yield
        left.append(session.get())
        session.reset(token)

    domain, task = domain_of(kind(session.get))
    record = await ended(task, domains=[domain], middleware=[open_session], state=[Database()])
    assert record.result == "db of d::work"
    assert left == ["db of d::work"]


async def test_middleware_and_handler_share_the_saved_state() -> None:
    domain = Domain("d")
    found: list[Any] = []

    @domain.task
    async def on_loop(ctx: Context) -> Any:
        await ctx.save(b=2)
        return dict(ctx.saved)

    @contextlib.asynccontextmanager
    async def saving(ctx: Context) -> AsyncIterator[None]:
        await ctx.save(a=1)
        yield
        found.append(dict(ctx.saved))

    record = await ended(on_loop, domains=[domain], middleware=[saving])
    assert record.result == {"a": 1, "b": 2}
    assert found == [{"a": 1, "b": 2}]
    record = await ended(handlers.saved_before, domains=[handlers.work], middleware=[saving])
    assert record.result == {"a": 1}


async def test_finalize_is_an_attempt_and_on_cancel_is_not() -> None:
    log: Log = []
    domain = Domain("d")
    runs = asyncio.Event()

    @domain.task
    async def child() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> None:
        log.append("handler")
        await ctx.spawn(child.prepare())

    @parent.finalize
    async def finish() -> None:
        log.append("finalize")

    @domain.task
    async def wait() -> None:
        runs.set()
        await asyncio.Event().wait()

    @wait.on_cancel
    async def clean_up() -> None:
        log.append("on_cancel")

    async with Scheduler(domains=[domain], middleware=[named("m", log)]) as scheduler, scheduler.running():
        await (await parent.submit()).wait()
        around = ["m enters d::parent", "handler", "m leaves"]
        of_child = ["m enters d::child", "m leaves"]
        assert log == [*around, *of_child, "m enters d::parent", "finalize", "m leaves"]
        log.clear()
        handle = await wait.submit()
        await runs.wait()
        await handle.cancel()
        await handle.wait()
    assert log == ["m enters d::wait", "m sees CancelledError: ", "on_cancel"]


async def test_a_cancelled_thread_ends_the_attempt_when_it_has_really_ended() -> None:
    log: Log = []
    domain = Domain("d")
    runs, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @domain.task
    def stubborn(ctx: Context) -> None:
        loop.call_soon_threadsafe(runs.set)
        may_end.wait()
        ctx.check_cancelled()

    @domain.task
    async def other() -> None: ...

    async with Scheduler(domains=[domain], middleware=[named("m", log)]) as scheduler, scheduler.running():
        handle = await stubborn.submit()
        await runs.wait()
        await handle.cancel()
        (waiting,) = [task for task in asyncio.all_tasks() if task.get_name() == "d::stubborn"]
        waiting.cancel()  # From outside, as the end of a loop does.
        await asyncio.wait([waiting])
        assert log[-1] == "m sees CancelledError: "
        await (await other.submit()).wait()  # A turn later.
        assert [record.id for record in await scheduler.tasks(status="running")] == [handle.id]
        may_end.set()
        assert (await handle.wait()).ending == "cancelled"


async def test_a_task_is_stopped_while_its_middleware_waits() -> None:
    domain = Domain("d")
    runs, seen = asyncio.Event(), []

    @domain.task
    def work() -> None:
        seen.append("handler")

    @contextlib.asynccontextmanager
    async def slow(ctx: Context) -> AsyncIterator[None]:
        runs.set()
        await asyncio.Event().wait()
        yield

    async with Scheduler(domains=[domain], middleware=[slow]) as scheduler, scheduler.running():
        handle = await work.submit()
        await runs.wait()
        await handle.cancel()
        assert (await handle.wait()).ending == "cancelled"
    assert seen == []


async def test_a_process_is_ended_inside_middleware() -> None:
    log: Log = []
    record = await ended(handlers.endless, domains=[handlers.work], middleware=[named("m", log)])
    assert (record.ending, record.error) == ("dead_letter", "TimeoutError: exceeded its timeout of 0.2 s")
    assert log == ["m enters work::endless", "m sees CancelledError: "]


async def test_it_sees_a_handler_raise_stop_iteration_in_a_thread() -> None:
    log: Log = []

    def work() -> None:
        raise StopIteration("over")

    domain, task = domain_of(work)
    record = await ended(task, domains=[domain], middleware=[named("m", log)])
    assert record.error == "StopIteration: over"
    assert log[1] == "m sees HandlerError: StopIteration: over"


@pytest.mark.one_engine("it is refused before there is a store")
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1], r"middleware\[0\] must be a function that takes a Context, got 1"),
        ([named("m", []), None], r"middleware\[1\] must be a function"),
        (named("m", []), "middleware must be a list of functions"),
        ("session", "middleware must be a list of functions"),
        (None, "middleware must be a list of functions"),
    ],
)
def test_an_invalid_middleware_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scheduler(middleware=given)


@pytest.mark.one_engine("it is refused before there is a store")
def test_a_forgotten_decorator_is_named() -> None:
    async def session(ctx: Context) -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigError, match=r"decorate session with contextlib\.asynccontextmanager"):
        Scheduler(middleware=[session])  # type: ignore[list-item]
