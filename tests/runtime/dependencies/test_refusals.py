"""Refused dependencies: unknown tasks, failed tasks, and cycles."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import (
    Context,
    CyclicDependency,
    DependencyFailed,
    Domain,
    InvalidDependency,
    Retention,
    SubmissionError,
)
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.dependencies.works import Works, states


@pytest.fixture
def works() -> Works:
    return Works()


# Refusals


async def test_a_cycle_in_one_batch_is_refused_and_nothing_is_stored(
    taskmill_scheduler: SchedulerFactory, works: Works
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    note = works.note
    with pytest.raises(CyclicDependency, match=r"a -> \w -> \w -> a|b -> \w -> \w -> b|c -> \w -> \w -> c"):
        await scheduler.submit_many(
            [
                note.prepare("bystander"),
                note.options(ref="a", depends_on=["c"]).prepare("a"),
                note.options(ref="b", depends_on=["a"]).prepare("b"),
                note.options(ref="c", depends_on=["b"]).prepare("c"),
            ]
        )
    assert await scheduler.tasks() == []
    with pytest.raises(CyclicDependency):
        await note.options(ref="me", depends_on=["me"]).submit("me")


async def test_refs_must_be_there_and_be_unique(taskmill_scheduler: SchedulerFactory, works: Works) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    note = works.note
    with pytest.raises(InvalidDependency, match="nobody"):
        await note.options(depends_on=["nobody"]).submit("a")
    with pytest.raises(SubmissionError, match="two submissions"):
        await scheduler.submit_many([note.options(ref="r").prepare("a"), note.options(ref="r").prepare("b")])
    await note.options(ref="r").submit("a")
    with pytest.raises(InvalidDependency):
        await note.options(depends_on=["r"]).submit("a ref means its own request only")
    assert await scheduler.count() == 1


@pytest.mark.parametrize("id", [0, -1, 2, 2**62])
async def test_an_unknown_id_is_refused(taskmill_scheduler: SchedulerFactory, works: Works, id: int) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    await works.note.submit("one")
    with pytest.raises(InvalidDependency):
        await works.note.options(depends_on=[id]).submit("next")
    assert await scheduler.count() == 1


@pytest.mark.parametrize("id", [2**63, 2**70, -(2**70)])
async def test_an_id_that_no_task_can_have_is_refused(
    taskmill_scheduler: SchedulerFactory, works: Works, id: int
) -> None:
    await taskmill_scheduler(domains=[works.domain])
    with pytest.raises(SubmissionError):
        await works.note.options(depends_on=[id]).submit("next")


async def test_one_that_has_ended(taskmill_scheduler: SchedulerFactory, works: Works) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    good, bad = await works.note.submit("good"), await works.note.submit("bad")
    await scheduler.run_until_idle()
    with pytest.raises(DependencyFailed) as refused:
        await works.note.options(depends_on=[good, bad]).submit("never")
    assert refused.value.id == bad.id
    for after in (
        await works.note.options(depends_on=[good]).submit("after good"),
        await works.note.options(depends_on=[bad], on_dependency_failure="ignore").submit("after bad"),
    ):
        assert await states(scheduler, after) == ["pending"]
    await scheduler.prune(Retention(max_count=0))
    with pytest.raises(InvalidDependency, match="pruned"):
        await works.note.options(depends_on=[good]).submit("never")
    ignoring = await works.note.options(depends_on=[good], on_dependency_failure="ignore").submit("pruned")
    assert await states(scheduler, ignoring) == ["pending"]


# Cycles through other links


async def test_a_child_cannot_wait_for_a_task_that_waits_for_its_parent(
    taskmill_scheduler: SchedulerFactory, works: Works
) -> None:
    refused: list[int] = []

    @works.domain.task
    async def parent(ctx: Context, harmless: int, on: int) -> None:
        note = works.note
        for request in (
            [note.options(depends_on=[on]).prepare("cycle")],
            [note.options(depends_on=[harmless]).prepare("fine"), note.options(depends_on=[on]).prepare("cycle")],
            [note.options(depends_on=[ctx.task.id]).prepare("cycle")],
            [
                note.options(ref="r", depends_on=[on]).prepare("cycle"),
                note.options(depends_on=["r"]).prepare("cycle"),
            ],
        ):
            try:
                await ctx.spawn_many(request)
            except CyclicDependency:
                refused.append(len(request))

    scheduler = await taskmill_scheduler(domains=[works.domain])
    harmless = await works.note.options(run_after=5).submit("harmless")
    above = await parent.submit(harmless.id, harmless.id + 2)
    after = await works.note.options(depends_on=[above]).submit("after")
    assert after.id == harmless.id + 2
    await scheduler.run_until_idle()
    assert refused == [1, 2, 1, 2]
    assert works.ran == ["after"]


async def test_a_replacement_cannot_wait_for_a_dependent_of_the_replaced_task(
    taskmill_scheduler: SchedulerFactory, works: Works
) -> None:
    scheduler = await taskmill_scheduler(domains=[works.domain])
    a, b = await works.keyed.submit("a", 1), await works.keyed.submit("b", 1)
    harmless = await works.note.submit("harmless")
    after = await works.note.options(depends_on=[b]).submit("after")
    with pytest.raises(CyclicDependency):
        await works.keyed.options(depends_on=[after]).submit("b", 2)
    with pytest.raises(CyclicDependency):
        await scheduler.submit_many(
            [
                works.keyed.options(depends_on=[harmless]).prepare("a", 2),
                works.keyed.options(depends_on=[after]).prepare("b", 2),
            ]
        )
    assert await states(scheduler, a, b, after) == ["pending", "pending", "blocked"]
    await scheduler.run_until_idle()
    assert sorted(works.ran) == ["a1", "after", "b1", "harmless"]


async def test_a_child_cannot_replace_the_parent_that_waits_for_it(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")
    refused: list[int] = []

    @domain.task(key=lambda depth: f"k{depth % 2}", on_duplicate="supersede")
    async def walk(ctx: Context, depth: int) -> None:
        try:
            await ctx.spawn(walk.prepare(depth + 1))
        except CyclicDependency:
            refused.append(depth)

    scheduler = await taskmill_scheduler(domains=[domain])
    await walk.submit(0)
    await scheduler.run_until_idle()
    assert refused == [1]
    assert await scheduler.tasks() == []


async def test_two_replacements_that_would_wait_for_each_other_are_refused(
    taskmill_scheduler: SchedulerFactory, any_store: str, works: Works
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[works.domain])
    one, two = await works.keyed.submit("one", 1), await works.keyed.submit("two", 1)
    with pytest.raises(CyclicDependency):
        await scheduler.submit_many(
            [
                works.keyed.options(depends_on=two).prepare("one", 2),
                works.keyed.options(depends_on=one).prepare("two", 2),
            ]
        )
    assert await states(scheduler, one, two) == ["pending", "pending"]
    answers = await asyncio.gather(
        works.keyed.options(depends_on=two).submit("one", 3),
        works.keyed.options(depends_on=one).submit("two", 3),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, CyclicDependency) for answer in answers) == 1
    await scheduler.run_until_idle()
    assert await scheduler.tasks() == []


async def test_a_task_past_its_deadline_has_expired_for_new_dependents_although_nothing_dispatches(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, works: Works, any_store: str
) -> None:
    scheduler = await taskmill_scheduler(store=any_store, domains=[works.domain])
    note = works.note
    late = await note.options(ttl=10).submit("late")
    waiting = await note.options(depends_on=[late]).submit("waiting")
    await manual_clock.advance(10)
    (error,) = (await scheduler.dry_run([note.options(depends_on=[late]).prepare("too late")])).errors.values()
    assert isinstance(error, DependencyFailed)
    with pytest.raises(DependencyFailed, match="has already ended as expired") as wrong:
        await note.options(depends_on=[late]).submit("too late")
    assert wrong.value.id == late.id
    anyway = await note.options(depends_on=[late], on_dependency_failure="ignore").submit("anyway")
    assert (await anyway.record()).state == "pending"
    assert (await waiting.record()).state == "dependency_failed"
