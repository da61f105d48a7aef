"""Tasks that wait for others: shapes, the effect of failures, lent urgency, and events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from taskmill import (
    Context,
    TaskNotFound,
)
from taskmill.events import TaskBlocked, TaskDependencyFailed, TaskUnblocked
from taskmill.model.records import HistoryRecord
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.both_engines import Engine
from tests.runtime.dependencies.works import Works, states, urgency


@pytest.fixture
def works() -> Works:
    return Works()


# Shapes


async def test_a_diamond_runs_from_top_to_bottom(
    taskmill_scheduler: SchedulerFactory, any_store: str, works: Works
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[works.domain])
    handles = await scheduler.submit_many(
        [
            works.note.options(ref="bottom", depends_on=["left", "right"]).prepare("bottom"),
            works.note.options(ref="left", depends_on=["top"]).prepare("left"),
            works.note.options(ref="right", depends_on="top").prepare("right"),
            works.note.options(ref="top").prepare("top"),
        ]
    )
    assert await states(scheduler, *handles) == ["blocked", "blocked", "blocked", "pending"]
    await scheduler.run_until_idle()
    assert works.ran[0] == "top"
    assert works.ran[-1] == "bottom"
    assert sorted(works.ran) == ["bottom", "left", "right", "top"]


async def test_ten_thousand_may_be_awaited_by_one(
    taskmill_scheduler: SchedulerFactory, works: Works, engine: Engine
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain], max_concurrency=500, retention=None)
    many = engine.fewer(10_000)
    first = await scheduler.submit_many([works.note.prepare(str(n)) for n in range(many)])
    last = await works.note.options(depends_on=first, priority=0).submit("last")
    await scheduler.run_until_idle()
    assert works.ran[-1] == "last"
    assert len(works.ran) == many + 1
    assert await states(scheduler, last) == ["completed"]


async def test_a_chain_of_a_thousand_runs_in_order(
    taskmill_scheduler: SchedulerFactory, works: Works, engine: Engine
) -> None:
    scheduler, count = await taskmill_scheduler(domains=[works.domain]), engine.fewer(1000)
    chain = [works.note.options(ref="0").prepare("0")]
    chain += [works.note.options(ref=str(n), depends_on=[str(n - 1)]).prepare(str(n)) for n in range(1, count)]
    await scheduler.submit_many(reversed(chain))
    await scheduler.run_until_idle()
    assert works.ran == [str(n) for n in range(count)]


async def test_a_failure_falls_down_a_chain_of_a_thousand_at_once(
    taskmill_scheduler: SchedulerFactory, works: Works, engine: Engine
) -> None:
    scheduler, count = await taskmill_scheduler(domains=[works.domain]), engine.fewer(1000)
    chain = [works.note.options(ref="0").prepare("bad")]
    chain += [works.note.options(ref=str(n), depends_on=[str(n - 1)]).prepare(str(n)) for n in range(1, count)]
    await scheduler.submit_many(chain)
    await scheduler.run_until_idle()
    assert works.ran == ["bad"]
    assert await scheduler.count(status="dependency_failed") == count - 1


async def test_a_handle_an_id_and_many_of_both(taskmill_scheduler: SchedulerFactory, works: Works) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain], max_concurrency=1)
    first, second = await works.note.submit("first"), await works.note.options(priority=200).submit("second")
    third = await works.note.options(depends_on=(first, second.id, second), priority=0).submit("third")
    assert [edge[:2] for edge in (await scheduler.graph(third.id)).dependencies] == [
        (third.id, first.id),
        (third.id, second.id),
    ]
    await scheduler.run_until_idle()
    assert works.ran == ["first", "second", "third"]


# Failures


async def test_cancel_falls_through_fail_stops_and_ignore_continues(
    taskmill_scheduler: SchedulerFactory, any_store: str, works: Works
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[works.domain])
    handles = dict[str, Any]()
    bad = await works.note.submit("bad")
    for policy in ("cancel", "fail", "ignore"):
        first = await works.note.options(depends_on=[bad], on_dependency_failure=policy).submit(f"{policy} 1")
        second = await works.note.options(depends_on=[first]).submit(f"{policy} 2")
        handles[policy] = (first, second)
    await scheduler.run_until_idle()
    assert await states(scheduler, *handles["cancel"]) == ["dependency_failed", "dependency_failed"]
    assert await states(scheduler, *handles["fail"]) == ["dependency_failed", "completed"]
    assert await states(scheduler, *handles["ignore"]) == ["completed", "completed"]
    assert sorted(works.ran) == ["bad", "fail 2", "ignore 1", "ignore 2"]


@pytest.mark.parametrize("how", ["cancelled", "expired"])
async def test_every_ending_but_success_is_a_failure(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works, how: str
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    options: dict[str, Any] = {"ttl": 5, "run_after": 10} if how == "expired" else {"run_after": 10}
    first = await works.note.options(**options).submit("first")
    second = await works.note.options(depends_on=[first]).submit("second")
    if how == "cancelled":
        await first.cancel()
    else:
        await manual_clock.advance(6)
        await scheduler.run_until_idle()
    assert await states(scheduler, first, second) == [how, "dependency_failed"]


async def test_a_dependent_of_two_tasks_fails_with_either(taskmill_scheduler: SchedulerFactory, works: Works) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    good, bad = await works.note.submit("good"), await works.note.submit("bad")
    both = await works.note.options(depends_on=[good, bad]).submit("both")
    two_bad = await works.note.options(depends_on=[bad, await works.note.submit("bad too")]).submit("two bad")
    await scheduler.run_until_idle()
    assert await states(scheduler, both, two_bad) == ["dependency_failed", "dependency_failed"]
    record = await scheduler.get(both.id)
    assert isinstance(record, HistoryRecord)
    assert str(bad.id) in (record.error or "")


# Urgency


async def test_a_blocker_is_as_urgent_as_the_most_urgent_that_waits_for_it_and_no_longer(
    taskmill_scheduler: SchedulerFactory, works: Works
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain], max_concurrency=1)
    bottom = await works.note.options(priority=200).submit("bottom")
    middle = await works.note.options(priority=150, depends_on=[bottom]).submit("middle")
    assert await urgency(scheduler, bottom) == 150
    top = await works.note.options(priority=3, depends_on=[middle]).submit("top")
    other = await works.note.options(priority=9, depends_on=[bottom]).submit("other")
    assert [await urgency(scheduler, one) for one in (bottom, middle)] == [3, 3]
    await top.cancel()
    assert [await urgency(scheduler, one) for one in (bottom, middle)] == [9, 150]
    await other.cancel()
    assert [await urgency(scheduler, one) for one in (bottom, middle)] == [150, 150]
    assert (await scheduler.get(bottom.id)).priority == 200


async def test_the_most_urgent_of_one_batch_counts(taskmill_scheduler: SchedulerFactory, works: Works) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    for order in ([3, 200], [200, 3]):
        blocker, *_ = await scheduler.submit_many(
            [
                works.note.options(ref="b").prepare("b"),
                *(works.note.options(priority=p, depends_on=["b"]).prepare("d") for p in order),
            ]
        )
        assert await urgency(scheduler, blocker) == 3


async def test_an_inherited_urgency_decides_which_task_starts(
    taskmill_scheduler: SchedulerFactory, works: Works
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain], max_concurrency=1)
    await works.note.options(priority=100).submit("other")
    blocker = await works.note.options(priority=200).submit("blocker")
    await works.note.options(priority=0, depends_on=[blocker]).submit("urgent")
    await scheduler.run_until_idle()
    assert works.ran[0] == "blocker"


async def test_children_of_an_awaited_parent_are_urgent_too(taskmill_scheduler: SchedulerFactory, works: Works) -> None:
    @works.domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(works.note.options(run_after=50, priority=200).prepare("child"))

    scheduler = await taskmill_scheduler(domains=[works.domain])
    above = await parent.options(priority=180).submit()
    await scheduler.run_until_idle()
    (child,) = await scheduler.tasks(parent=above.id)
    assert child.effective_priority == 180
    urgent = await works.note.options(priority=1, depends_on=[above]).submit("urgent")
    assert await urgency(scheduler, child) == 1
    await urgent.cancel()
    assert await urgency(scheduler, child) == 180


# Replacements


async def test_dependents_wait_for_the_last_of_several_replacements(
    taskmill_scheduler: SchedulerFactory, any_store: str, works: Works
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[works.domain])
    first = await works.keyed.submit("a", 1)
    after = await works.note.options(depends_on=[first]).submit("after")
    await asyncio.gather(*(works.keyed.submit("a", version) for version in (2, 3, 4)))
    await scheduler.run_until_idle()
    assert works.ran == ["a4", "after"]
    assert await states(scheduler, after) == ["completed"]


async def test_depending_on_a_task_and_on_its_replacement(taskmill_scheduler: SchedulerFactory, works: Works) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    old = await works.keyed.submit("a", 1)
    _, after = await scheduler.submit_many(
        [works.keyed.options(ref="new").prepare("a", 2), works.note.options(depends_on=["new", old]).prepare("after")]
    )
    await scheduler.run_until_idle()
    assert works.ran == ["a2", "after"]
    assert await states(scheduler, after) == ["completed"]


# max_children


async def test_children_that_wait_for_siblings_take_no_place(
    taskmill_scheduler: SchedulerFactory, any_store: str, works: Works
) -> None:
    @works.domain.task(max_children=1)
    async def parent(ctx: Context) -> None:
        note = works.note
        await ctx.spawn_many(
            [
                note.options(depends_on=["b"]).prepare("a"),
                note.options(ref="b", depends_on=["c"]).prepare("b"),
                note.options(ref="c").prepare("c"),
            ]
        )

    scheduler = await taskmill_scheduler(store=any_store, domains=[works.domain])
    await parent.submit()
    await scheduler.run_until_idle()
    assert works.ran == ["c", "b", "a"]
    assert await scheduler.tasks() == []


# Events


async def test_the_graph_of_a_task_holds_everything_tied_to_it(
    taskmill_scheduler: SchedulerFactory, works: Works
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    a = await works.note.submit("a")
    b = await works.note.options(depends_on=[a]).submit("b")
    c = await works.note.options(depends_on=[b], run_after=5).submit("c")
    apart = await works.note.submit("apart")
    await scheduler.run_until_idle()
    for one in (a, b, c):
        graph = await scheduler.graph(one.id)
        assert list(graph.tasks) == [a.id, b.id, c.id]
        assert [tuple(edge) for edge in graph.dependencies] == [(b.id, a.id, False), (c.id, b.id, False)]
    assert list((await scheduler.graph(apart.id)).tasks) == [apart.id]
    with pytest.raises(TaskNotFound):
        await scheduler.graph(999)


async def test_events_tell_of_waiting_of_its_end_and_of_its_failure(
    taskmill_scheduler: SchedulerFactory, works: Works
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    listener = scheduler.events(TaskBlocked, TaskUnblocked, TaskDependencyFailed)
    good, bad = await works.note.submit("good"), await works.note.submit("bad")
    happy = await works.note.options(depends_on=[good], label="l").submit("happy")
    sad = await works.note.options(depends_on=[bad]).submit("sad")
    await scheduler.run_until_idle()
    told = [await anext(listener) for _ in range(4)]
    seen = {(type(event).__name__, getattr(event, "task_id", None)) for event in told}
    assert seen == {
        ("TaskBlocked", happy.id),
        ("TaskBlocked", sad.id),
        ("TaskUnblocked", happy.id),
        ("TaskDependencyFailed", sad.id),
    }
    (failed,) = [event for event in told if isinstance(event, TaskDependencyFailed)]
    assert str(bad.id) in failed.error
