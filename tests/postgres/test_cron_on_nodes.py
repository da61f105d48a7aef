"""Cron on PostgreSQL: a firing that a node claims from the front of its lane is handled like any other."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from taskmill import Domain, Scheduler
from taskmill.cron import Cron
from taskmill.testing import ManualClock


async def test_a_run_that_waited_for_a_slot_settles_what_has_passed_meanwhile(postgres_store: str) -> None:
    clock = ManualClock(datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC))
    domain = Domain("d")
    may_end = asyncio.Event()
    runs: list[datetime] = []

    @domain.task
    async def block() -> None:
        await may_end.wait()

    async def tick() -> None:
        runs.append(clock.now())

    cron = [Cron("tick", "1-5 * * * *", tick, 1)]
    async with (
        Scheduler(postgres_store, domains=[domain], cron=cron, clock=clock, max_concurrency=1) as scheduler,
        scheduler.running(),
    ):
        await block.submit()
        await clock.advance(200)
        may_end.set()
        await clock.advance(1)
        await clock.advance(1)
        (schedule,) = (await scheduler.snapshot()).schedules
    assert len(runs) == 1
    assert schedule.last_run == runs[0]


async def test_a_node_that_declares_no_cron_tasks_leaves_those_of_others_alone(postgres_store: str) -> None:
    cron = [Cron("tick", "1-5 * * * *", lambda: None, 1)]
    async with (
        Scheduler(postgres_store, cron=cron) as one,
        Scheduler(postgres_store) as other,
        one.running(),
        other.running(),
    ):
        found = (await other.snapshot()).schedules
    # A node that is alone has the whole list of cron tasks: an empty one removes the others.
    async with Scheduler(postgres_store) as other, other.running():
        left = (await other.snapshot()).schedules
    assert ([each.type for each in found], list(left)) == (["cron::tick"], [])


async def test_a_node_whose_cron_task_was_removed_logs_that(
    postgres_store: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC))
    ticks = [Cron(name, "1-5 * * * *", lambda: None, 1) for name in ("tick", "tock")]
    async with (
        Scheduler(postgres_store, cron=ticks, clock=clock) as one,
        Scheduler(postgres_store, cron=ticks[1:], clock=clock) as other,
        one.running(),
        other.running(),
    ):
        await clock.advance(60)
    assert [record.args for record in caplog.records if "was removed: another node" in record.message] == [("tick",)]
