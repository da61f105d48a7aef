"""Requeueing adds a run after the current one, with all options of the newest submission."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Context, CyclicDependency, Domain, IoBudget, Retry, Scheduler, TaskFailed
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.records import active, ended


class Shop:
    """A task with a key, whose first run lasts until the test releases it."""

    def __init__(self) -> None:
        self.domain = Domain("d", retry=Retry.none())
        self.began: list[str] = []
        self.started, self.go = asyncio.Event(), asyncio.Event()
        self.cancelled: list[str] = []

        @self.domain.task(key="k", on_duplicate="requeue")
        async def sync(ctx: Context, version: str) -> str:
            self.began.append(version)
            if len(self.began) == 1:
                await ctx.save(upload="u1")
                self.started.set()
                await self.go.wait()
            assert ctx.replaced is None
            if version == "fails":
                raise ValueError(version)
            return version

        @self.domain.task
        async def other() -> None: ...

        self.sync, self.other = sync, other


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def scheduler(shop: Shop, taskmill_scheduler: SchedulerFactory, any_store: str) -> Scheduler:
    return await taskmill_scheduler(store=any_store, domains=[shop.domain], max_concurrency=2)


async def test_each_caller_sees_the_ending_of_its_own_run(shop: Shop, scheduler: Scheduler) -> None:
    async with scheduler.running():
        first = await shop.sync.submit("one")
        await shop.started.wait()
        added = await shop.sync.submit("two")
        assert (added.kind, added.replaced_id) == ("requeued", None)
        assert (await active(scheduler, added.id)).status == "blocked"
        assert f"task {first.id}" in str(await added.explain())
        shop.go.set()
        assert await added.result() == "two"
        assert await first.result() == "one"
    assert [(await ended(scheduler, each.id)).result for each in (first, added)] == ["one", "two"]


async def test_the_failure_of_the_first_run_is_its_own(shop: Shop, scheduler: Scheduler) -> None:
    async with scheduler.running():
        first = await shop.sync.submit("fails")
        await shop.started.wait()
        added = await shop.sync.submit("two")
        shop.go.set()
        assert await added.result() == "two"
        with pytest.raises(TaskFailed, match="fails"):
            await first.result()


async def test_the_added_run_has_every_option_of_the_newest_submission(
    shop: Shop, scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    async with scheduler.running():
        await shop.sync.options(tags={"a": "old"}, label="old", ttl=900, retry=Retry.constant(9, 9)).submit("one")
        await shop.started.wait()
        await shop.sync.options(tags={"b": "middle"}, label="middle", group="m", priority=1, ttl=800).submit("two")
        added = await shop.sync.options(
            tags={"c": "new"},
            label="new",
            group="g",
            priority=7,
            ttl=60,
            io=IoBudget(disk_read=5),
            run_after=10,
            retry=Retry.constant(1, 5),
        ).submit("fails")
        record = await active(scheduler, added.id)
        assert (record.tags, record.label, record.group, record.priority) == ({"c": "new"}, "new", "g", 7)
        assert record.io == IoBudget(disk_read=5)
        assert record.expires_at is not None
        assert (record.expires_at - record.created_at).total_seconds() == 60
        assert await scheduler.tag_values("b") == {}
        assert [task.id for task in await scheduler.tasks(tags={"c": "new"})] == [added.id]
        shop.go.set()
        await manual_clock.advance(9)
        assert shop.began == ["one"]
        assert (await active(scheduler, added.id)).status == "scheduled"
        await manual_clock.advance(1)
        assert shop.began == ["one", "fails"]
        await manual_clock.advance(5)
        assert shop.began == ["one", "fails", "fails"]
        assert (await added.wait()).ending == "dead_letter"


async def test_of_several_requeues_the_newest_counts_and_all_callers_get_its_result(
    shop: Shop, scheduler: Scheduler
) -> None:
    async with scheduler.running():
        first = await shop.sync.submit("one")
        await shop.started.wait()
        added = [await shop.sync.submit(version) for version in ("two", "three")]
        added += await scheduler.submit_many([shop.sync.prepare(version) for version in ("four", "five")])
        assert {handle.kind for handle in added} == {"requeued"}
        assert len({handle.id for handle in added} | {first.id}) == 2
        shop.go.set()
        assert [await handle.result() for handle in added] == ["five"] * 4
    assert shop.began == ["one", "five"]
    assert len(await scheduler.history()) == 2


async def test_the_added_run_waits_for_what_the_newest_submission_depends_on(
    shop: Shop, scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    async with scheduler.running():
        await shop.sync.submit("one")
        await shop.started.wait()
        early, late = [await shop.other.options(run_after=after).submit() for after in (5, 50)]
        added = await shop.sync.options(depends_on=late).submit("two")
        assert (await shop.sync.options(depends_on=early).submit("three")).id == added.id
        shop.go.set()
        await manual_clock.advance(4)
        assert shop.began == ["one"]
        await manual_clock.advance(1)
        assert await added.result() == "three"


async def test_the_key_is_held_while_the_added_run_waits(shop: Shop, scheduler: Scheduler) -> None:
    async with scheduler.running():
        await shop.sync.submit("one")
        await shop.started.wait()
        added = await shop.sync.submit("two")
        skipped = await shop.sync.options(on_duplicate="skip").submit("three")
        assert (skipped.kind, skipped.id) == ("duplicate", added.id)
        raised = await shop.sync.options(on_duplicate="skip", priority=3).submit("four")
        assert (raised.kind, raised.id) == ("upgraded", added.id)
        shop.go.set()
        assert await added.result() == "two"


async def test_a_cancelled_request_to_run_again_gives_the_key_back(shop: Shop, scheduler: Scheduler) -> None:
    async with scheduler.running():
        first = await shop.sync.submit("one")
        await shop.started.wait()
        added = await shop.sync.submit("two")
        assert await added.cancel()
        skipped = await shop.sync.options(on_duplicate="skip").submit("three")
        assert (skipped.kind, skipped.id) == ("duplicate", first.id)
        again = await shop.sync.submit("four")
        assert again.kind == "requeued"
        shop.go.set()
        assert await again.result() == "four"
    assert shop.began == ["one", "four"]
    assert (await ended(scheduler, added.id)).ending == "cancelled"


async def test_cancelling_the_run_under_way_leaves_the_added_one(shop: Shop, scheduler: Scheduler) -> None:
    async with scheduler.running():
        first = await shop.sync.submit("one")
        await shop.started.wait()
        added = await shop.sync.submit("two")
        assert await first.cancel()
        assert await added.result() == "two"
    assert (await ended(scheduler, first.id)).ending == "cancelled"


async def test_superseding_stops_the_run_under_way_and_renews_the_added_one(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain, began = Domain("e"), list[str]()
    started = asyncio.Event()

    @domain.task(key="k", on_duplicate="requeue")
    async def sync(ctx: Context, version: str) -> str | None:
        began.append(version)
        if version == "one":
            await ctx.save(upload="u1")
            started.set()
            await asyncio.Event().wait()
        return None if ctx.replaced is None else ctx.replaced["upload"]

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        first = await sync.submit("one")
        await started.wait()
        added = await sync.submit("two")
        new = await sync.options(on_duplicate="supersede").submit("three")
        assert (new.kind, new.id, new.replaced_id) == ("superseded", added.id, first.id)
        assert await new.result() == "u1"
    assert began == ["one", "three"]
    assert (await ended(scheduler, first.id)).ending == "superseded"


async def test_an_added_run_that_would_wait_for_itself_is_refused(shop: Shop, scheduler: Scheduler) -> None:
    async with scheduler.running():
        first = await shop.sync.submit("one")
        await shop.started.wait()
        after = await shop.other.options(depends_on=first).submit()
        added = await shop.sync.submit("two")
        follower = await shop.other.options(depends_on=added).submit()
        with pytest.raises(CyclicDependency):
            await shop.sync.options(depends_on=follower).submit("three")
        assert (await shop.sync.options(depends_on=after).submit("four")).id == added.id
        shop.go.set()
        assert await added.result() == "four"
        await follower.wait()


async def test_a_handler_may_ask_for_its_own_next_run(taskmill_scheduler: SchedulerFactory, any_store: str) -> None:
    domain, began = Domain("d"), list[int]()

    @domain.task(key="k", on_duplicate="requeue")
    async def step(ctx: Context, n: int) -> int:
        began.append(n)
        if n < 3:
            handle = await ctx.spawn(step.prepare(n + 1))
            assert handle.kind == "requeued"
        return n

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    first = await step.submit(1)
    await scheduler.run_until_idle(timeout=10)
    assert (began, await first.result()) == ([1, 2, 3], 1)


async def test_a_child_that_is_requeued_keeps_its_parent_waiting(
    taskmill_scheduler: SchedulerFactory, any_store: str, shop: Shop
) -> None:
    results: list[str] = []

    @shop.domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(shop.sync.prepare("one"))

    @parent.finalize
    async def done(ctx: Context) -> None:
        results.extend(child.result for child in ctx.children)

    scheduler = await taskmill_scheduler(store=any_store, domains=[shop.domain])
    async with scheduler.running():
        family = await parent.submit()
        await shop.started.wait()
        added = await shop.sync.submit("two")
        assert (await active(scheduler, added.id)).parent_id == family.id
        shop.go.set()
        await family.wait()
    assert results == ["one", "two"]


async def test_a_request_to_run_again_survives_a_restart(
    taskmill_scheduler: SchedulerFactory, any_store: str, shop: Shop
) -> None:
    if any_store == ":memory:":
        pytest.skip("nothing to restart from")
    scheduler = await taskmill_scheduler(store=any_store, domains=[shop.domain], shutdown_grace=0)
    async with scheduler.running():
        first = await shop.sync.submit("one")
        await shop.started.wait()
        added = await shop.sync.submit("two")
    await scheduler.close()
    scheduler = await taskmill_scheduler(store=any_store, domains=[shop.domain])
    assert [task.id for task in await scheduler.tasks()] == [first.id, added.id]
    await scheduler.run_until_idle()
    assert shop.began == ["one", "one", "two"]
    assert [(await ended(scheduler, each.id)).result for each in (first, added)] == ["one", "two"]


async def test_requeue_runs_a_running_task_once_more_with_the_newest_payload(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    seen: list[str] = []
    started, go_on = asyncio.Event(), asyncio.Event()

    @domain.task(key="k", on_duplicate="requeue")
    async def sync(version: str) -> str:
        seen.append(version)
        started.set()
        await go_on.wait()
        return version

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        first = await sync.submit("one")
        await started.wait()
        again = [await sync.submit(version) for version in ("two", "three")]
        assert [(handle.kind, handle.id > first.id) for handle in again] == [("requeued", True)] * 2
        go_on.set()
        assert await again[-1].result() == "three"
    assert seen == ["one", "three"]
    assert len(await scheduler.history()) == 2


async def test_requeue_is_like_skip_while_the_task_waits(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task(key="k", on_duplicate="requeue")
    async def sync(version: str) -> str:
        return version

    scheduler = await taskmill_scheduler(domains=[domain])
    first = await sync.submit("one")
    assert (await sync.submit("two")).kind == "duplicate"
    assert (await sync.options(priority=1).submit("three")).kind == "upgraded"
    await scheduler.run_until_idle()
    assert await first.result() == "one"


async def test_a_request_to_run_again_outlives_the_deadline_of_the_attempt_it_waits_for(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ran: list[int] = []
    started, go = asyncio.Event(), asyncio.Event()

    @domain.task(key="k", retry=Retry.constant(3, 20), on_duplicate="requeue")
    async def work(n: int) -> None:
        ran.append(n)
        started.set()
        await go.wait()
        if n == 1:
            raise ValueError("later")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        await work.options(ttl=15).submit(1)
        await started.wait()
        again = await work.options(ttl=None).submit(2)
        assert again.kind == "requeued"
        go.set()
        await manual_clock.advance(16)
        record = await again.wait()
    assert (record.ending, record.payload, ran) == ("completed", {"n": 2}, [1, 2])
