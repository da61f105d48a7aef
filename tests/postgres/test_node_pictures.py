"""Snapshots of any scheduler show which node runs what, and what a dead node has left."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from taskmill import Domain, Group, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.store.postgres import lease
from taskmill.store.postgres.store import PostgresStore
from tests.store.contract.samples import add, claim, new_task

LONG = 20

domain = Domain("d")


@domain.task
async def work() -> None:
    """Run until stopped."""
    await asyncio.Event().wait()


async def test_each_task_is_at_one_of_the_nodes(postgres_store: str) -> None:
    async with (
        Scheduler(postgres_store, domains=[domain], max_concurrency=2, shutdown_grace=0) as one,
        Scheduler(postgres_store, domains=[domain], max_concurrency=3, shutdown_grace=0) as two,
        Scheduler(postgres_store) as looking,
        one.running(),
        two.running(),
    ):
        await one.submit_many([work.prepare() for _ in range(9)])
        async with asyncio.timeout(LONG):
            while len((picture := await looking.snapshot()).running) < 5 or not all(n.slots for n in picture.nodes):
                await asyncio.sleep(0.02)
        own = await two.snapshot()
    assert [node.slots for node in picture.nodes] == [2, 3]
    assert [len(node.running) for node in picture.nodes] == [2, 3]
    assert sorted(id for node in picture.nodes for id in node.running) == [task.id for task in picture.running]
    assert [node.is_here for node in picture.nodes] == [False, False]
    assert [node.is_here for node in own.nodes] == [False, True]


async def test_a_dead_node_is_shown_with_its_tasks_and_looking_changes_nothing(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shorter than the server's uptime: after a start of the server every node gets a whole lease.
    monkeypatch.setattr(lease, "LEASE", 0.1)
    async with Scheduler(postgres_store, domains=[domain], shutdown_grace=0):
        handle = await work.submit()
    with psycopg.connect(postgres_store, autocommit=True) as connection:
        row = connection.execute(
            "INSERT INTO taskmill_node (name, seen_at) VALUES ('far:1', now() - interval '1 hour') RETURNING id"
        ).fetchone()
        connection.execute(
            "UPDATE taskmill_task SET status = 'running', node_id = %s, attempt = 1, started_at = created_at", row
        )
    async with Scheduler(postgres_store) as looking:
        for _ in range(2):
            (node,) = (await looking.snapshot()).nodes
            assert (node.name, node.is_alive, list(node.running)) == ("far:1", False, [handle.id])
        assert (await looking.get(handle.id)).attempt == 1


async def test_a_stopped_scheduler_knows_at_once_that_no_node_dispatches(postgres_store: str) -> None:
    short = Domain("short")

    @short.task
    async def nothing() -> None: ...

    seen: list[object] = []
    async with Scheduler(postgres_store, domains=[short], max_concurrency=8) as scheduler:
        for slots in (3, 4):
            await nothing.submit()
            await scheduler.run_until_idle(timeout=LONG)
            await scheduler.set_max_concurrency(slots)
            waiting = await nothing.submit()
            picture = await scheduler.snapshot()
            reasons = [hold.reason for hold in (await waiting.explain()).holds]
            seen.append((picture.has_dispatcher, picture.max_concurrency, reasons))
    assert seen == [(False, 3, ["no_dispatcher"]), (False, 4, ["no_dispatcher"])]


async def test_a_node_that_has_left_tasks_behind_is_shown_until_they_are_returned(postgres_store: str) -> None:
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    right = await store.acquire_dispatch()
    (id,) = await add(store, new_task())
    await claim(store, id)
    right.release()
    await store.close()
    async with Scheduler(postgres_store) as looking:
        (node,) = (await looking.snapshot()).nodes
    assert (node.is_alive, list(node.running)) == (False, [id])


async def test_slots_and_shares_are_those_of_all_nodes(postgres_store: str) -> None:
    domain = Domain("slow")
    go_on = asyncio.Event()

    @domain.task
    async def wait() -> None:
        await go_on.wait()

    groups = {"a": Group(weight=1), "b": Group(weight=1)}
    nodes = [Scheduler(postgres_store, domains=[domain], max_concurrency=4, groups=groups) for _ in range(2)]
    async with nodes[0] as one, nodes[1] as two, Scheduler(postgres_store, groups=groups) as looking:
        for group in groups:
            await one.submit_many([wait.options(group=group).prepare() for _ in range(10)])
        async with one.running(), two.running():
            async with asyncio.timeout(LONG):
                while await looking.count(status="running") < 8:
                    await asyncio.sleep(0.01)
            pictures = [await each.snapshot() for each in (one, two, looking)]
            waiting = (await looking.tasks(status="pending"))[0]
            reasons = [hold.detail for hold in (await looking.explain(waiting.id)).holds if hold.reason == "slots"]
            go_on.set()
    assert [each.max_concurrency for each in pictures] == [8, 8, 8]
    assert [{name: group.slots for name, group in each.groups.items()} for each in pictures] == [{"a": 4, "b": 4}] * 3
    assert reasons == ["all 8 slots are taken"]
