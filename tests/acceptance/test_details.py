"""The details of a task: saved state, dependencies, children, and the chain of replacements."""

from __future__ import annotations

import asyncio

import pytest

from taskmill import Context, Domain, Scheduler, TaskNotFound, blocking
from taskmill.model.records import Dependency

domain = Domain("d")


@domain.task
async def plain(n: int = 0) -> None:
    """Do nothing."""


@domain.task(fail_fast=False)
async def parent(ctx: Context) -> None:
    await ctx.save(seen=[1, 2], where="here")
    await ctx.spawn_many([plain.prepare(1), plain.prepare(2), plain.options(run_after=3600).prepare(3)])


async def test_saved_state_and_children_by_state() -> None:
    async with Scheduler(domains=[domain]) as scheduler:
        handle = await parent.submit()
        await scheduler.run_until_idle()
        details = await scheduler.details(handle.id)
    assert details.saved == {"seen": [1, 2], "where": "here"}
    assert details.children == {"completed": 2, "scheduled": 1}
    assert (details.replaced, details.replaced_by) == ([], [])


async def test_dependencies_and_dependents_say_which_are_open() -> None:
    async with Scheduler(domains=[domain]) as scheduler:
        first = await plain.submit()
        await scheduler.run_until_idle()
        second = await plain.options(run_after=3600).submit()
        third = await plain.options(depends_on=[first, second]).submit()
        details = await scheduler.details(third.id)
        assert details.depends_on == [
            Dependency(third.id, first.id, open=False),
            Dependency(third.id, second.id, open=True),
        ]
        assert (await scheduler.details(second.id)).dependents == [Dependency(third.id, second.id, open=True)]
        assert (await scheduler.details(first.id)).saved == {}


async def test_the_chain_of_replacements_is_known_from_every_link() -> None:
    keyed = plain.options(key="k", on_duplicate="supersede", run_after=3600)
    async with Scheduler(domains=[domain]) as scheduler:
        # An earlier completed task with the same key is not part of the chain.
        await plain.options(key="k").submit()
        await scheduler.run_until_idle()
        ids = [(await keyed.submit(n)).id for n in range(4)]
        for place, id in enumerate(ids):
            details = await scheduler.details(id)
            assert (details.replaced, details.replaced_by) == (ids[:place], ids[place + 1 :])
        # Another key is another chain.
        other = await plain.options(key="other").submit()
        assert (await scheduler.details(other.id)).replaced == []


async def test_a_running_task_that_is_being_replaced_knows_its_replacement() -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    own = Domain("own")

    @own.task(key="k", on_duplicate="supersede")
    async def work(n: int) -> None:
        begun.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            await go.wait()
            raise

    async with Scheduler(domains=[own]) as scheduler, scheduler.running():
        old = await work.submit(0)
        await begun.wait()
        new = await work.submit(1)
        assert (await scheduler.details(old.id)).replaced_by == [new.id]
        assert (await scheduler.details(new.id)).replaced == [old.id]
        go.set()


def test_an_unknown_id_is_refused_and_the_blocking_scheduler_answers_too() -> None:
    with blocking.Scheduler(domains=[domain]) as scheduler:
        handle = scheduler.submit(plain.prepare())
        assert scheduler.details(handle.id).task.id == handle.id
        with pytest.raises(TaskNotFound, match="99"):
            scheduler.details(99)
