"""Support for tests of programs: a Context without a scheduler, inline mode, and a scheduler that always closes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taskmill import (
    AttemptError,
    ConfigError,
    Context,
    Domain,
    GiveUp,
    InvalidState,
    IoBudget,
    Retry,
    Submission,
    TaskFailed,
    TaskProgress,
)
from taskmill.define.middleware import HandlerError
from taskmill.testing import ManualClock, ObservedScheduler, context
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.around import handlers

no_store = pytest.mark.one_engine("a Context without a scheduler has no store")


NAIVE = datetime(2030, 1, 1)


class Database:
    def __init__(self, name: str) -> None:
        self.name = name


def make_domain() -> Domain:
    domain = Domain("shop", retry=Retry.none())

    @domain.task
    async def ship(ctx: Context, order: str) -> str:
        ctx.progress(0.5, "packed")
        ctx.progress.bytes(10)
        ctx.progress.advance(4)
        ctx.record_io(disk_write=3)
        ctx.record_io(disk_write=4, net_tx=1)
        await ctx.save(step=ctx.saved.get("step", 0) + 1)
        handle = await ctx.spawn(Submission("shop::label", {"order": order}))
        await ctx.spawn_sibling(Submission("shop::bill"))
        assert handle.kind == "inserted"
        return f"{order} {ctx.attempt} {ctx.state(Database).name}"

    @domain.task
    def pack(ctx: Context) -> None:
        ctx.save(packed=True)
        assert [handle.id for handle in ctx.spawn_many([Submission("shop::label")] * 2)] == [1, 2]
        while True:
            ctx.check_cancelled()

    @domain.task
    async def label(order: str = "") -> None: ...

    @domain.task
    async def bill() -> None:
        raise KeyError("no such customer")

    return domain


def tasks(domain: Domain) -> dict[str, Any]:
    return {name.removeprefix("shop::"): kind.function for name, kind in domain.types.items()}


@no_store
async def test_a_handler_is_called_as_a_plain_function() -> None:
    ship = tasks(make_domain())["ship"]
    ctx = context(type="shop::ship", id=9, attempt=2, saved={"step": 4}, replaced={"old": 1}, state=[Database("db")])
    assert await ship(ctx, "book") == "book 2 db"
    assert [(each.fraction, each.message, each.done_bytes) for each in ctx.reported] == [
        (0.5, "packed", None),
        (0.0, "packed", 0),
        (0.4, "packed", 4),
    ]
    assert ctx.moved == IoBudget(disk_write=7, net_tx=1)
    assert ctx.saved == {"step": 5}
    assert ctx.replaced == {"old": 1}
    assert [(each.type, each.payload) for each in ctx.spawned] == [("shop::label", {"order": "book"})]
    assert [each.type for each in ctx.siblings] == ["shop::bill"]
    assert (ctx.task.id, ctx.task.domain, ctx.task.status) == (9, "shop", "running")


@no_store
def test_a_def_handler_spawns_saves_and_is_cancelled() -> None:
    pack = tasks(make_domain())["pack"]
    ctx = context(cancelled=True)
    with pytest.raises(asyncio.CancelledError):
        pack(ctx)
    assert ctx.saved == {"packed": True}
    assert len(ctx.spawned) == 2
    assert ctx.cancelled
    ctx.cancelled = False
    ctx.check_cancelled()


@no_store
async def test_a_spawned_task_cannot_be_awaited() -> None:
    handle = await context().spawn(Submission("shop::label"))
    with pytest.raises(InvalidState, match="nothing runs it"):
        await handle.result()


@no_store
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"retriess": 1}, "context has no setting 'retriess'; did you mean retries"),
        ({"id": "one"}, "context: .*id"),
        ({"attempt": None}, "context: .*attempt"),
        ({"created_at": "yesterday"}, "context: .*created_at"),
        ({"tags": {"a": 1}}, "context: .*tags"),
        ({"type": "ship"}, "context: type must be a task or its full name"),
        ({"type": 5}, "context: type must be a task or its full name"),
        ({"saved": [1]}, "context: saved must be a mapping"),
        ({"replaced": {"a": object()}}, "context: replaced must be JSON"),
        ({"cancelled": 1}, "context: cancelled must be True or False"),
        ({"state": 5}, "state"),
        ({"state": [None]}, "state: give objects .* not None"),
        ({"children": 3}, "context: children must be a list of HistoryRecord"),
        ({"children": [3]}, "context: children must be HistoryRecord objects, got 3"),
        ({"priority": 999}, "context: priority must be from 0"),
        ({"priority": "high"}, "context: priority must be an int"),
        ({"attempt": 0}, "context: attempt must be 1 or more, got 0"),
        ({"id": -1}, "context: id must be 1 or more, got -1"),
        ({"retries": -1}, "context: retries must be 0 or more"),
        ({"effective_priority": 999}, "context: effective_priority must be from 0"),
        ({"errors": ["E"]}, "context: .*errors"),
        ({"created_at": NAIVE}, "context: created_at must be an aware datetime"),
        ({"run_at": NAIVE}, "context: run_at must be an aware datetime"),
        ({"expires_at": NAIVE}, "context: expires_at must be an aware datetime"),
        ({"started_at": NAIVE}, "context: started_at must be an aware datetime"),
        ({"errors": [AttemptError(1, NAIVE, "failed", "E", None, None, None)]}, "context: errors: at must be an aware"),
        ({"payload": 5}, "context: payload must be a mapping"),
        ({"payload": {"a": object()}}, "context: payload must be JSON"),
        ({"payload": {"a": [(1, 2)]}}, r"context: payload must be JSON, which would change .*\(1, 2\)"),
        ({"payload": {"a": float("nan")}}, "context: payload must be JSON, which would change"),
        ({"payload": {1: "a"}}, "context: payload must be JSON, which would change"),
        ({"saved": {"a": {1}}}, "context: saved must be JSON, which would change"),
        ({"replaced": {"a": b"x"}}, "context: replaced must be JSON, which would change"),
    ],
)
def test_a_wrong_field_is_refused_and_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        context(**fields)


@no_store
def test_saved_values_of_one_context_can_be_given_to_another() -> None:
    first = context(saved={"a": {"b": [1, None]}})
    second = context(payload={"known": first.saved}, saved=first.saved, replaced=first.saved)
    assert second.saved == second.replaced == {"a": {"b": [1, None]}}
    assert second.task.payload == {"known": {"a": {"b": [1, None]}}}


@no_store
def test_every_field_of_the_task_can_be_given() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    wrong = AttemptError(1, moment, "failed", "E", None, "here", timedelta(seconds=1))
    ctx = context(
        key="k",
        label="l",
        group="g",
        priority=3,
        payload={"a": 1},
        tags={"t": "x"},
        created_at=moment,
        run_at=moment,
        expires_at=moment,
        parent_id=4,
        retries=2,
        io=IoBudget(net_rx=1),
        last_error="E",
        effective_priority=2,
        started_at=moment,
        progress=TaskProgress(0.5),
        errors=[wrong],
    )
    task = ctx.task
    assert (task.key, task.label, task.group, task.priority, task.effective_priority) == ("k", "l", "g", 3, 2)
    assert (task.payload, task.tags, task.created_at, task.run_at) == ({"a": 1}, {"t": "x"}, moment, moment)
    assert (task.expires_at, task.parent_id, task.retries, task.io) == (moment, 4, 2, IoBudget(net_rx=1))
    assert (task.last_error, task.started_at, task.progress, task.errors) == ("E", moment, TaskProgress(0.5), (wrong,))
    with pytest.raises(ConfigError, match="no state of type Database"):
        ctx.state(Database)


# Inline mode


async def test_inline_raise_raises_the_error_of_the_handler_at_submit(taskmill_scheduler: SchedulerFactory) -> None:
    domain = make_domain()
    scheduler = await taskmill_scheduler(domains=[domain], inline="raise")
    with pytest.raises(KeyError, match="no such customer"):
        await scheduler.submit(Submission("shop::bill"))
    scheduler.assert_submitted("shop::bill")
    await scheduler.submit(Submission("shop::label"))


async def test_inline_raise_raises_the_last_error_if_retries_fail_or_wait(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    runs: list[int] = []

    @domain.task(retry=Retry.constant(2, delay=0))
    def heal() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ValueError(f"attempt {len(runs)}")

    @domain.task(retry=Retry.constant(3, delay=60))
    def fail_later() -> None:
        raise ValueError("for now")

    await taskmill_scheduler(domains=[domain], inline="raise")
    await heal.submit()
    assert len(runs) == 3
    with pytest.raises(ValueError, match="for now"):
        await fail_later.submit()


async def test_inline_raise_raises_nothing_for_a_duplicate_of_a_task_that_did_not_run(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task(key="k", retry=Retry.constant(3, delay=60))
    def fail_later() -> None:
        raise ValueError("for now")

    await taskmill_scheduler(domains=[domain], inline="raise")
    with pytest.raises(ValueError, match="for now"):
        await fail_later.submit()
    duplicate = await fail_later.submit()
    record = await duplicate.record()
    assert (duplicate.kind, record.state, record.attempt) == ("duplicate", "scheduled", 1)
    assert record.last_error == "ValueError: for now"
    await manual_clock.advance(60)
    with pytest.raises(ValueError, match="for now"):
        await fail_later.submit()


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("boom", ValueError, "^boom$"),
        ("give up", GiveUp, "^no more$"),
        ("key", KeyError, "missing"),
        ("text", HandlerError, "^UnicodeDecodeError: "),
        ("stop", HandlerError, "^StopIteration: over$"),
        ("own", HandlerError, "^OwnError: mine$"),
    ],
)
async def test_inline_raise_raises_a_built_in_exception_of_a_handler_in_a_process(
    taskmill_scheduler: SchedulerFactory, how: str, kind: type[Exception], message: str
) -> None:
    await taskmill_scheduler(domains=[handlers.work], inline="raise")
    with pytest.raises(kind, match=message):
        await handlers.fail.submit(how)


async def test_inline_raise_raises_task_failed_if_no_handler_of_the_task_failed(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = make_domain()

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(Submission("shop::bill"))

    await taskmill_scheduler(domains=[domain], inline="raise")
    with pytest.raises(TaskFailed, match=r"ended as failed.*no such customer") as raised:
        await parent.submit()
    assert raised.value.record.type == "shop::parent"


async def test_inline_keeps_the_middleware_of_the_program(taskmill_scheduler: SchedulerFactory) -> None:
    seen: list[str] = []

    @contextlib.asynccontextmanager
    async def watch(ctx: Context) -> AsyncIterator[None]:
        seen.append(ctx.task.type)
        yield

    scheduler = await taskmill_scheduler(domains=[make_domain()], inline="raise", middleware=[watch])
    await scheduler.submit(Submission("shop::label"))
    assert seen == ["shop::label"]


@pytest.mark.one_engine("it is refused before there is a store")
@pytest.mark.parametrize("inline", ["raises", 1, 0, None])
async def test_another_word_for_inline_is_refused(taskmill_scheduler: SchedulerFactory, inline: Any) -> None:
    with pytest.raises(ConfigError, match=f"inline must be True, False or 'raise', got {inline!r}"):
        await taskmill_scheduler(inline=inline)


async def test_spawned_tasks_count_as_submitted(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def child(n: int) -> None: ...

    @domain.task
    def parent(ctx: Context) -> None:
        ctx.spawn_many([child.prepare(1), child.prepare(2)])

    scheduler = await taskmill_scheduler(domains=[domain], inline=True)
    scheduler.assert_not_submitted(child)
    await parent.submit()
    assert scheduler.assert_submitted(child, n=2).payload == {"n": 2}
    assert [each.type for each in scheduler.submitted] == ["d::parent", "d::child", "d::child"]


# Closing


@pytest.mark.parametrize("kind", ["sleeping", "stubborn", "thread", "hook", "middleware"])
async def test_the_scheduler_closes_while_a_handler_is_at_work_on_a_still_clock(
    manual_clock: ManualClock, kind: str
) -> None:
    domain = Domain("d")
    runs, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def sleep_long() -> None:
        runs.set()
        await manual_clock.sleep(3600)

    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await sleep_long()

    def thread() -> None:
        loop.call_soon_threadsafe(runs.set)
        may_end.wait()

    @contextlib.asynccontextmanager
    async def middleware(ctx: Context) -> AsyncIterator[None]:
        yield
        if kind == "middleware":
            await sleep_long()

    async def nothing() -> None: ...

    handler: Any = {"stubborn": stubborn, "thread": thread, "middleware": nothing}.get(kind, sleep_long)
    task = domain.task(name="work")(handler)
    task.on_cancel(sleep_long)
    async with asyncio.timeout(20):
        async with ObservedScheduler(domains=[domain], clock=manual_clock, middleware=[middleware]) as scheduler:
            dispatching = asyncio.create_task(scheduler.run())
            handle = await task.submit()
            await runs.wait()
            if kind == "hook":
                runs.clear()
                await handle.cancel()
                await runs.wait()
        await dispatching
    may_end.set()
