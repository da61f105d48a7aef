"""A machine that the test plays: what it is doing, and how hard pressed it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from taskmill import Reading, Resources, Scheduler
from taskmill.model.io_budget import IoBudget
from taskmill.pressure import Pressure
from taskmill.testing import ManualClock

MB = 1_000_000


class PlayedMachine:
    """Says what it was told to say."""

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
    """Let seconds pass until something is so."""
    for _ in range(most):
        if await condition():
            return
        await clock.advance(1)
    raise AssertionError("it never came true")


async def statuses(scheduler: Scheduler, *ids: int) -> list[str]:
    return [str(getattr(record, "status", None) or record.ending) for record in [await scheduler.get(i) for i in ids]]  # type: ignore[union-attr]
