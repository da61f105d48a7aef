"""What type checkers must accept, and the types they must see. Never run, only checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import assert_type

from taskmill import Context, Domain, Handle, Priority, Retry, Scheduler, Submission, Task

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
    assert_type(urgent.prepare("a"), Submission)


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


def takes_any_task(task: Task[[str], object]) -> None:
    task.prepare("a")
