"""Calls that do not fit the handler. Every line with the mark, and no other, must be reported."""

from __future__ import annotations

from taskmill import Context, Domain

domain = Domain("wrong")


@domain.task
async def with_context(ctx: Context, path: str, times: int = 1) -> int:
    return times


@domain.task(priority=5)
def threaded(path: str) -> str:
    return path


async def submitted(ctx: Context) -> None:
    await with_context.submit(5)  # refused
    await with_context.submit()  # refused
    await with_context.submit("a", colour="red")  # refused
    await with_context.submit("a", times="many")  # refused
    await with_context.submit("a", 1, 2)  # refused
    await with_context.submit(ctx, "a")  # refused
    await threaded.submit(5)  # refused
    await threaded.submit()  # refused
    await threaded.submit("a", colour="red")  # refused
    await with_context.submit("a", 2)
    await threaded.submit(path="a")


def prepared() -> None:
    with_context.prepare(5)  # refused
    with_context.prepare()  # refused
    with_context.prepare("a", colour="red")  # refused
    threaded.prepare(b"a")  # refused
    with_context.prepare("a", times=2)


async def with_options() -> None:
    await with_context.options(priority=1).submit(5)  # refused
    await with_context.options(priority=1).submit()  # refused
    await with_context.options(priority=1).submit("a", colour="red")  # refused
    with_context.options(priority=1).prepare(5)  # refused
    await threaded.options(key="k").options(ttl=5).submit(5)  # refused
    await with_context.options(priority=1).submit("a")


async def results() -> None:
    number: str = await (await with_context.submit("a")).result()  # refused
    text: int = await (await threaded.options(priority=1).submit("a")).result()  # refused
    print(number, text)
