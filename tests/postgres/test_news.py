"""What nodes tell each other: at once when there is something to do, and nothing when there is not."""

from __future__ import annotations

import asyncio
import time
from statistics import median

import psycopg
import pytest

from taskmill import Domain, Scheduler, Submission
from taskmill.store.postgres import heartbeat

QUIET = 1.5
"""Seconds in which nothing is committed; whoever wakes another does so within a fraction of that."""
AT_ONCE = 0.1
"""Seconds: many times as long as a notification takes, and a small part of a beat."""


def _domain(began: list[float]) -> Domain:
    domain = Domain("d")

    @domain.task
    async def work() -> None:
        began.append(time.monotonic())

    return domain


async def test_idle_nodes_do_not_wake_each_other_for_ever(postgres_store: str) -> None:
    began: list[float] = []
    one, two = (Scheduler(postgres_store, domains=[_domain(began)]) for _ in range(2))
    async with one, two, one.running(), two.running():
        handles = await one.submit_many([Submission("d::work", {}) for _ in range(20)])
        for handle in handles:
            await handle.result(timeout=30)
        with psycopg.connect(postgres_store, autocommit=True) as connection:

            def commits() -> object:
                return connection.execute("SELECT last_value FROM taskmill_change").fetchone()

            async with asyncio.timeout(20):
                before = None
                while before != commits():
                    before = commits()
                    await asyncio.sleep(QUIET)
            turns = [scheduler._store._writer.commits for scheduler in (one, two)]  # type: ignore[attr-defined]
            await asyncio.sleep(QUIET)
            after = commits()
            more = [scheduler._store._writer.commits for scheduler in (one, two)]  # type: ignore[attr-defined]
    assert after == before
    # Now and then a node looks anyway.
    assert all(later - earlier <= 2 for earlier, later in zip(turns, more, strict=True)), (turns, more)


async def test_what_a_producer_submits_reaches_an_idle_node_by_notification(
    postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks by itself before the test is over.
    monkeypatch.setattr(heartbeat, "BEAT", 15.0)
    began: list[float] = []
    took: list[float] = []
    async with (
        Scheduler(postgres_store) as producer,
        Scheduler(postgres_store, domains=[_domain(began)]) as node,
        node.running(),
    ):
        for _ in range(15):
            # It is idle by then, and what it has just told is over.
            await asyncio.sleep(0.1)
            since = time.monotonic()
            await producer.submit(Submission("d::work", {}))
            async with asyncio.timeout(30):
                while len(began) <= len(took):
                    await asyncio.sleep(0.001)
            took.append(began[-1] - since)
    assert median(took) < AT_ONCE, took
