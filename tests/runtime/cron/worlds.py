"""One sequence of events for a cron scheduler, run twice: by the decisions alone, and by the engine on a file.

Both get the same plans and times, so that the tasks they start, and when, can be compared.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from taskmill.cron import Cron, CronScheduler
from taskmill.model.durations import from_ms
from taskmill.testing import ManualClock
from tests.both_engines import copied_as_killed
from tests.policy.cron.simulation import Plan, World

Task = tuple[str, str, float]


class PlannedWorld(World):
    """The decisions alone; the plan of a run depends on how often its task has started."""

    def plan_of(self, name: str) -> Plan:
        count = sum(start.name == name for start in self.starts)
        return self.plans[count % len(self.plans)]


class EngineWorld:
    """The engine, on a file and a manual clock. Violations are collected in ``wrong``."""

    def __init__(self, folder: Path, zone: ZoneInfo, begins_at: int, plans: list[Plan]) -> None:
        self.clock = ManualClock(from_ms(begins_at).astimezone(zone))
        self.starts: list[tuple[int, str]] = []
        self.wrong: list[str] = []
        self._folder = folder
        self._plans = plans
        self._generation = 0
        self._counts = Counter[str]()
        self._at_work = Counter[str]()
        self._is_active = False
        self._abandoned = 0
        self._scheduler = CronScheduler(self._file, self.clock)

    @property
    def _file(self) -> Path:
        return self._folder / f"{self._generation}.db"

    async def initialize(self, *tasks: Task) -> None:
        self._is_active = True
        registrations = [Cron(name, text, self._handler(name), delay) for name, text, delay in tasks]
        await self._scheduler.initialize(registrations)
        await self.clock.advance(0)

    def _handler(self, name: str) -> Callable[[], Awaitable[None]]:
        generation = self._generation

        async def handle() -> None:
            if not self._is_active:
                self.wrong.append(f"{name} starts while nothing may")
            if self._at_work[name]:
                self.wrong.append(f"{name} overlaps itself")
            plan = self._plans[self._counts[name] % len(self._plans)]
            self._counts[name] += 1
            self.starts.append((self.clock.now_ms(), name))
            self._at_work[name] += 1
            try:
                if plan.lasts:
                    await self.clock.sleep(timedelta(milliseconds=plan.lasts))
                if not plan.succeeds:
                    raise ValueError("as planned")
            finally:
                if generation == self._generation:
                    self._at_work[name] -= 1

        return handle

    async def let_pass(self, ms: int) -> None:
        await self.clock.advance(timedelta(milliseconds=ms))

    async def step_clock(self, ms: int) -> None:
        await self.clock.jump(timedelta(milliseconds=ms))

    async def stop(self, timeout: int | None, takes: int) -> None:
        stopping = asyncio.create_task(
            self._scheduler.stop(None if timeout is None else timedelta(milliseconds=timeout))
        )
        await asyncio.sleep(0)
        self._is_active = False
        await self.clock.advance(timedelta(milliseconds=takes))
        await asyncio.wait_for(stopping, 20)

    async def crash(self) -> None:
        """Continue with the file as it is now, as after a kill: nothing is shut down."""
        before, old = self._file, self._scheduler
        self._generation += 1
        if not copied_as_killed(before, self._file):
            # Copy in another process: a process that closes a file loses all its locks on it.
            cp = shutil.which("cp") or "cp"
            subprocess.run([cp, before, self._file], check=True)
            if Path(f"{before}-wal").exists():
                subprocess.run([cp, f"{before}-wal", f"{self._file}-wal"], check=True)
        self._at_work.clear()
        self._is_active = False
        await old.stop(timeout=0)
        self._scheduler = CronScheduler(self._file, self.clock)

    async def end(self) -> None:
        await self._scheduler.stop(timeout=0)
