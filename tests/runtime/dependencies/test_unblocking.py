"""``TaskUnblocked`` is sent once, when the last dependency is met, whatever else holds the task back."""

from __future__ import annotations

import asyncio
from typing import Any

from taskmill import Context, Domain, Scheduler
from taskmill.events import TaskBlocked, TaskUnblocked
from taskmill.model.events import TaskEvent
from taskmill.observe.bus import Listener
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def told(clock: ManualClock, listener: Listener[Any]) -> list[tuple[str, int]]:
    """Return the events that a listener has received so far."""
    heard: list[tuple[str, int]] = []

    async def listen() -> None:
        async for event in listener:
            assert isinstance(event, TaskEvent)
            heard.append((type(event).__name__, event.task_id))

    listening = asyncio.create_task(listen())
    await clock.advance(0)
    listening.cancel()
    return heard


def listen_to(scheduler: Scheduler) -> Listener[Any]:
    return scheduler.events(TaskBlocked, TaskUnblocked)


async def test_a_child_is_unblocked_even_if_its_siblings_still_hold_it_back(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    go = {name: asyncio.Event() for name in "abc"}
    ids: dict[str, int] = {}

    @domain.task
    async def child(name: str) -> None:
        await go[name].wait()

    @domain.task(max_children=1)
    async def parent(ctx: Context, first: int) -> None:
        handles = await ctx.spawn_many(
            [
                child.prepare("a"),
                child.options(depends_on=first).prepare("b"),
                child.options(depends_on=done.id).prepare("c"),
            ]
        )
        ids.update(zip("abc", (handle.id for handle in handles), strict=True))

    @domain.task
    async def first() -> None:
        await go["b"].wait()

    @domain.task
    async def nothing() -> None:
        pass

    scheduler = await taskmill_scheduler(domains=[domain])
    done = await nothing.submit()
    await scheduler.run_until_idle()
    listener = listen_to(scheduler)
    async with scheduler.running():
        blocker = await first.submit()
        handle = await parent.submit(blocker.id)
        await manual_clock.advance(0)
        go["b"].set()
        heard = await told(manual_clock, listener)
        status = (await scheduler.get(ids["b"])).status  # type: ignore[union-attr]
        go["a"].set()
        go["c"].set()
        await handle.wait()
        heard += await told(manual_clock, listener)
    assert status == "blocked"
    assert heard == [("TaskBlocked", ids["b"]), ("TaskUnblocked", ids["b"])], "the dependency of c had ended before"


async def test_a_replacement_is_unblocked_even_if_the_old_attempt_has_not_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    hook_may_end = asyncio.Event()
    go = asyncio.Event()
    ran: list[int] = []

    @domain.task(key=lambda version: "k", on_duplicate="supersede")
    async def keyed(version: int) -> None:
        ran.append(version)
        if version == 1:
            await asyncio.Event().wait()

    @keyed.on_cancel
    async def stopped(version: int) -> None:
        await hook_may_end.wait()

    @domain.task
    async def blocker() -> None:
        await go.wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = listen_to(scheduler)
    async with scheduler.running():
        await keyed.submit(1)
        blockers = [await blocker.submit(), await blocker.submit()]
        await manual_clock.advance(0)
        replacement = await keyed.options(depends_on=blockers).submit(2)
        await manual_clock.advance(0)
        go.set()
        heard = await told(manual_clock, listener)
        before = list(ran)
        hook_may_end.set()
        await replacement.wait()
        heard += await told(manual_clock, listener)
    assert (before, ran) == ([1], [1, 2])
    assert heard == [("TaskBlocked", replacement.id), ("TaskUnblocked", replacement.id)]
