"""A machine that the test controls: its readings, and its pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from taskmill import Domain, IoBudget, Reading, Resources, Scheduler, Submission
from taskmill.pressure import Pressure
from taskmill.testing import ManualClock

MB = 1_000_000
CAPACITY = IoBudget(disk_write=100 * MB)
"""Bytes per second: 160 MB may be in progress at once."""


class PlayedMachine:
    """A sampler with the readings and pressures that the test sets."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.pressures = {"cpu": 0.0}

    def sample(self) -> Reading:
        return self.reading

    def sources(self) -> list[Pressure]:
        return [Pressure(name, lambda name=name: self.pressures[name]) for name in self.pressures]  # type: ignore[misc]

    def resources(self, capacity: IoBudget | None = None) -> Resources:
        return Resources(sampler=self, capacity=capacity)


async def until(clock: ManualClock, condition: Callable[[], Awaitable[bool]], most: int = 60) -> None:
    """Advance the clock second by second until a condition is true."""
    for _ in range(most):
        if await condition():
            return
        await clock.advance(1)
    raise AssertionError("it never came true")


async def statuses(scheduler: Scheduler, *ids: int) -> list[str]:
    return [str(getattr(record, "status", None) or record.ending) for record in [await scheduler.get(i) for i in ids]]  # type: ignore[union-attr]


class Gate:
    """Handlers that end when the test lets them."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}
        self.started: list[str] = []

    async def work(self, name: str) -> None:
        self.running[name] = asyncio.Event()
        self.started.append(name)
        try:
            await self.running[name].wait()
        finally:
            del self.running[name]

    def end(self, *names: str) -> None:
        for name in names:
            self.running[name].set()

    async def end_all(self, clock: ManualClock) -> None:
        """Let all handlers end, and those that start then, until none is left."""
        while self.running:
            self.end(*self.running)
            await clock.advance(1)


def a_domain(gate: Gate) -> Domain:
    domain = Domain("work")

    @domain.task(io=lambda name, mb=0: IoBudget(disk_write=mb * MB))
    async def write(name: str, mb: int = 0) -> None:
        await gate.work(name)

    return domain


def a_scheduler(gate: Gate, clock: ManualClock, store: Path | str = ":memory:", **settings: Any) -> Scheduler:
    return Scheduler(store, domains=[a_domain(gate)], clock=clock, **settings)


async def submit(scheduler: Scheduler, name: str, mb: int = 0, **options: Any) -> int:
    handle = await scheduler.submit(Submission("work::write", {"name": name, "mb": mb}, **options))
    return handle.id
