"""A scheduler that does not run a task announces its last failure also if the task was revived before the next read."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from taskmill import Context, Retry, Scheduler
from taskmill.events import TaskCancelled, TaskCompleted, TaskDeadLettered, TaskDispatched, TaskFailed
from tests.both_engines import Engine
from tests.runtime.events.test_other_processes import (
    SOON,
    Gate,
    double,
    fail,
    give_up,
    kinds,
    pair,
    until,
    until_completed,
    work,
)


@work.task(retry=Retry.none())
async def fail_with_a_child(ctx: Context) -> None:
    await ctx.spawn(hold_on.prepare())
    raise ValueError("broken")


@work.task
async def hold_on() -> None:
    try:
        await asyncio.sleep(SOON)
    except asyncio.CancelledError:
        await Gate.opened.wait()


async def test_a_dead_letter_that_is_revived_at_once_is_announced_all_the_same(tmp_path: Path) -> None:
    """Its row of history may be gone before the first read; a read in between makes no difference."""
    async with pair(tmp_path / "q.db") as (worker, web):
        listeners = (
            worker.events(TaskFailed, TaskDeadLettered),
            web.events(TaskDispatched, TaskFailed, TaskDeadLettered),
        )
        handle = await worker.submit(fail.prepare())
        for pause in (0, 0, 0.5, 0):
            await handle.wait(SOON)
            await asyncio.sleep(pause)
            await worker.retry_dead(handle.id)
        await handle.wait(SOON)
        own, derived = list[Any](), list[Any]()
        for events, heard in zip(listeners, (own, derived), strict=True):
            while kinds(heard).count("TaskDeadLettered") < 5:
                heard.extend(await until(events, TaskDeadLettered))
        await worker.submit(give_up.prepare())
        derived += await until(listeners[1], TaskFailed)
    assert kinds(own) == ["TaskFailed", "TaskDeadLettered"] * 5
    assert kinds(derived) == ["TaskDispatched", "TaskFailed", "TaskDeadLettered"] * 5 + ["TaskDispatched", "TaskFailed"]
    assert [event.attempt for event in derived if isinstance(event, TaskDispatched)] == [1, 2, 3, 4, 5, 1]
    assert {event.error for event in derived[:-2] if isinstance(event, TaskFailed)} == {"ValueError: broken"}
    assert not any(event.will_retry for event in derived if isinstance(event, TaskFailed))


async def test_a_dead_letter_of_any_process_is_announced_once_whichever_revives_it(
    tmp_path: Path, engine: Engine
) -> None:
    path, count = tmp_path / "q.db", engine.fewer(10)
    async with (
        Scheduler(path, domains=[work]) as one,
        Scheduler(path, domains=[work]) as other,
        one.running(standby=True),
        other.running(standby=True),
    ):
        listeners = [each.events(TaskDeadLettered, TaskCompleted) for each in (one, other)]
        handles = await one.submit_many([fail.prepare()] * count)
        for n in range(3):
            for handle in handles:
                await handle.wait(SOON)
                if n < 2:
                    await (one, other)[handle.id % 2].retry_dead(handle.id)
        await asyncio.sleep(0.5)
        last = await one.submit(double.prepare(1))
        for listener in listeners:
            heard = await until_completed(listener, {last.id})
            dead = Counter(event.task_id for event in heard if isinstance(event, TaskDeadLettered))
            assert dead == {handle.id: 3 for handle in handles}


async def test_a_failed_parent_that_waits_for_its_children_is_announced_once_it_has_ended(tmp_path: Path) -> None:
    Gate.opened = asyncio.Event()
    async with pair(tmp_path / "q.db") as (worker, web):
        events = web.events(TaskFailed, TaskDeadLettered, TaskCompleted, TaskCancelled)
        parent = await worker.submit(fail_with_a_child.prepare())
        await asyncio.sleep(0.5)
        Gate.opened.set()
        await parent.wait(SOON)
        heard = [event for event in await until(events, TaskDeadLettered) if event.task_id == parent.id]
        await worker.submit(double.prepare(1))
        heard += [event for event in await until(events, TaskCompleted) if event.task_id == parent.id]
    assert kinds(heard) == ["TaskFailed", "TaskDeadLettered"]
