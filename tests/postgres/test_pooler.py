"""Behind a pooler with transaction pooling everything works, and no state is left in a session."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from taskmill import ConfigError, Context, Domain, Scheduler, StoreError
from taskmill.core.clock import SystemClock
from taskmill.cron import Cron
from taskmill.moving import move
from taskmill.store.postgres import heartbeat
from taskmill.store.postgres.connection import parsed_address
from taskmill.store.postgres.store import PostgresStore
from tests.acceptance.command_line import taskmill
from tests.postgres.pooler import Pooler
from tests.store.contract.samples import add, new_task

LONG = 30

domain = Domain("d")


@domain.task
async def work(n: int) -> int:
    """Return the argument."""
    return n


@domain.task
async def family(ctx: Context, n: int) -> int:
    """Spawn children."""
    await ctx.spawn_many([work.prepare(k) for k in range(n)])
    return n


@domain.task
async def endless() -> None:
    """Run until stopped."""
    await asyncio.Event().wait()


def test_the_address_says_what_is_for_us() -> None:
    assert parsed_address("postgresql://a@b/c") == ("postgresql://a@b/c", True, True)
    assert parsed_address("postgresql://a@b/c?notifications=off") == ("postgresql://a@b/c", False, True)
    assert parsed_address("postgresql://a@b/c?x=1&notifications=on&y=2&create=off") == (
        "postgresql://a@b/c?x=1&y=2",
        True,
        False,
    )
    with pytest.raises(ConfigError, match="notifications must be on or off, got 'no'"):
        parsed_address("postgresql://a@b/c?notifications=no")


async def test_two_nodes_run_everything_through_a_pooler(postgres_store: str) -> None:
    fired: list[int] = []

    def fire() -> None:
        fired.append(1)

    cron = [Cron("minute", "* * * * *", fire, 1)]
    with Pooler(postgres_store) as pooler:
        async with (
            Scheduler(pooler.address, domains=[domain], cron=cron, shutdown_grace=0) as one,
            Scheduler(pooler.address, domains=[domain], cron=cron, shutdown_grace=0) as two,
            Scheduler(pooler.address, domains=[domain]) as asking,
        ):
            handles = await asking.submit_many([work.prepare(n) for n in range(40)])
            keyed = await asking.submit(work.options(key="k", group="g").prepare(7))
            assert (await asking.submit(work.options(key="k").prepare(8))).id == keyed.id
            parent = await asking.submit(family.prepare(5))
            dependent = await asking.submit(work.options(depends_on=[parent]).prepare(9))
            stopped = await asking.submit(endless.prepare())
            async with one.running(), two.running():
                assert [await handle.result(timeout=LONG) for handle in handles] == list(range(40))
                assert [await each.result(timeout=LONG) for each in (keyed, parent, dependent)] == [7, 5, 9]
                async with asyncio.timeout(LONG):
                    while len((await asking.snapshot()).running) != 1 or not fired:
                        await asyncio.sleep(0.05)
                picture = await asking.snapshot()
                await asking.cancel(stopped.id)
                await asking.wait(stopped.id, timeout=LONG)
            counts = (await asking.snapshot()).counts
        said = taskmill("status", pooler.address)
        assert said.returncode == 0, said.stderr
        assert pooler.left_behind == []
        assert pooler.handed_on > 0.5
    assert len(picture.nodes) == 2
    assert (counts["cancelled"], counts["running"], counts["pending"]) == (1, 0, 0)
    assert counts["completed"] >= 49
    assert 1 <= len(fired) <= 2


async def test_a_task_stored_in_a_callers_transaction_is_seen(postgres_store: str) -> None:
    with Pooler(postgres_store) as pooler:
        async with Scheduler(pooler.address, domains=[domain]) as scheduler, scheduler.running():
            with psycopg.connect(pooler.plain_address, prepare_threshold=None) as connection:
                handle = await scheduler.submit(work.options(key="own").prepare(3), connection=connection)
            assert await handle.result(timeout=LONG) == 3
        assert pooler.left_behind == []


async def _use(address: str) -> None:
    async with Scheduler(address, domains=[domain]) as scheduler:
        for n in range(20):
            await scheduler.submit(work.prepare(n))
            await scheduler.snapshot()


async def test_a_node_that_relies_on_sessions_gets_advice(postgres_store: str) -> None:
    with Pooler(postgres_store) as pooler:
        with pytest.raises(StoreError, match="add notifications=off to the address"):
            await _use(pooler.plain_address)
        assert pooler.left_behind, "the pooler of these tests notices it"


async def test_without_notifications_work_is_seen_within_the_interval_of_polling(postgres_store: str) -> None:
    quiet = f"{postgres_store}&notifications=off"
    took: list[float] = []
    async with (
        Scheduler(quiet, domains=[domain]) as asking,
        Scheduler(quiet, domains=[domain]) as node,
        node.running(),
    ):
        for n in range(5):
            began = time.monotonic()
            handle = await asking.submit(work.prepare(n))
            while (await asking.get(handle.id)).attempt == 0:
                await asyncio.sleep(0.01)
            took.append(time.monotonic() - began)
            # Submit at another phase of the interval each time.
            await asyncio.sleep(0.17)
    assert max(took) < heartbeat.BEAT + 0.7, took


async def test_nodes_that_were_started_together_do_not_ask_together() -> None:
    pauses = {heartbeat._until_next_beat() for _ in range(200)}
    assert len(pauses) > 150
    assert min(pauses) >= heartbeat.BEAT * heartbeat.SOONEST
    assert max(pauses) <= heartbeat.BEAT


async def test_without_notifications_no_node_listens_and_none_notifies(postgres_store: str) -> None:
    store = PostgresStore(f"{postgres_store}&notifications=off", "full", SystemClock())
    await store.open()
    try:
        with psycopg.connect(postgres_store, autocommit=True) as connection:
            row = connection.execute("SELECT 'taskmill_' || 'taskmill_change'::regclass::oid").fetchone()
            assert row is not None
            connection.execute(f"LISTEN {row[0]}".encode())
            await add(store, new_task())
            await asyncio.sleep(5 * heartbeat.MOMENT)
            assert list(connection.notifies(timeout=0)) == []
    finally:
        await store.close()


def test_a_queue_is_not_moved_through_a_pooler(postgres_store: str, tmp_path: object) -> None:
    with pytest.raises(ConfigError, match="give the address of the server itself"):
        move(f"{postgres_store}&notifications=off", f"{tmp_path}/t.db")
