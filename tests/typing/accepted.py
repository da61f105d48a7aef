"""Programs that type checkers must accept, and the types they must infer. Never run, only checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, assert_type

from taskmill import (
    Context,
    Domain,
    Handle,
    HistoryRecord,
    OnDuplicate,
    Priority,
    Retry,
    Scheduler,
    SchedulerSettings,
    Submission,
    Task,
    TaskRecord,
    blocking,
    to_json,
)
from taskmill.events import Event, TaskCompleted, TaskEvent, TaskFailed

sync = Domain("sync", priority=Priority.LOW, ttl=60, retry=Retry.none(), group="g", tags={"a": "b"}, timeout=5)


@dataclass
class Photo:
    path: Path
    size: int = 0


def label(path: str) -> str:
    return path


@sync.task
async def with_context(ctx: Context, path: str, times: int = 1) -> int:
    ctx.progress(0.5, "halfway")
    await ctx.save(done=times)
    return len(path) * times


@sync.task
async def without_context(photo: Photo, *, deep: bool = False) -> list[Photo]:
    return [photo]


@sync.task
def threaded_with_context(ctx: Context, path: str) -> str | None:
    return path if ctx.attempt > 1 else None


@sync.task
def threaded(*numbers: float) -> float:
    return sum(numbers)


@sync.task
async def nothing() -> None: ...


@sync.task(
    name="other",
    key=label,
    label=label,
    retry=Retry.exponential(5, initial=1, maximum=timedelta(minutes=1)),
    ttl=3600,
    on_duplicate="supersede",
    run_in="process",
)
def optioned(ctx: Context, path: str) -> dict[str, int]:
    return {path: 1}


@sync.task(priority=5)
async def optioned_without_context(path: str) -> bytes:
    return path.encode()


assert_type(with_context.name, str)


async def results() -> None:
    assert_type(await (await with_context.submit("a")).result(), int)
    assert_type(await (await with_context.submit(path="a", times=2)).result(), int)
    assert_type(await (await without_context.submit(Photo(Path("a")), deep=True)).result(), list[Photo])
    assert_type(await (await threaded_with_context.submit("a")).result(timeout=5), str | None)
    assert_type(await (await threaded.submit(1, 2.5)).result(), float)
    assert_type(await (await optioned.submit("a")).result(), dict[str, int])
    assert_type(await (await optioned_without_context.submit("a")).result(), bytes)
    handle: Handle[None] = await nothing.submit()
    await handle.result()


@sync.task
async def maybe_context(ctx: Context | None, path: str) -> int:
    return len(path)


async def called(ctx: Context) -> None:
    assert_type(await with_context(ctx, "a", times=2), int)
    assert_type(await without_context(Photo(Path("a"))), list[Photo])
    assert_type(threaded(1, 2.5), float)
    assert_type(optioned(ctx, "a"), dict[str, int])
    assert_type(await optioned_without_context(path="a"), bytes)
    assert_type(await maybe_context(None, "a"), int)
    assert_type(await maybe_context(ctx, "a"), int)
    maybe_context.prepare("a")


@with_context.on_cancel
async def clean_up(ctx: Context, path: str, times: int = 1) -> None: ...


@with_context.finalize
def sum_up(path: str, times: int = 1) -> int:
    return times


@nothing.on_cancel
def clean_nothing() -> None: ...


async def hooks(ctx: Context) -> None:
    await clean_up(ctx, "a")
    assert_type(sum_up("a"), int)


@sync.task(
    key=("photo.path", "bucket"),
    aliases=["old::name"],
    on_duplicate=OnDuplicate.REQUEUE,
    ttl_from="first_attempt",
    on_parent_expiry="cancel",
)
async def renamed(photo: Photo, bucket: str) -> int:
    return 1


async def submissions(ctx: Context, scheduler: Scheduler) -> None:
    assert_type(with_context.prepare("a"), Submission[int])
    assert_type(await scheduler.submit(with_context.prepare("a")), Handle[int])
    assert_type(await scheduler.submit_many([with_context.prepare("a"), with_context.prepare("b")]), list[Handle[int]])
    assert_type(await ctx.spawn(optioned.prepare("a")), Handle[dict[str, int]])
    assert_type(with_context.handle(5), Handle[int])
    by_name = Submission("sync::other", {"path": "a"}, ttl_from="submission", on_dependency_failure="fail")
    several: list[Submission] = [by_name, nothing.prepare()]
    await scheduler.submit_many(several)
    scheduler.provide(Photo(Path("a")), domain="sync")
    scheduler.provide(object(), object(), domain=sync)


def blocking_submissions(scheduler: blocking.Scheduler) -> None:
    assert_type(scheduler.submit(with_context.prepare("a")), blocking.Handle[int])
    assert_type(scheduler.submit(with_context.prepare("a")).result(), int)
    assert_type(scheduler.submit(threaded_with_context.prepare("a"), connection=object()).result(5), str | None)
    assert_type(scheduler.submit_many([optioned.prepare("a")]), list[blocking.Handle[dict[str, int]]])
    assert_type(scheduler.submit_many(with_context.prepare(each) for each in "ab")[1].result(), int)
    handle: blocking.Handle[None] = scheduler.submit(nothing.prepare())
    handle.result()
    several: list[Submission] = [Submission("sync::other", {"path": "a"}), nothing.prepare()]
    scheduler.submit_many(several)
    scheduler.provide(object())


async def states(scheduler: Scheduler, task: TaskRecord, ended: HistoryRecord) -> None:
    assert_type(task.state, Literal["pending", "scheduled", "blocked", "running", "paused", "waiting"])
    assert_type(
        ended.state,
        Literal["completed", "failed", "dead_letter", "cancelled", "superseded", "expired", "dependency_failed"],
    )
    await scheduler.tasks(status=task.state)
    await scheduler.history(status=ended.ending)
    await scheduler.count(status="running")


async def options() -> None:
    urgent = with_context.options(
        key="k",
        priority=Priority.HIGH,
        group=None,
        ttl=None,
        run_at=datetime.now(UTC),
        on_duplicate="supersede",
        tags={"a": "b"},
        label="l",
        retry=Retry.constant(3, 1),
        timeout=timedelta(seconds=5),
    )
    assert_type(await (await urgent.submit("a", 2)).result(), int)
    assert_type(await (await without_context.options(run_after=5).submit(Photo(Path("a")))).result(), list[Photo])
    assert_type(urgent.prepare("a"), Submission[int])


async def scheduling(path: Path) -> None:
    async with Scheduler(path, domains=[sync], max_concurrency=16, default_ttl=60) as scheduler:
        await scheduler.submit(Submission("sync::other", {"path": "a"}, priority=64, key=True))
        handles = await scheduler.submit_many([with_context.prepare("a"), nothing.prepare()])
        record = await scheduler.get(handles[0].id)
        assert_type(record.tags, Mapping[str, str])
        assert_type(record.run_at, datetime | None)
        async with scheduler.running() as same:
            assert_type(same, Scheduler)
            await same.stop(grace=1)
        async with scheduler.running(standby=True):
            assert_type(to_json(record), str)


async def listening(scheduler: Scheduler, waiting: blocking.Scheduler) -> None:
    async for anything in scheduler.events(domain="sync", since=17):
        assert_type(anything, Event)
    async for completed in scheduler.events(TaskCompleted, type="sync::other"):
        assert_type(completed, TaskCompleted)
        assert_type(completed.duration, timedelta)
    async for started in scheduler.events(TaskEvent):
        assert_type(started.task_id, int)
    for failed in waiting.events(TaskFailed):
        assert_type(failed.will_retry, bool)
        break
    for event in waiting.events():
        assert_type(event, Event)


def without_an_event_loop(path: Path, settings: SchedulerSettings) -> None:
    scheduler = blocking.Scheduler(path, **settings)
    scheduler.open()
    assert_type(with_context.submit_sync("a", 2), blocking.Handle[int])
    assert_type(threaded_with_context.submit_sync("a").result(timeout=5), str | None)
    with blocking.Scheduler(path, domains=[sync], default_ttl=60) as same, same.running(standby=True):
        assert_type(same, blocking.Scheduler)


def takes_any_task(task: Task[[str], object]) -> None:
    task.prepare("a")
