"""``max_children``: never more children in the queue than the parent allows, however they get there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from taskmill import Context, Domain, Retry, Scheduler, Submission
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


class Nursery:
    """A parent with a small ``max_children``, and children that run until the test releases them."""

    def __init__(self, most: int) -> None:
        self.domain = Domain("d", retry=Retry.none())
        self.go: dict[str, asyncio.Event] = {}
        self.began: list[str] = []
        self.at_work: set[str] = set()
        self.peak = 0
        self.children: list[Submission] = []
        self.later: list[Submission] = []
        self.stay = asyncio.Event()

        @self.domain.task(key=lambda name: name, on_duplicate="supersede")
        async def child(name: str, *, version: int = 0) -> None:
            what = f"{name}{version}" if version else name
            self.began.append(what)
            self.at_work.add(what)
            self.peak = max(self.peak, len(self.at_work))
            try:
                await self.go.setdefault(name, asyncio.Event()).wait()
            finally:
                self.at_work.discard(what)
            if name.startswith("dies"):
                raise ValueError(name)

        @self.domain.task(max_children=most, fail_fast=False)
        async def parent(ctx: Context) -> None:
            await ctx.spawn_many(self.children)
            if self.later:
                await self.stay.wait()
                await ctx.spawn_many(self.later)

        self.child = child
        self.parent = parent

    def let_go(self, *names: str) -> None:
        for name in names:
            self.go.setdefault(name, asyncio.Event()).set()


async def statuses(scheduler: Scheduler, names: Iterable[str]) -> list[str]:
    found = {task.key: str(task.status) for task in await scheduler.tasks(type="d::child")}
    return [found.get(name, "-") for name in names]


async def test_a_replacement_of_a_held_child_has_its_place_among_the_siblings(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    nursery = Nursery(1)
    nursery.children = [nursery.child.prepare(name) for name in "abcd"]
    scheduler = await taskmill_scheduler(store=any_store, domains=[nursery.domain])
    async with scheduler.running():
        parent = await nursery.parent.submit()
        await manual_clock.advance(0)
        await nursery.child.submit("c", version=1)
        await nursery.child.submit("b", version=1)
        nursery.let_go(*"abcd")
        await parent.result()
    assert nursery.began == ["a", "b1", "c1", "d"]


async def test_a_replacement_of_a_held_child_is_held_too(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    nursery = Nursery(1)
    nursery.children = [nursery.child.prepare(name) for name in "abc"]
    scheduler = await taskmill_scheduler(store=any_store, domains=[nursery.domain])
    async with scheduler.running():
        parent = await nursery.parent.submit()
        await manual_clock.advance(0)
        assert await statuses(scheduler, "abc") == ["running", "blocked", "blocked"]
        handle = await nursery.child.submit("b", version=2)
        assert handle.kind == "superseded"
        handle = await nursery.child.submit("b", version=3)
        await manual_clock.advance(0)
        assert await statuses(scheduler, "abc") == ["running", "blocked", "blocked"]
        nursery.let_go("a", "b", "c")
        assert (await parent.wait()).ending == "completed"
    assert nursery.peak == 1
    assert nursery.began == ["a", "b3", "c"]


@pytest.mark.parametrize("inside", [False, True])
async def test_a_replacement_of_a_child_that_was_let_in_has_its_place(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, inside: bool
) -> None:
    nursery = Nursery(2)
    nursery.children = [nursery.child.prepare(name) for name in "abcd"]
    replacement = nursery.child.prepare("b", version=2)
    nursery.later = [replacement] if inside else []
    scheduler = await taskmill_scheduler(domains=[nursery.domain], max_concurrency=2 if inside else 1)
    async with scheduler.running():
        parent = await nursery.parent.submit()
        await manual_clock.advance(0)
        assert await statuses(scheduler, "abcd") == ["running", "pending", "blocked", "blocked"]
        if inside:
            nursery.stay.set()
        else:
            await scheduler.submit(replacement)
        await manual_clock.advance(0)
        expected = "running" if inside else "pending"  # if the parent no longer runs, there is a slot
        assert await statuses(scheduler, "abcd") == ["running", expected, "blocked", "blocked"]
        nursery.let_go("a", "b", "c", "d")
        assert (await parent.wait()).ending == "completed"
    assert sorted(nursery.began) == ["a", "b2", "c", "d"]


async def test_a_replacement_of_a_running_child_waits_for_a_place(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    nursery = Nursery(2)
    nursery.children = [nursery.child.prepare(name) for name in "abc"]
    scheduler = await taskmill_scheduler(store=any_store, domains=[nursery.domain])
    async with scheduler.running():
        parent = await nursery.parent.submit()
        await manual_clock.advance(0)
        await nursery.child.submit("a", version=2)
        await manual_clock.advance(0)
        assert await statuses(scheduler, "abc") == ["blocked", "running", "running"], "c has the place of the old one"
        nursery.let_go("a", "b", "c")
        assert (await parent.wait()).ending == "completed"
    assert nursery.peak == 2
    assert nursery.began == ["a", "b", "c", "a2"]


async def test_a_replacement_that_depends_on_a_held_sibling_leaves_it_the_place(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    nursery = Nursery(1)
    nursery.children = [nursery.child.prepare(name) for name in "ab"]
    scheduler = await taskmill_scheduler(domains=[nursery.domain], max_concurrency=1)
    parent = await nursery.parent.submit()
    async with scheduler.running():
        await manual_clock.advance(0)
        (b,) = [task.id for task in await scheduler.tasks(key="b")]
        handle = await nursery.child.options(depends_on=b).submit("a", version=2)
        nursery.let_go("a", "b")
        assert (await parent.wait()).ending == "completed"
        assert (await handle.wait()).ending == "completed"
    assert nursery.began[-2:] == ["b", "a2"]


async def test_a_revived_child_of_an_active_parent_takes_its_turn(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    nursery = Nursery(1)
    nursery.children = [nursery.child.prepare(name) for name in ("dies", "b", "c")]
    scheduler = await taskmill_scheduler(store=any_store, domains=[nursery.domain])
    async with scheduler.running():
        parent = await nursery.parent.submit()
        nursery.let_go("dies")
        await manual_clock.advance(0)
        (dead,) = await scheduler.dead_letters()
        assert await statuses(scheduler, "bc") == ["running", "blocked"]
        handle = await scheduler.retry_dead(dead.id)
        await manual_clock.advance(0)
        assert await statuses(scheduler, ("dies", "b", "c")) == ["blocked", "running", "blocked"]
        nursery.let_go("b", "c")
        assert (await handle.wait()).ending == "dead_letter"
        assert (await parent.wait()).ending == "completed"
    assert nursery.peak == 1
    assert nursery.began == ["dies", "b", "dies", "c"]


async def test_a_revived_child_is_let_in_at_once_where_there_is_room(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    nursery = Nursery(2)
    nursery.children = [nursery.child.prepare(name) for name in ("dies", "b")]
    scheduler = await taskmill_scheduler(domains=[nursery.domain])
    async with scheduler.running():
        parent = await nursery.parent.submit()
        nursery.let_go("dies")
        await manual_clock.advance(0)
        (dead,) = await scheduler.dead_letters()
        await (await scheduler.retry_dead(dead.id)).wait()
        nursery.let_go("b")
        assert (await parent.wait()).ending == "completed"
    assert nursery.began == ["dies", "b", "dies"]


async def test_a_child_that_waited_for_its_own_children_and_runs_once_more_takes_its_turn(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    go = asyncio.Event()
    done = asyncio.Event()
    began: list[str] = []

    @domain.task
    async def leaf() -> None:
        await go.wait()

    @domain.task(key=True, on_duplicate="requeue")
    async def branch(ctx: Context) -> None:
        began.append("branch")
        if began.count("branch") == 1:
            await ctx.spawn(leaf.prepare())

    @domain.task
    async def other(name: str) -> None:
        began.append(name)
        await done.wait()

    @domain.task(max_children=1)
    async def parent(ctx: Context) -> None:
        await ctx.spawn_many([branch.prepare(), other.prepare("b"), other.prepare("c")])

    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        handle = await parent.submit()
        await manual_clock.advance(0)
        assert began == ["branch", "b"], "a task that waits for its children takes no place"
        assert (await branch.submit()).kind == "requeued"
        go.set()
        await manual_clock.advance(0)
        assert began == ["branch", "b"]
        done.set()
        assert (await handle.wait()).ending == "completed"
    assert sorted(began) == ["b", "branch", "branch", "c"]
