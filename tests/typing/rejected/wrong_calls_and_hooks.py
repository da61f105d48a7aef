"""Calls, hooks and results of the wrong type. Every line with the mark, and no other, must be reported."""

from __future__ import annotations

from taskmill import Context, Domain, Handle, Scheduler, Submission, TaskRecord

domain = Domain("wrong")


@domain.task
async def with_context(ctx: Context, path: str, times: int = 1) -> int:
    return times


@domain.task(priority=5)
def threaded(path: str) -> str:
    return path


async def called(ctx: Context) -> None:
    await with_context("a")  # refused
    await with_context(ctx, 5)  # refused
    await with_context(ctx, "a", colour="red")  # refused
    threaded(5)  # refused
    threaded()  # refused
    text: str = await with_context(ctx, "a")  # refused
    number: int = threaded("a")  # refused
    await with_context(ctx, "a", 5)
    threaded(text + str(number))


def without_times(ctx: Context, path: str) -> None: ...
def other_path(path: int, times: int = 1) -> None: ...
def more(ctx: Context, path: str, times: int, colour: str) -> None: ...
def right(path: str, times: int = 1) -> None: ...


with_context.on_cancel(without_times)  # refused
with_context.on_cancel(other_path)  # refused
with_context.on_cancel(more)  # refused
with_context.finalize(other_path)  # refused
threaded.finalize(other_path)  # refused
with_context.finalize(right)


async def results(scheduler: Scheduler, record: TaskRecord) -> None:
    handle: Handle[str] = await scheduler.submit(with_context.prepare("a"))  # refused
    prepared: Submission[str] = with_context.prepare("a")  # refused
    again: Handle[str] = with_context.handle(5)  # refused
    with_context.handle("5")  # refused
    if record.state == "completed":  # refused
        return
    await scheduler.tasks(status="completet")  # refused
    await scheduler.count(status=record.state)
    print(handle, prepared, again)
