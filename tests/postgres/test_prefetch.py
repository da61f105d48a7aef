"""Prefetch on several nodes: tasks run once, no node idles while another one has claimed tasks, and none is lost."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from taskmill import Context, Domain, Scheduler
from taskmill.store.postgres import lease
from tests.postgres import short_task_node
from tests.warm_python import Popen

MANY = 600
LONG = 30


class Node:
    """A scheduler that records which tasks it ran."""

    def __init__(self, address: str, slots: int, hangs_at: int | None = None, duration: float = 0) -> None:
        self.ran: list[int] = []
        self.attempts: Counter[int] = Counter()
        self.hangs, self.go_on = asyncio.Event(), asyncio.Event()
        domain = Domain("d")

        @domain.task
        async def short(ctx: Context) -> None:
            self.ran.append(ctx.task.id)
            self.attempts[ctx.attempt] += 1
            await asyncio.sleep(duration)
            if len(self.ran) == hangs_at:
                self.hangs.set()
                await self.go_on.wait()

        self.short = short
        self.scheduler = Scheduler(address, domains=[domain], max_concurrency=slots)


async def until_done(scheduler: Scheduler, left: int = 0) -> None:
    async with asyncio.timeout(LONG):
        while await scheduler.count() > left:
            await asyncio.sleep(0.01)


async def test_short_tasks_drain_on_two_nodes_at_once(postgres_store: str) -> None:
    one, two = (Node(postgres_store, 2, duration=0.002) for _ in range(2))
    async with one.scheduler, two.scheduler:
        await one.scheduler.submit_many([one.short.prepare() for _ in range(MANY)])
        await one.scheduler.pause()
        async with one.scheduler.running(), two.scheduler.running():
            await one.scheduler.resume()
            await until_done(one.scheduler)
        assert await one.scheduler.count(status="completed") == MANY
    ran = Counter([*one.ran, *two.ran])
    assert (len(ran), ran.total()) == (MANY, MANY)
    assert one.attempts + two.attempts == {1: MANY}
    assert min(len(one.ran), len(two.ran)) >= MANY / 10


async def test_a_node_whose_slot_stalls_leaves_its_prefetched_tasks_to_others(postgres_store: str) -> None:
    stalled, other = Node(postgres_store, 1, hangs_at=30), Node(postgres_store, 1)
    async with stalled.scheduler, other.scheduler:
        await stalled.scheduler.submit_many([stalled.short.prepare() for _ in range(60)])
        async with stalled.scheduler.running():
            await asyncio.wait_for(stalled.hangs.wait(), LONG)
            async with other.scheduler.running():
                await until_done(other.scheduler, left=1)
                stalled.go_on.set()
                await until_done(other.scheduler)
        assert await other.scheduler.count(status="completed") == 60
    assert len(stalled.ran) == 30
    assert len(other.ran) == 30
    assert stalled.attempts + other.attempts == {1: 60}


async def test_prefetched_tasks_of_a_killed_node_run_elsewhere_without_a_crash(
    postgres_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE", 2.0)
    domain, short = short_task_node.domain, short_task_node.short
    async with Scheduler(postgres_store, domains=[domain], max_concurrency=1) as scheduler:
        await scheduler.submit_many([short.prepare(str(tmp_path), n) for n in range(60)])
        node = Popen([sys.executable, "-m", "tests.postgres.short_task_node", postgres_store])
        try:
            async with asyncio.timeout(LONG):
                while not short_task_node.sign_of_hanging(str(tmp_path)).exists():
                    await asyncio.sleep(0.02)
            with psycopg.connect(postgres_store, autocommit=True) as connection:
                claimed = "SELECT count(*) FROM taskmill_task WHERE status = 'running' AND started_at IS NULL"
                row = connection.execute(claimed).fetchone()
                assert row is not None
                assert row[0] > 1, "nothing is prefetched"
                node.kill()
                node.wait()
                await scheduler.pause()
                async with scheduler.running():
                    async with asyncio.timeout(LONG):
                        while connection.execute("SELECT 1 FROM taskmill_task WHERE status = 'running'").fetchone():
                            await asyncio.sleep(0.05)
                    crashed = connection.execute("SELECT count(*) FROM taskmill_task WHERE crashes > 0").fetchone()
                    assert crashed is not None
                    assert crashed[0] <= 1, "only the task that hung had begun"
                    await scheduler.resume()
                    await until_done(scheduler)
        finally:
            node.kill()
            node.wait()
        assert await scheduler.count(status="completed") == 60
    runs = Counter(int(path.name.partition(".")[0]) for path in tmp_path.iterdir())
    # Tasks that ended in the killed node, uncommitted, ran again.
    assert sorted(runs) == list(range(60))
    assert max(runs.values()) <= 2
