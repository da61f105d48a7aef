"""Families: children, finalize, failing and stopping together, and what children inherit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from taskmill import (
    Context,
    CyclicDependency,
    Domain,
    GiveUp,
    InvalidState,
    Retention,
    Retry,
    Scheduler,
    SubmissionError,
    TaskFailed,
)
from taskmill.events import TaskCancelled, TaskWaiting
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime import process_handlers


async def ended(scheduler: Scheduler, id: int) -> HistoryRecord:
    record = await scheduler.get(id)
    assert isinstance(record, HistoryRecord)
    return record


async def active(scheduler: Scheduler, id: int) -> TaskRecord:
    record = await scheduler.get(id)
    assert isinstance(record, TaskRecord)
    return record


# Waiting and finalizing


async def test_a_parent_waits_for_its_children_without_a_slot_and_then_finalizes(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task
    async def part(n: int) -> int:
        happened.append(f"part {n}")
        return n * 10

    @domain.task
    async def whole(ctx: Context, parts: int) -> str:
        await ctx.save(upload="u1")
        handles = await ctx.spawn_many(part.prepare(n) for n in range(parts))
        happened.append(f"spawned {[handle.kind for handle in handles]}")
        return "handler"

    @whole.finalize
    async def finish(ctx: Context, parts: int) -> dict[str, object]:
        happened.append("finalize")
        assert ctx.task.status == "running"
        return {"saved": dict(ctx.saved), "parts": [child.result for child in ctx.children], "n": parts}

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    listener = scheduler.events(TaskWaiting)
    handle = await whole.submit(3)
    await scheduler.run_until_idle()
    assert happened == ["spawned ['inserted', 'inserted', 'inserted']", "part 0", "part 1", "part 2", "finalize"]
    assert (await handle.wait()).result == {"saved": {"upload": "u1"}, "parts": [0, 10, 20], "n": 3}
    event = await anext(listener)
    assert isinstance(event, TaskWaiting)
    assert (event.task_id, event.children) == (handle.id, 3)
    assert [child.parent_id for child in await scheduler.history(parent=handle.id)] == [handle.id] * 3


async def test_without_finalize_the_parent_completes_with_what_its_handler_returned(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    go = asyncio.Event()

    @domain.task
    async def part() -> None:
        await go.wait()

    @domain.task
    async def whole(ctx: Context) -> str:
        await ctx.spawn(part.prepare())
        return "done"

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await whole.submit()
        await manual_clock.advance(0)
        assert (await active(scheduler, handle.id)).status == "waiting"
        go.set()
        assert (await handle.wait()).result == "done"


async def test_children_that_end_before_the_handler_returns_are_finalized_all_the_same(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d")

    @domain.task
    async def part() -> int:
        return 1

    @domain.task
    async def whole(ctx: Context) -> None:
        child = await ctx.spawn(part.prepare())
        await child.wait()

    @whole.finalize
    async def finish(ctx: Context) -> int:
        return len(ctx.children)

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == 1


async def test_finalize_may_spawn_and_wait_again(taskmill_scheduler: SchedulerFactory, any_store: str) -> None:
    domain = Domain("d")

    @domain.task
    async def part(n: int) -> int:
        return n

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare(0))

    @whole.finalize
    async def finish(ctx: Context) -> list[int] | None:
        results = [child.result for child in ctx.children]
        if len(results) < 4:
            await ctx.spawn(part.prepare(len(results)))
            return None
        return results

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == [0, 1, 2, 3]


async def test_a_failed_finalize_is_retried_and_the_handler_is_not(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task
    async def part() -> None:
        happened.append("part")

    @domain.task(retry=Retry.constant(2, 0))
    async def whole(ctx: Context) -> None:
        happened.append("handler")
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> str:
        happened.append("finalize")
        if happened.count("finalize") < 3:
            raise RuntimeError("not yet")
        return "at last"

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == "at last"
    assert happened == ["handler", "part", "finalize", "finalize", "finalize"]


@pytest.mark.parametrize("when", ["children alive", "finalize waits", "finalize runs"])
async def test_a_crash_around_finalize_runs_finalize_and_never_the_handler_again(
    taskmill_scheduler: SchedulerFactory, tmp_path: Path, manual_clock: ManualClock, when: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    hold = {"part": asyncio.Event(), "finalize": asyncio.Event()}
    reached = {"part": asyncio.Event(), "finalize": asyncio.Event()}

    @domain.task
    async def part() -> None:
        reached["part"].set()
        await hold["part"].wait()
        happened.append("part")

    @domain.task
    async def whole(ctx: Context) -> None:
        happened.append("handler")
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> None:
        reached["finalize"].set()
        await hold["finalize"].wait()
        happened.append(f"finalize {[child.ending for child in ctx.children]}")

    file = str(tmp_path / "tasks.db")
    scheduler = await taskmill_scheduler(store=file, domains=[domain], shutdown_grace=0, cancel_timeout=1)
    listener = scheduler.events(TaskWaiting)
    async with scheduler.running():
        handle = await whole.submit()
        await reached["part"].wait()
        await anext(listener)
        if when != "children alive":
            hold["part"].set()
            await reached["finalize"].wait()
            if when == "finalize waits":
                hold["finalize"].set()
    await scheduler.close()
    hold["part"].set()
    hold["finalize"].set()
    again = await taskmill_scheduler(store=file, domains=[domain])
    await again.run_until_idle()
    assert (await ended(again, handle.id)).ending == "completed"
    assert happened == ["handler", "part", "finalize [<Ending.COMPLETED: 'completed'>]"]


async def test_finalize_runs_inside_the_limit(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    at_work = most = 0

    @domain.task
    async def part() -> None:
        return None

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=2)
    await scheduler.submit_many(whole.prepare() for _ in range(10))
    await scheduler.run_until_idle()
    assert most == 2


@pytest.mark.parametrize("how", ["def", "process", "async process"])
async def test_threads_and_processes_spawn_and_finalize_too(taskmill_scheduler: SchedulerFactory, how: str) -> None:
    task = {
        "def": process_handlers.whole_in_thread,
        "process": process_handlers.whole_in_process,
        "async process": process_handlers.whole_in_async_process,
    }[how]
    scheduler = await taskmill_scheduler(domains=[process_handlers.work])
    handle = await scheduler.submit(task.prepare(3))
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == {"parts": [0, 2, 4], "spawned": 3}


async def test_a_sibling_has_the_same_parent_and_the_parent_waits_for_it(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    async def part(ctx: Context, n: int) -> int:
        if n:
            sibling = await ctx.spawn_sibling(part.prepare(n - 1))
            assert sibling.kind == "inserted"
        return n

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare(3))

    @whole.finalize
    async def finish(ctx: Context) -> list[int]:
        return [child.result for child in ctx.children]

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    alone = await part.submit(1)
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == [3, 2, 1, 0]
    assert (await ended(scheduler, alone.id)).parent_id is None
    assert [record.parent_id for record in await scheduler.history(type="d::part")].count(None) == 2


async def test_spawning_from_an_attempt_that_is_over_stores_nothing(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    kept: list[Context] = []

    @domain.task
    async def whole(ctx: Context) -> None:
        kept.append(ctx)

    scheduler = await taskmill_scheduler(domains=[domain])
    await whole.submit()
    await scheduler.run_until_idle()
    with pytest.raises(InvalidState, match="is over; nothing was spawned"):
        await kept[0].spawn(whole.prepare())
    assert await scheduler.tasks() == []


async def test_a_refused_spawn_stores_nothing_and_the_parent_just_completes(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d")
    finalized: list[bool] = []

    @domain.task
    async def whole(ctx: Context) -> str:
        with pytest.raises(SubmissionError, match="a child cannot recur"):
            await ctx.spawn(whole.options(every=5).prepare())
        with pytest.raises(CyclicDependency):
            await ctx.spawn(whole.options(depends_on=ctx.task.id).prepare())
        for odd in (5, None, ["x"]):
            with pytest.raises(SubmissionError, match="submissions must be"):
                await ctx.spawn_many(odd)  # type: ignore[arg-type]
        return "alone"

    @whole.finalize
    async def finish(ctx: Context) -> None:
        finalized.append(True)

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await handle.wait()).result == "alone"
    assert finalized == []
    assert await scheduler.count(status="completed") == 1


# Failing


async def test_the_first_child_that_fails_ends_its_siblings_and_fails_the_parent(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task(retry=Retry.none())
    async def part(n: int) -> None:
        if n == 1:
            await started.wait()
            raise GiveUp("part one is broken")
        started.set()
        await asyncio.Event().wait()

    @part.on_cancel
    async def cleaned(n: int) -> None:
        happened.append(f"hook {n}")

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(part.prepare(n) for n in range(4))

    @whole.finalize
    async def finish(ctx: Context) -> None:
        happened.append("finalize")

    started = asyncio.Event()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=2)
    handle = await whole.submit()
    async with scheduler.running():
        with pytest.raises(TaskFailed, match=r"child \d+ \(d::part\) ended as failed: part one is broken"):
            await handle.result()
    assert happened == ["hook 0"]
    assert (await ended(scheduler, handle.id)).ending == "failed"
    endings = {child.payload["n"]: child.ending for child in await scheduler.history(parent=handle.id)}
    assert endings == {0: "cancelled", 1: "failed", 2: "cancelled", 3: "cancelled"}


async def test_a_parent_that_still_runs_is_stopped_when_a_child_fails(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task(retry=Retry.none())
    async def part() -> None:
        raise ValueError("broken")

    @domain.task(retry=Retry.constant(5, 0))
    async def whole(ctx: Context) -> None:
        try:
            await ctx.spawn(part.prepare())
            await asyncio.Event().wait()
        finally:
            happened.append("stopped")

    @whole.on_cancel
    async def hook() -> None:
        happened.append("hook")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    record = await ended(scheduler, handle.id)
    assert (record.ending, happened) == ("failed", ["stopped"])
    assert "ended as dead_letter: ValueError: broken" in str(record.error)


async def test_without_fail_fast_finalize_sees_the_failures(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task(retry=Retry.none())
    async def part(n: int) -> int:
        if n == 1:
            raise ValueError("broken")
        return n

    @domain.task(fail_fast=False)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(part.prepare(n) for n in range(3))

    @whole.finalize
    async def finish(ctx: Context) -> list[object]:
        return [child.result if child.ending == "completed" else child.error for child in ctx.children]

    scheduler = await taskmill_scheduler(domains=[domain])
    tolerant = await whole.submit()
    strict = await whole.options(fail_fast=True).submit()
    await scheduler.run_until_idle()
    assert (await tolerant.wait()).result == [0, "ValueError: broken", 2]
    assert (await strict.wait()).ending == "failed"


async def test_a_parent_that_fails_takes_its_children_with_it(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []

    @domain.task
    async def part() -> None:
        started.set()
        await asyncio.Event().wait()

    @part.on_cancel
    async def cleaned() -> None:
        happened.append("hook")

    @domain.task(retry=Retry.none())
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare())
        await started.wait()
        raise ValueError("no")

    started = asyncio.Event()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await ended(scheduler, handle.id)).ending == "dead_letter"
    (child,) = await scheduler.history(parent=handle.id)
    assert (child.ending, happened) == ("cancelled", ["hook"])
    newest_first = [record.id for record in await scheduler.history()]
    assert newest_first == [handle.id, child.id] or child.ended_at == (await ended(scheduler, handle.id)).ended_at


# Stopping trees


async def test_cancelling_a_tree_runs_every_hook_leaves_first(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    hooks: list[str] = []
    started = asyncio.Event()

    @domain.task
    async def node(ctx: Context, name: str, depth: int) -> None:
        if depth:
            await ctx.spawn_many(node.prepare(f"{name}{n}", depth - 1) for n in range(2))
            return
        if name == "r11":
            started.set()
        try:
            await asyncio.Event().wait()
        finally:
            hooks.append(f"end {name}")

    @node.on_cancel
    async def cleaned(ctx: Context, name: str, depth: int) -> None:
        hooks.append(name)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=8)
    listener = scheduler.events(TaskCancelled)
    waiting = scheduler.events(TaskWaiting)
    async with scheduler.running():
        root = await node.submit("r", 2)
        await started.wait()
        assert len([await anext(waiting) for _ in range(3)]) == 3
        assert await root.cancel()
        record = await root.wait()
    assert record.ending == "cancelled"
    leaves, parents = ["r00", "r01", "r10", "r11"], ["r0", "r1"]
    assert sorted(hooks[:4]) == [f"end {leaf}" for leaf in leaves]
    assert sorted(hooks[4:8]) == leaves
    assert sorted(hooks[8:10]) == parents
    assert hooks[10:] == ["r"]
    assert await scheduler.count(status="cancelled") == 7
    assert await scheduler.tasks() == []
    told = [(await anext(listener)).task_id for _ in range(7)]  # type: ignore[attr-defined]
    assert told[-1] == root.id


async def test_a_waiting_parent_is_cancelled_even_when_no_slot_is_free(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    hooks: list[str] = []
    go = asyncio.Event()

    @domain.task
    async def other() -> None:
        await go.wait()

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(other.options(priority=255).prepare())

    @whole.on_cancel
    async def hook(ctx: Context) -> None:
        hooks.append("hook")

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    async with scheduler.running():
        handle = await whole.submit()
        await manual_clock.advance(0)
        busy = await other.options(priority=0).submit()
        await manual_clock.advance(0)
        await handle.cancel()
        assert (await handle.wait()).ending == "cancelled"
        assert hooks == ["hook"]
        go.set()
        await busy.wait()


@pytest.mark.parametrize("state", ["running", "waiting", "finalizing"])
async def test_superseding_a_parent_waits_for_its_whole_tree(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock, state: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    there = asyncio.Event()

    @domain.task
    async def part(version: int) -> None:
        if version == 1 and state != "finalizing":
            if state == "waiting":
                there.set()
            try:
                await asyncio.Event().wait()
            finally:
                happened.append("part ended")

    @part.on_cancel
    async def part_hook(version: int) -> None:
        happened.append("part hook")

    @domain.task(key="k", on_duplicate="supersede")
    async def whole(ctx: Context, version: int) -> None:
        happened.append(f"start {version} {ctx.replaced}")
        await ctx.save(version=version)
        await ctx.spawn(part.prepare(version))
        if version == 1 and state == "running":
            there.set()
            await asyncio.Event().wait()

    @whole.on_cancel
    async def whole_hook(ctx: Context, version: int) -> None:
        happened.append("whole hook")

    @whole.finalize
    async def finish(ctx: Context, version: int) -> None:
        if version == 1:
            there.set()
            await asyncio.Event().wait()
        happened.append(f"finalize {version}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        old = await whole.submit(1)
        await there.wait()
        await manual_clock.advance(0)
        assert (await active(scheduler, old.id)).status == ("waiting" if state == "waiting" else "running")
        new = await whole.submit(2)
        assert (new.kind, new.replaced_id) == ("superseded", old.id)
        assert (await new.wait()).ending == "completed"
    assert (await ended(scheduler, old.id)).ending == "superseded"
    start = happened.index("start 2 {'version': 1}")
    before = happened[:start]
    assert before[0] == "start 1 None"
    assert before[-1] == "whole hook"
    assert ("part hook" in before) == (state != "finalizing")
    assert happened[start + 1 :] == ["finalize 2"]


async def test_a_replaced_child_is_replaced_in_the_eyes_of_its_parent(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    go = asyncio.Event()

    @domain.task(key="part", on_duplicate="supersede")
    async def part(version: int) -> int:
        if version == 1:
            started.set()
            await go.wait()
        return version

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare(1))

    @whole.finalize
    async def finish(ctx: Context) -> list[tuple[str, int | None]]:
        return [(child.ending, child.result) for child in ctx.children]

    started = asyncio.Event()
    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await whole.submit()
        await started.wait()
        new = await part.submit(2)
        assert new.kind == "superseded"
        assert (await handle.wait()).result == [["superseded", None], ["completed", 2]]
    assert (await ended(scheduler, new.id)).parent_id == handle.id


# Inheritance


async def test_children_inherit_tags_urgency_and_what_is_left_of_the_time_to_live(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    seen: dict[str, TaskRecord] = {}

    @domain.task
    async def part(ctx: Context, name: str) -> None:
        seen[name] = ctx.task

    @domain.task(ttl=5)
    async def short(ctx: Context, name: str) -> None:
        seen[name] = ctx.task

    @domain.task(ttl=100, tags={"a": "parent", "b": "parent"}, priority=64)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(
            [
                part.prepare("plain"),
                part.options(tags={"b": "own"}, priority=10, ttl=3).prepare("own"),
                part.options(ttl=None).prepare("free"),
                short.prepare("short"),
            ]
        )

    scheduler = await taskmill_scheduler(domains=[domain], default_ttl=7)
    handle = await whole.submit()
    await manual_clock.advance(40)
    await scheduler.run_until_idle()
    deadline = (await ended(scheduler, handle.id)).expires_at
    assert {name: dict(task.tags) for name, task in seen.items()} == {
        "plain": {"a": "parent", "b": "parent"},
        "own": {"a": "parent", "b": "own"},
        "free": {"a": "parent", "b": "parent"},
        "short": {"a": "parent", "b": "parent"},
    }
    assert {name: task.priority for name, task in seen.items()} == {"plain": 64, "own": 10, "free": 64, "short": 64}
    assert seen["plain"].expires_at == deadline
    assert seen["free"].expires_at is None
    left = {name: (task.expires_at - task.created_at).total_seconds() for name, task in seen.items() if task.expires_at}
    assert left == {"plain": 60, "own": 3, "short": 5}


async def test_a_child_of_a_boosted_parent_is_as_urgent_as_what_waits_for_its_parent(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    order: list[str] = []

    @domain.task
    async def step(name: str) -> None:
        order.append(name)

    @domain.task(priority=200)
    async def whole(ctx: Context) -> None:
        await ctx.spawn(step.options(priority=250).prepare("child"))

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    slow = await whole.submit()
    urgent = await step.options(priority=1, depends_on=slow).submit("urgent")
    await scheduler.submit_many(step.options(priority=100).prepare(f"other {n}") for n in range(3))
    await scheduler.run_until_idle()
    assert order == ["child", "urgent", "other 0", "other 1", "other 2"]
    assert (await ended(scheduler, urgent.id)).ending == "completed"


@pytest.mark.parametrize("policy", ["complete", "cancel"])
async def test_an_expiring_parent_takes_its_waiting_descendants_with_it(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock, policy: str
) -> None:
    domain = Domain("d")
    go, started = asyncio.Event(), asyncio.Event()

    @domain.task(on_parent_expiry=policy, priority=1)
    async def running() -> str:
        started.set()
        await go.wait()
        return "done"

    @domain.task(ttl=None)
    async def waiting() -> None:
        raise AssertionError("it has expired")

    @domain.task(ttl=60, retry=Retry.constant(3, delay=100))
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many([running.prepare(), *(waiting.options(run_after=1000).prepare() for _ in range(3))])
        await started.wait()
        raise ValueError("later")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        handle = await whole.submit()
        await started.wait()
        await manual_clock.advance(30)
        assert (await active(scheduler, handle.id)).status == "scheduled"
        await manual_clock.advance(31)
        assert (await handle.wait()).ending == "expired"
        go.set()
        await manual_clock.advance(0)
    endings = [child.ending for child in await scheduler.history(parent=handle.id)]
    assert sorted(endings) == sorted(["expired"] * 3 + ["completed" if policy == "complete" else "cancelled"])
    assert await scheduler.tasks() == []


# Limits and progress


async def test_only_so_many_children_of_one_parent_are_let_in_at_once(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    at_work: dict[int, int] = {}
    most: dict[int, int] = {}

    @domain.task
    async def part(ctx: Context, n: int) -> None:
        parent = ctx.task.parent_id or 0
        at_work[parent] = at_work.get(parent, 0) + 1
        most[parent] = max(most.get(parent, 0), at_work[parent])
        await asyncio.sleep(0)
        at_work[parent] -= 1

    @domain.task(max_children=3)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(part.prepare(n) for n in range(20))
        counts = (await scheduler.snapshot()).counts
        assert counts["blocked"] > 0

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=16)
    handles = await scheduler.submit_many(whole.prepare() for _ in range(2))
    await scheduler.run_until_idle()
    assert most == {handle.id: 3 for handle in handles}
    assert await scheduler.count(status="completed") == 42


async def test_the_progress_of_a_parent_is_that_of_its_children(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    go = [asyncio.Event() for _ in range(4)]

    @domain.task
    async def part(ctx: Context, n: int) -> None:
        if n == 3:
            ctx.progress(0.5)
        await go[n].wait()

    @domain.task
    async def whole(ctx: Context) -> None:
        ctx.progress(0.1, "splitting")
        await ctx.spawn_many(part.prepare(n) for n in range(4))

    async def fraction() -> float | None:
        await manual_clock.advance(1)
        progress = (await active(scheduler, handle.id)).progress
        return progress.fraction if progress else None

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await whole.submit()
        assert await fraction() == pytest.approx(0.125)
        go[0].set()
        assert await fraction() == pytest.approx(0.375)
        go[1].set()
        go[2].set()
        assert await fraction() == pytest.approx(0.875)
        go[3].set()
        await handle.wait()


async def test_the_records_of_children_are_kept_while_their_parent_is_active(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d")
    seen: list[int] = []

    @domain.task
    async def part(n: int) -> int:
        return n

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(part.prepare(n) for n in range(30))

    @whole.finalize
    async def finish(ctx: Context) -> None:
        await scheduler.prune()
        seen.extend([len(ctx.children), len(await scheduler.history(parent=ctx.task.id))])

    scheduler = await taskmill_scheduler(domains=[domain], retention=Retention(max_count=5))
    await whole.submit()
    await scheduler.run_until_idle()
    assert seen == [30, 30]
    assert len(await scheduler.history()) == 5


async def test_a_requeued_parent_whose_child_fails_starts_over(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran: list[int] = []
    go = asyncio.Event()

    @domain.task(retry=Retry.none())
    async def part(n: int) -> None:
        await go.wait()
        if n == 1:
            raise GiveUp("broken")

    @domain.task(key="k", on_duplicate="requeue")
    async def whole(ctx: Context, n: int) -> None:
        ran.append(n)
        await ctx.spawn(part.prepare(n))

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    waiting = scheduler.events(TaskWaiting)
    async with scheduler.running():
        await whole.submit(1)
        await anext(waiting)
        again = await whole.submit(2)
        assert again.kind == "requeued"
        go.set()
        assert (await again.wait()).ending == "completed"
    assert ran == [1, 2]


async def test_a_requeued_parent_that_expires_ends_its_children_before_it_starts_over(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started = asyncio.Event()

    @domain.task(ttl=None)
    async def part(n: int) -> None:
        if n == 1:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                happened.append("part 1 ended")

    @domain.task(key="k", on_duplicate="requeue", retry=Retry.constant(3, delay=100))
    async def whole(ctx: Context, n: int) -> None:
        happened.append(f"whole {n}")
        await ctx.spawn(part.prepare(n))
        if n == 1:
            await started.wait()
            await manual_clock.sleep(5)
            raise ValueError("later")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        await whole.options(ttl=30).submit(1)
        await started.wait()
        again = await whole.options(ttl=None).submit(2)
        assert again.kind == "requeued"
        await manual_clock.advance(31)
        assert (await again.wait()).ending == "completed"
    assert happened == ["whole 1", "part 1 ended", "whole 2"]
    assert await scheduler.tasks() == []


async def test_a_parent_that_was_revived_reads_of_the_children_of_its_new_run_only(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    domain = Domain("d", retry=Retry.none())
    seen: list[int] = []

    @domain.task
    async def part() -> None: ...

    @domain.task
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> None:
        seen.append(len(ctx.children))
        if len(seen) == 1:
            raise ValueError("once")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await whole.submit()
    await scheduler.run_until_idle()
    assert (await ended(scheduler, handle.id)).ending == "dead_letter"
    await scheduler.retry_dead(handle.id)
    await scheduler.run_until_idle()
    assert (await ended(scheduler, handle.id)).ending == "completed"
    assert seen == [1, 1]


async def test_a_finalize_that_nobody_here_can_run_does_not_expire(
    taskmill_scheduler: SchedulerFactory, tmp_path: Path, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    reached, hold = asyncio.Event(), asyncio.Event()

    @domain.task(ttl=None)
    async def part() -> None: ...

    @domain.task(ttl=10)
    async def whole(ctx: Context) -> None:
        await ctx.spawn(part.prepare())

    @whole.finalize
    async def finish(ctx: Context) -> str:
        reached.set()
        await hold.wait()
        return "finished"

    file = str(tmp_path / "tasks.db")
    scheduler = await taskmill_scheduler(store=file, domains=[domain], shutdown_grace=0, cancel_timeout=1)
    async with scheduler.running():
        handle = await whole.submit()
        await reached.wait()
    await scheduler.close()
    stranger = await taskmill_scheduler(store=file, domains=[])
    await stranger.run_until_idle()
    await manual_clock.advance(20)
    await stranger.run_until_idle()
    await stranger.close()
    hold.set()
    again = await taskmill_scheduler(store=file, domains=[domain])
    await again.run_until_idle()
    assert (await ended(again, handle.id)).result == "finished"
