"""Nodes that die: others take over, no task has two attempts at once, and late writes are ignored."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from pathlib import Path

import psycopg
import pytest

from taskmill import Context, Domain, Scheduler
from taskmill.core.clock import SystemClock
from taskmill.events import TaskDispatched
from taskmill.store.postgres import heartbeat, lease
from taskmill.store.postgres.store import PostgresStore
from tests.postgres.keeper import Server
from tests.postgres.killed_node import domain, note
from tests.postgres.server import address
from tests.store.contract.samples import NOW, add, claim, new_task
from tests.warm_python import Popen


def _shorten_lease(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(lease, "LEASE", seconds)


async def test_the_tasks_of_a_killed_node_run_elsewhere(
    postgres_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _shorten_lease(monkeypatch, 2.0)
    async with Scheduler(postgres_store, domains=[domain]) as scheduler:
        handles = [await note.submit(str(tmp_path), forever=True) for _ in range(3)]
        node = Popen([sys.executable, "-m", "tests.postgres.killed_node", postgres_store])
        try:
            for _ in range(1000):
                if len(list(tmp_path.glob("*.1"))) == 3:
                    break
                await asyncio.sleep(0.02)
            async with scheduler.running():
                await asyncio.sleep(0.5)
                assert not list(tmp_path.glob("*.2")), "a live node keeps its tasks"
                node.kill()
                assert [await handle.result(timeout=30) for handle in handles] == [2, 2, 2]
        finally:
            node.kill()
            node.wait()


@pytest.mark.parametrize("node", [None, 0, 999_999], ids=["no node", "one that had stopped", "an unknown node"])
async def test_a_running_task_of_an_unknown_node_returns_while_other_nodes_live(
    postgres_store: str, node: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_ANYWAY", 2)
    domain = Domain("d")

    @domain.task
    async def work(ctx: Context) -> int:
        return ctx.attempt

    async with Scheduler(postgres_store, domains=[domain]) as scheduler, scheduler.running():
        await (await work.submit()).result(timeout=30)
        with psycopg.connect(postgres_store) as connection:
            # A row as in a restored backup.
            handle = await work.options(run_after=3600).submit()
            connection.execute(
                "UPDATE taskmill_task SET status = 'running', attempt = 1, started_at = created_at, due_at = NULL,"
                " node_id = %s WHERE id = %s",
                (node, handle.id),
            )
        assert await handle.result(timeout=30) == 2


async def test_a_node_that_was_taken_for_dead_claims_nothing_until_it_has_another_name(
    postgres_store: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres_store, "full", SystemClock())
    await store.open()
    right = await store.acquire_dispatch()
    try:
        first, second = await add(store, new_task(), new_task())
        assert len(await claim(store, first)) == 1
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            connection.execute("DELETE FROM taskmill_node")
        assert await claim(store, second) == []
        for _ in range(500):
            if store._heartbeat.is_lost:
                break
            await asyncio.sleep(0.02)
        assert [task.id for task in await claim(store, second)] == [second]
        recovery = await store.recover(NOW)
        assert recovery.returned == 1, "only the task that it claimed under its old name"
    finally:
        right.release()
        await store.close()


async def test_a_node_that_stops_leaves_at_once(postgres_store: str) -> None:
    one = PostgresStore(postgres_store, "full", SystemClock())
    two = PostgresStore(postgres_store, "full", SystemClock())
    await one.open()
    await two.open()
    right = await one.acquire_dispatch()
    (id,) = await add(one, new_task())
    await claim(one, id)
    right.release()
    await one.close()
    assert (await two.recover(NOW)).returned == 1
    await two.close()


async def test_a_node_that_runs_again_leaves_no_trace_of_its_first_run(postgres_store: str) -> None:
    async with Scheduler(postgres_store, domains=[domain]) as scheduler:
        for _ in range(3):
            async with scheduler.running():
                pass
    with psycopg.connect(postgres_store) as connection:
        assert connection.execute("SELECT count(*) FROM taskmill_node").fetchone() == (0,)


async def test_a_task_stored_in_a_callers_transaction_runs_once_it_commits(postgres_store: str, tmp_path: Path) -> None:
    async with Scheduler(postgres_store, domains=[domain]) as scheduler, scheduler.running():
        with psycopg.connect(postgres_store) as connection:
            handle = await scheduler.submit(note.prepare(str(tmp_path), forever=False), connection=connection)
            await asyncio.sleep(1.5)
            assert not list(tmp_path.iterdir())
            connection.commit()
            # Long before the next poll that would find it anyway.
            assert await handle.result(timeout=5) == 1


async def test_a_cut_off_node_stops_its_tasks_before_others_begin_them(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _shorten_lease(monkeypatch, 4.0)
    stopped_at: list[float] = []
    alone = Domain("alone")

    @alone.task
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped_at.append(time.monotonic())

    async with Scheduler(address(own_server.folder), domains=[alone]) as scheduler, scheduler.running():
        async with aclosing(scheduler.events(TaskDispatched)) as events:
            await endless.submit()
            await anext(events)
        await asyncio.to_thread(own_server.halt)
        halted_at = time.monotonic()
        for _ in range(400):
            if stopped_at:
                break
            await asyncio.sleep(0.02)
        assert stopped_at
        assert stopped_at[0] - halted_at < 4.0
        await asyncio.to_thread(own_server.start)
