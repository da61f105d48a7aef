"""A year of a series, with random faults."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from taskmill import Context, Domain, GiveUp, Retry, Scheduler
from taskmill.events import RecurringSkipped
from taskmill.testing import ManualClock
from tests.both_engines import Engine
from tests.raw_rows import raw
from tests.repetition import often, seeds


class Year:
    """A recurring task through a year of random faults."""

    EVERY = timedelta(hours=6)

    def __init__(self, file: Path, seed: int, days: int, max_runs: int) -> None:
        self.file = file
        self.days = days
        self.max_runs = max_runs
        self.random = random.Random(seed)
        self.ttl = timedelta(hours=30) if seed % 2 else None
        self.clock = ManualClock()
        self.first_at = self.clock.now()
        self.domain = Domain("year")
        self.starts: dict[int, datetime] = {}
        """When each occurrence first started; it may be interrupted before its handler records that."""
        self.due: dict[int, datetime] = {}
        self.attempts: list[tuple[int, int]] = []
        self.running = 0
        self.skipped = 0
        self.is_paused = False
        self.may_wait_from = 0.0
        """Since when only its due time holds the next occurrence back."""
        self.has_cancelled = False
        """True if the next occurrence may be further away, because the one before it was cancelled."""
        self.faults: list[str] = []

        @self.domain.task(retry=Retry.constant(2, 600))
        async def tick(ctx: Context) -> None:
            await self.attempt(ctx)

        self.tick = tick

    async def attempt(self, ctx: Context) -> None:
        self.running += 1
        try:
            id, due = ctx.task.id, ctx.task.run_at or self.first_at
            # An exception in a handler is only a failure of its task, so faults are recorded here and checked later.
            if self.running != 1:
                self.faults.append(f"task {id} started beside another")
            if self.is_paused:
                self.faults.append(f"task {id} started while its series was paused")
            # An interrupted occurrence runs again as soon as it can, whatever the clock shows then.
            if ctx.attempt == 1 and self.clock.now() < due:
                self.faults.append(f"task {id} started early")
            self.attempts.append((id, ctx.attempt))
            if id not in self.due and not self.has_cancelled:
                waited = self.clock.monotonic() - self.may_wait_from
                if waited > self.EVERY.total_seconds():
                    self.faults.append(f"task {id} started {waited} s after the one before had ended")
            if id not in self.due and ctx.task.retries == 0:
                self.starts[id] = self.clock.now()
                self.due[id] = due
            chance = self.random.random()
            if chance < 0.1:
                await self.clock.sleep(self.random.choice([60, 3600, 20 * 3600, 50 * 3600]))
            elif chance < 0.3:
                raise ValueError("bad luck")
            elif chance < 0.35:
                raise GiveUp("no luck")
        finally:
            self.running -= 1
            self.may_wait_from, self.has_cancelled = self.clock.monotonic(), False

    async def live(self) -> None:
        submitted = False
        while self.clock.monotonic() < self.days * 86_400:
            settings = {"shutdown_grace": 0, "retention": None, "durability": "process", "clock": self.clock}
            async with Scheduler(self.file, domains=[self.domain], **settings) as scheduler:  # type: ignore[arg-type]
                counting = asyncio.create_task(self.count_skipped(scheduler))
                await self.clock.advance(0)
                if not submitted:
                    await self.tick.options(every=self.EVERY, max_runs=self.max_runs, ttl=self.ttl).submit()
                    submitted = True
                self.may_wait_from = self.clock.monotonic()
                async with scheduler.running():
                    for _ in range(self.random.randint(1, 8)):
                        await self.step(scheduler)
                await self.clock.advance(0)
                counting.cancel()
            await self.stop_for_a_while()

    async def count_skipped(self, scheduler: Scheduler) -> None:
        async for event in scheduler.events(RecurringSkipped):
            assert isinstance(event, RecurringSkipped)
            self.skipped += event.count

    async def step(self, scheduler: Scheduler) -> None:
        # Due tasks must have started before the clock is changed.
        await self.clock.advance(0)
        hours = self.random.choice([1, 5, 6, 7, 24, 60])
        match self.random.choice(["work"] * 6 + ["pause", "resume", "resume", "sleep", "back", "forth", "cancel"]):
            case "pause" if await self.is_alive(scheduler):
                await scheduler.pause_recurring(1)
                # An attempt that runs may end; the next one must wait.
                self.is_paused = True
            case "resume" if await self.is_alive(scheduler):
                self.is_paused = False
                await scheduler.resume_recurring(1)
                self.may_wait_from = self.clock.monotonic()
            case "sleep" | "forth":
                await self.clock.jump(timedelta(hours=hours))
            case "back":
                await self.clock.jump(timedelta(hours=-hours))
            case "cancel":
                for record in await scheduler.tasks():
                    await scheduler.cancel(record.id)
                    self.has_cancelled = True
            case _:
                pass
        await self.clock.advance(timedelta(hours=hours))
        assert len(await scheduler.tasks()) <= 1
        self.count_beats()

    def count_beats(self) -> None:
        """Check that every beat was created or skipped once, and every skip announced once."""
        with raw(self.file) as connection:
            row = connection.execute("SELECT first_at, due_at, every_ms, runs FROM taskmill_series").fetchone()
        if row is not None:
            first_at, due_at, every_ms, runs = row
            assert (due_at - first_at) % every_ms == 0
            assert (due_at - first_at) // every_ms + 1 == runs + self.skipped, "a beat was lost, or occurred twice"

    async def is_alive(self, scheduler: Scheduler) -> bool:
        return bool((await scheduler.snapshot()).schedules)

    async def stop_for_a_while(self) -> None:
        if self.random.random() < 0.3:
            await self.clock.jump(timedelta(hours=self.random.choice([-30, -1, 13, 100])))
        if self.random.random() < 0.5:
            await self.clock.advance(timedelta(hours=self.random.choice([1, 6, 50])))

    async def judge(self) -> None:
        async with Scheduler(self.file, domains=[self.domain], clock=self.clock) as scheduler:
            assert await scheduler.tasks() == [], "the series was over long ago"
            assert (await scheduler.snapshot()).schedules == []
            made = sorted(await scheduler.history(limit=10_000), key=lambda record: record.id)
        assert self.faults == []
        assert len(made) == self.max_runs
        assert len(set(self.attempts)) == len(self.attempts), "an attempt ran twice"
        assert len(self.starts) > self.max_runs / 2


@pytest.mark.parametrize("seed", seeds(2))
async def test_a_year_of_failures_pauses_suspends_and_clock_steps(tmp_path: Path, engine: Engine, seed: int) -> None:
    # It reopens the store all the time. A normal run lasts a third of a year, and on a server a fifth of that.
    days, max_runs = min(engine.fewer(often(120)), 365), min(engine.fewer(often(165)), 500)
    year = Year(tmp_path / "tasks.db", seed, days, max_runs)
    try:
        await year.live()
        await year.judge()
    except BaseException:
        print(f"seed {seed}, day {year.clock.monotonic() / 86_400:.1f}, {len(year.starts)} occurrences started")
        raise
