"""Hooks are called with the arguments of the handler, its Context included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from taskmill import ConfigError, Context, Domain
from taskmill.testing.plugin import SchedulerFactory


async def test_a_hook_gets_the_context_under_the_name_that_the_handler_uses_without_an_annotation(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d")
    seen: list[object] = []
    started = asyncio.Event()

    @domain.task
    async def part(ctx: Context, name: str) -> None:
        started.set()
        await asyncio.Event().wait()

    @part.on_cancel
    def abort(ctx, name="none"):  # type: ignore[no-untyped-def]
        seen.append((type(ctx), ctx.task.type, name))

    @domain.task
    async def whole(context: Context | None, name: str) -> None:
        assert context is not None
        await context.spawn(part.prepare(name))

    @whole.finalize
    async def finish(context, name):  # type: ignore[no-untyped-def]
        seen.append((type(context), [child.state for child in context.children], name))

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        parent = await whole.submit("a")
        await started.wait()
        (child,) = await scheduler.tasks(parent=parent.id)
        await scheduler.cancel(child.id)
        assert (await parent.wait()).ending == "completed"
    assert seen == [(Context, "d::part", "a"), (Context, ["cancelled"], "a")]


@pytest.mark.one_engine("nothing is stored")
@pytest.mark.parametrize(
    "hook",
    [
        lambda: None,
        lambda ctx: None,
        lambda ctx, path: None,
        lambda ctx, path, size, more: None,
        lambda ctx, path, *, length: None,
    ],
)
def test_a_hook_that_cannot_be_called_with_the_arguments_of_the_handler_is_refused(hook: Callable[..., Any]) -> None:
    domain = Domain("d")

    @domain.task
    async def work(ctx: Context, path: str, *, size: int = 1) -> None: ...

    with pytest.raises(ConfigError, match=r"^d::work\.on_cancel is called with the arguments of the handler: "):
        work.on_cancel(hook)
    with pytest.raises(ConfigError, match=r"^d::work\.finalize is called with the arguments of the handler: "):
        work.finalize(hook)


@pytest.mark.one_engine("nothing is stored")
@pytest.mark.parametrize(
    "hook",
    [
        lambda path, *, size: None,
        lambda ctx, path, *, size: None,
        lambda ctx, path, more=2, *, size: None,
        lambda *all, **rest: None,
    ],
)
def test_a_hook_may_leave_out_the_context_or_take_more(hook: Callable[..., Any]) -> None:
    domain = Domain("d")

    @domain.task
    async def work(ctx: Context, path: str, *, size: int = 1) -> None: ...

    work.on_cancel(hook)
    work.finalize(hook)
