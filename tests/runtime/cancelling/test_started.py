"""A waiting task that has started before may hold resources: its ``on_cancel`` runs before it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest

from taskmill import Context, Domain, Retry, RetryLater, Scheduler, Submission
from taskmill.events import TaskCancelled, TaskDispatched
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, ended, endings


class Uploads:
    """A domain whose first attempts open something that only the hook closes."""

    def __init__(self, *, hook: bool = True, retry: Retry | None = None) -> None:
        self.domain = domain = Domain("d", retry=retry or Retry.constant(5, 60))
        self.log: list[str] = []
        self.hook_may_end = asyncio.Event()
        self.hook_may_end.set()
        self.handler_may_end = asyncio.Event()
        self.before_failing: Callable[[], Awaitable[None]] | None = None

        @domain.task(key=lambda name: name)
        async def upload(ctx: Context, name: str) -> None:
            self.log.append(f"start {name}")
            await ctx.save(open=name)
            if self.before_failing is not None:
                await self.before_failing()
            raise RuntimeError("no network")

        @domain.task(key=lambda name: name)
        async def slow(ctx: Context, name: str) -> None:
            self.log.append(f"start {name}")
            await self.handler_may_end.wait()

        @domain.task
        async def urgent() -> None:
            self.log.append("start urgent")
            await asyncio.Event().wait()

        self.upload, self.slow, self.urgent = upload, slow, urgent
        if hook:
            upload.on_cancel(self._hook)
            slow.on_cancel(self._hook)

    async def _hook(self, ctx: Context, name: str) -> None:
        self.log.append(f"hook {name} {ctx.saved.get('open')}")
        await self.hook_may_end.wait()
        self.log.append(f"closed {name}")


@pytest.mark.parametrize("delay", [0, 60])
async def test_the_hook_runs_for_a_task_between_retries(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, delay: int
) -> None:
    uploads = Uploads(retry=Retry.constant(5, delay))
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    cancelled = scheduler.events(TaskCancelled)
    uploads.before_failing = scheduler.pause
    handle = await uploads.upload.submit("a")
    async with scheduler.running():
        await manual_clock.advance(1)
        assert uploads.log == ["start a"]
        assert await handle.cancel()
        await manual_clock.advance(1)
        assert (await ended(scheduler, handle.id)).ending == "cancelled"
    assert (await anext(cancelled)).task_id == handle.id
    assert uploads.log == ["start a", "hook a a", "closed a"]


async def test_the_hook_runs_when_something_dispatches(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    uploads = Uploads()
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    handle = await uploads.upload.submit("a")
    await scheduler.run_until_idle()
    assert await handle.cancel()
    assert await handle.cancel(), "it has not ended; the second request changes nothing"
    assert (await active(scheduler, handle.id)).attempt == 1
    other = await uploads.upload.submit("a")
    assert other.kind == "inserted", "it gave up its key"
    assert uploads.log == ["start a"]
    await scheduler.run_until_idle()
    assert uploads.log == ["start a", "hook a a", "closed a", "start a"]
    assert await endings(scheduler) == [(handle.id, "cancelled")]


async def test_the_hook_runs_for_a_preempted_task_while_every_slot_is_taken(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    uploads = Uploads()
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], max_concurrency=1, shutdown_grace=0)
    handle = await uploads.slow.submit("a")
    async with scheduler.running():
        await manual_clock.advance(1)
        await uploads.urgent.options(priority=0).submit()
        await manual_clock.advance(1)
        assert (await active(scheduler, handle.id)).status == "paused"
        assert await scheduler.cancel_where(type="d::slow") == [handle.id]
        await manual_clock.advance(1)
        assert (await ended(scheduler, handle.id)).ending == "cancelled"
    assert uploads.log == ["start a", "start urgent", "hook a None", "closed a"]


async def test_the_hook_runs_for_a_task_that_a_shutdown_interrupted(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    uploads = Uploads()
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    handle = await uploads.slow.submit("a")
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.stop(0)
    assert (await active(scheduler, handle.id)).status == "pending"
    await handle.cancel()
    await scheduler.run_until_idle()
    assert uploads.log == ["start a", "hook a None", "closed a"]
    assert (await ended(scheduler, handle.id)).ending == "cancelled"


async def test_a_task_that_never_started_ends_at_once_without_its_hook(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    uploads = Uploads()
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    handle = await uploads.upload.submit("a")
    await handle.cancel()
    assert (await ended(scheduler, handle.id)).ending == "cancelled"
    await scheduler.run_until_idle()
    assert uploads.log == []


async def test_a_started_task_without_a_hook_ends_at_once(taskmill_scheduler: SchedulerFactory, any_store: str) -> None:
    uploads = Uploads(hook=False)
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    handle = await uploads.upload.submit("a")
    await scheduler.run_until_idle()
    await handle.cancel()
    record = await ended(scheduler, handle.id)
    assert (record.ending, record.attempt) == ("cancelled", 1)


async def test_a_run_that_requeue_added_has_not_started(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    uploads = Uploads()
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    handle = await uploads.slow.submit("a")
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.group("").pause()
        again = await uploads.slow.options(on_duplicate="requeue").submit("a")
        assert again.kind == "requeued"
        uploads.handler_may_end.set()
        await manual_clock.advance(1)
        assert (await ended(scheduler, handle.id)).ending == "completed"
        await again.cancel()
        await manual_clock.advance(1)
        assert (await ended(scheduler, again.id)).ending == "cancelled"
    assert uploads.log == ["start a"]


async def test_a_process_without_the_handler_leaves_the_hook_to_one_that_has_it(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, tmp_path: object
) -> None:
    uploads = Uploads()
    path = f"{tmp_path}/tasks.db"
    async with Scheduler(path, domains=[uploads.domain], clock=manual_clock) as owner:
        handle = await uploads.upload.submit("a")
        await owner.run_until_idle()
        async with Scheduler(path, clock=manual_clock) as other:
            assert await other.cancel(handle.id)
            new = await other.submit(
                Submission("d::upload", {"name": "a"}, key="a", on_duplicate="supersede", retry=Retry.none())
            )
            assert uploads.log == ["start a"]
        await owner.run_until_idle()
        assert await endings(owner) == [(handle.id, "cancelled"), (new.id, "dead_letter")]
    assert uploads.log == ["start a", "hook a a", "closed a", "start a"]


async def test_a_replacement_of_a_started_task_waits_for_the_hook(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    uploads = Uploads()
    uploads.hook_may_end.clear()
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    first = await uploads.upload.submit("a")
    async with scheduler.running():
        await manual_clock.advance(1)
        second = await uploads.upload.options(on_duplicate="supersede", retry=Retry.none()).submit("a")
        third = await uploads.upload.options(on_duplicate="supersede", retry=Retry.none()).submit("a")
        assert (second.kind, second.replaced_id) == ("superseded", first.id)
        assert (third.kind, third.replaced_id) == ("superseded", second.id)
        await manual_clock.advance(1)
        assert uploads.log == ["start a", "hook a a"]
        assert (await active(scheduler, third.id)).status == "blocked"
        uploads.hook_may_end.set()
        await manual_clock.advance(1)
    assert uploads.log == ["start a", "hook a a", "closed a", "start a"]
    assert await endings(scheduler) == [
        (first.id, "superseded"),
        (second.id, "superseded"),
        (third.id, "dead_letter"),
    ]


async def test_a_replacement_waits_for_the_hook_no_longer_than_cancel_timeout(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    uploads = Uploads()
    uploads.hook_may_end.clear()
    scheduler = await taskmill_scheduler(domains=[uploads.domain], cancel_timeout=10, shutdown_grace=0)
    first = await uploads.upload.submit("a")
    async with scheduler.running():
        await manual_clock.advance(1)
        await uploads.upload.options(on_duplicate="supersede").submit("a")
        await manual_clock.advance(5)
        assert uploads.log == ["start a", "hook a a"]
        await manual_clock.advance(6)
        assert uploads.log == ["start a", "hook a a", "start a"]
    assert (await ended(scheduler, first.id)).ending == "superseded"


@pytest.mark.parametrize("strategy", ["skip", "requeue"])
async def test_other_duplicates_of_a_started_task_that_waits_meet_a_waiting_one(
    taskmill_scheduler: SchedulerFactory, any_store: str, strategy: Literal["skip", "requeue"]
) -> None:
    uploads = Uploads()
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    await uploads.upload.submit("a")
    await scheduler.run_until_idle()
    assert (await uploads.upload.options(on_duplicate=strategy).submit("a")).kind == "duplicate"


async def test_the_hook_of_a_recurring_task_between_retries_runs_when_the_series_ends(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    uploads = Uploads()
    scheduler = await taskmill_scheduler(store=any_store, domains=[uploads.domain], shutdown_grace=0)
    handle = await uploads.upload.options(every=3600).submit("a")
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.cancel_recurring(handle.id)
        await manual_clock.advance(1)
        assert (await ended(scheduler, handle.id)).ending == "cancelled"
    assert uploads.log == ["start a", "hook a a", "closed a"]


class Family:
    """A parent with one child that waits for a retry and, optionally, one that gives up later."""

    def __init__(self, *, parent_hook: bool, child_hook: bool = True, fails: bool = False) -> None:
        self.domain = domain = Domain("d")
        self.log: list[str] = []

        @domain.task
        async def child(n: int) -> None:
            self.log.append("start child")
            raise RetryLater("not yet", after=60)

        @domain.task(retry=Retry.none())
        async def failing(n: int) -> None:
            raise RuntimeError("no")

        @domain.task
        async def parent(ctx: Context) -> None:
            await ctx.spawn(child.prepare(1))
            if fails:
                await ctx.spawn(failing.options(run_after=1).prepare(2))

        @parent.finalize
        async def finalize(ctx: Context) -> None:
            self.log.append("finalize")

        self.parent = parent
        if child_hook:

            @child.on_cancel
            async def close_child(n: int) -> None:
                self.log.append("hook child")

        if parent_hook:

            @parent.on_cancel
            async def close_parent() -> None:
                self.log.append("hook parent")


async def test_hooks_of_a_waiting_family_run_leaves_first(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    family = Family(parent_hook=True)
    scheduler = await taskmill_scheduler(store=any_store, domains=[family.domain], shutdown_grace=0)
    handle = await family.parent.submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await handle.cancel()
        await manual_clock.advance(1)
    assert family.log == ["start child", "hook child", "hook parent"]
    assert await endings(scheduler) == [(handle.id, "cancelled"), (handle.id + 1, "cancelled")]


async def test_a_child_between_retries_has_its_hook_run_when_a_sibling_fails(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    family = Family(parent_hook=True, fails=True)
    scheduler = await taskmill_scheduler(store=any_store, domains=[family.domain], shutdown_grace=0)
    handle = await family.parent.submit()
    async with scheduler.running():
        await manual_clock.advance(5)
    assert family.log == ["start child", "hook child"]
    assert (await ended(scheduler, handle.id)).ending == "failed"


async def test_a_waiting_parent_without_a_hook_ends_with_its_last_child(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    """No attempt, no slot and no event of a start."""
    family = Family(parent_hook=False)
    scheduler = await taskmill_scheduler(store=any_store, domains=[family.domain], shutdown_grace=0)
    handle = await family.parent.submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        dispatched = scheduler.events(TaskDispatched)
        await handle.cancel()
        await manual_clock.advance(1)
    record = await ended(scheduler, handle.id)
    assert (record.ending, record.attempt) == ("cancelled", 1)
    assert (await anext(dispatched)).task_id == handle.id + 1, "the hook of the child"
    await scheduler.close()
    assert [event async for event in dispatched] == []


async def test_a_waiting_parent_without_a_hook_ends_at_once_where_no_child_needs_one(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    family = Family(parent_hook=False, child_hook=False)
    scheduler = await taskmill_scheduler(store=any_store, domains=[family.domain], shutdown_grace=0)
    handle = await family.parent.submit()
    await scheduler.run_until_idle()
    await handle.cancel()
    assert await endings(scheduler) == [(handle.id, "cancelled"), (handle.id + 1, "cancelled")]
