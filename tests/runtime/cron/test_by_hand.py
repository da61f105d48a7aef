"""``run_cron`` fires a cron task once now, besides its schedule."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from taskmill import ConfigError, Domain, DuplicateTask, HistoryRecord, Priority, Scheduler, TaskNotFound, blocking
from taskmill.cron import Cron
from taskmill.events import CronFired
from taskmill.testing import ManualClock

HALF_PAST = datetime(2030, 1, 1, 12, 30, tzinfo=UTC)


class Hourly:
    """An hourly cron task that records when it ran."""

    def __init__(self, clock: ManualClock) -> None:
        self.ran: list[datetime] = []
        self.clock = clock
        self.fails = False
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.cron = [Cron("hourly", "0 * * * *", self, timedelta(minutes=5))]

    async def __call__(self) -> None:
        self.ran.append(self.clock.now())
        await self.may_end.wait()
        if self.fails:
            raise ValueError("not yet")

    @property
    def minutes(self) -> list[float]:
        """Return when it ran, in minutes after half past twelve."""
        return [(at - HALF_PAST) / timedelta(minutes=1) for at in self.ran]


async def test_it_runs_once_now_and_its_schedule_is_unchanged() -> None:
    clock = ManualClock(HALF_PAST)
    hourly = Hourly(clock)
    async with Scheduler(cron=hourly.cron, clock=clock) as scheduler, scheduler.running():
        await clock.advance(0)
        before = (await scheduler.snapshot()).schedules[0]
        listener = scheduler.events(CronFired)
        handle = await scheduler.run_cron("hourly")
        await clock.advance(0)
        await handle.result()
        assert hourly.minutes == [0]
        event = await anext(listener)
        assert (event.name, event.occurrence, event.task_id) == ("hourly", HALF_PAST, handle.id)
        record = await handle.record()
        assert record.tags == {"cron": "hourly"}
        after = (await scheduler.snapshot()).schedules[0]
        assert after.next_run == before.next_run == HALF_PAST + timedelta(minutes=30)
        assert (after.runs, after.last_outcome, after.last_run) == (before.runs + 1, "succeeded", HALF_PAST)
        await clock.advance("3h")
        assert hourly.minutes == [0, 30, 90, 150]


async def test_it_never_overlaps_itself_and_an_occurrence_that_passes_meanwhile_runs_afterwards() -> None:
    clock = ManualClock(HALF_PAST)
    hourly = Hourly(clock)
    async with Scheduler(cron=hourly.cron, clock=clock) as scheduler, scheduler.running():
        await clock.advance(0)
        hourly.may_end.clear()
        handle = await scheduler.run_cron("hourly")
        with pytest.raises(DuplicateTask, match="active already") as refused:
            await scheduler.run_cron("hourly")
        assert refused.value.existing_id == handle.id
        await clock.advance("45m")
        with pytest.raises(DuplicateTask, match=f"as task {handle.id}"):
            await scheduler.run_cron("hourly")
        assert hourly.minutes == [0], "the occurrence waits"
        hourly.may_end.set()
        await clock.advance("1m")
        assert hourly.minutes == [0, 45]


async def test_an_occurrence_that_passes_before_it_starts_is_not_swallowed(tmp_path: Path) -> None:
    clock = ManualClock(HALF_PAST)
    hourly = Hourly(clock)
    async with Scheduler(tmp_path / "tasks.db", cron=hourly.cron, clock=clock) as scheduler:
        await scheduler.run_until_idle()
        await scheduler.run_cron("hourly")
        await clock.advance("31m")
        assert hourly.minutes == []
        async with scheduler.running():
            await clock.advance("1m")
    assert hourly.minutes == [31, 31], "the manual run, then the occurrence of one o'clock"


async def test_a_failed_run_is_retried_and_a_run_by_hand_replaces_the_retry() -> None:
    clock = ManualClock(HALF_PAST)
    hourly = Hourly(clock)
    async with Scheduler(cron=hourly.cron, clock=clock) as scheduler, scheduler.running():
        await clock.advance(0)
        hourly.fails = True
        first = await scheduler.run_cron("hourly")
        await clock.advance("5m")
        assert hourly.minutes == [0, 5]
        hourly.fails = False
        second = await scheduler.run_cron("hourly")
        await clock.advance("20m")
        assert hourly.minutes == [0, 5, 5]
        replaced, done = await first.record(), await second.record()
        assert isinstance(replaced, HistoryRecord)
        assert isinstance(done, HistoryRecord)
        assert (replaced.ending, done.ending) == ("superseded", "completed")
        await clock.advance("5m")
        assert hourly.minutes == [0, 5, 5, 30]


async def test_another_process_fires_it_with_its_own_options(tmp_path: Path) -> None:
    clock, domain = ManualClock(HALF_PAST), Domain("nightly", ttl="2d")
    ran: list[str] = []

    @domain.task(label="the label")
    async def tidy() -> None:
        ran.append("tidy")

    task = tidy.options(priority=Priority.HIGH, group="disk", tags={"team": "a"}, timeout="10m")
    cron = [Cron("tidy", "0 3 * * *", task, 60)]
    path = tmp_path / "tasks.db"
    async with (
        Scheduler(path, domains=[domain], cron=cron, clock=clock) as dispatcher,
        Scheduler(path, clock=clock) as other,
    ):
        await dispatcher.run_until_idle()
        here, there = await dispatcher.run_cron("tidy"), None
        await dispatcher.run_until_idle()
        there = await other.run_cron("tidy")
        await dispatcher.run_until_idle()
        one, two = await dispatcher.get(here.id), await dispatcher.get(there.id)
        for name in ("type", "label", "group", "priority", "tags", "payload", "expires_at", "state"):
            assert getattr(one, name) == getattr(two, name), name
        assert (two.group, two.priority, two.tags) == ("disk", 64, {"cron": "tidy", "team": "a"})
    assert ran == ["tidy", "tidy"]


async def test_a_name_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    clock = ManualClock(HALF_PAST)
    hourly = Hourly(clock)
    async with Scheduler(tmp_path / "tasks.db", cron=hourly.cron, clock=clock) as scheduler:
        with pytest.raises(TaskNotFound, match="hourly"):
            await scheduler.run_cron("hourly")
        await scheduler.run_until_idle()
        with pytest.raises(TaskNotFound, match="daily"):
            await scheduler.run_cron("daily")
        with pytest.raises(ConfigError, match="name"):
            await scheduler.run_cron(5)  # type: ignore[arg-type]
        assert await scheduler.count() == 0


def test_it_blocks_where_there_is_no_event_loop(tmp_path: Path) -> None:
    ran: list[str] = []
    cron = [Cron("yearly", "0 0 1 1 *", lambda: ran.append("yearly"), 60)]
    with blocking.Scheduler(tmp_path / "tasks.db", cron=cron) as scheduler:
        scheduler.run_until_idle(timeout=20)
        handle = scheduler.run_cron("yearly")
        scheduler.run_until_idle(timeout=20)
        handle.wait(timeout=20)
    assert ran[-1] == "yearly"
