"""The return value of a spawn on the loop must be awaited; using it before that raises a clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from taskmill import Context, Domain, InvalidState, SubmissionError
from taskmill.testing.plugin import SchedulerFactory


@pytest.mark.parametrize(
    "use", [len, list, bool, lambda spawned: spawned[0], lambda spawned: spawned[:], lambda spawned: None in spawned]
)
@pytest.mark.parametrize("sibling", [False, True])
async def test_handles_that_were_not_awaited_are_no_empty_list(
    taskmill_scheduler: SchedulerFactory, use: Callable[[Any], object], sibling: bool
) -> None:
    domain = Domain("d")
    found: list[object] = []

    @domain.task
    async def child() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> None:
        spawn = ctx.spawn_siblings if sibling else ctx.spawn_many
        spawned = spawn([child.prepare()])
        with pytest.raises(InvalidState, match=r"await ctx\.spawn_many"):
            use(spawned)
        found.append(repr(spawned))
        handles = await spawned
        use(handles)
        assert handles is await spawned
        found.append([handle.kind for handle in handles])

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await parent.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).error is None
    assert found == ["<handles, to be awaited>", ["inserted"]]


async def test_handles_of_what_was_refused_are_no_empty_list_either(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def child() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> str:
        spawned = ctx.spawn_siblings([child.options(every=5).prepare()])
        with pytest.raises(SubmissionError) as refused:
            await spawned
        with pytest.raises(InvalidState):
            len(spawned)
        return str(refused.value)

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await parent.submit()
    await scheduler.run_until_idle()
    assert "sibling" in await handle.result()
    assert await scheduler.count() == 0
