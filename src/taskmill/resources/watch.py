"""Poll the sampler and the pressure sources at an interval, and keep the latest values.

They are called in a separate thread, one after the other, because a system file, a battery driver or a user's function
may be slow and the event loop must not wait for it. The values are evaluated on the loop.

A source that fails is left out until it answers again, and this is logged once; a missing signal never holds back work.
If a source does not answer within :data:`PATIENCE` seconds, all readings and pressures are dropped until it does; the
learned capacity stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from taskmill.core.logs import resources_logger as logger
from taskmill.core.ports import Clock
from taskmill.model.exceptions import exception_text
from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import UNKNOWN_CAPACITY, Capacity, PressureSource, Reading, ResourceSampler
from taskmill.policy.capacity import capacity_in_use, learned
from taskmill.policy.io_room import IoLoad
from taskmill.policy.pressure import aggregate, bandwidth_pressure, clean_share, smoothed

PATIENCE = 30.0
"""Seconds after which a missing answer counts as a failure."""
BANDWIDTH = "bandwidth"
"""The name of the pressure of ``bandwidth_limit`` in snapshots."""
SAMPLER = "sampler"


async def _nothing() -> None:
    """Do nothing."""


class Readings(msgspec.Struct):
    """The values of one round."""

    reading: Reading | None = None
    pressures: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    bounds: IoBudget | None = None
    failures: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class ResourceWatch:
    """The latest readings of the machine. ``changed`` is called on the loop when pressure or capacity change."""

    def __init__(
        self,
        clock: Clock,
        *,
        sampler: ResourceSampler | None = None,
        sources: Sequence[PressureSource] = (),
        interval: float = 1.0,
        capacity: IoBudget | None = None,
        known: Capacity = UNKNOWN_CAPACITY,
        bandwidth_limit: float | None = None,
        load: IoLoad | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._sampler = sampler
        self._sources = sources
        self._interval = interval
        self._given = capacity
        self._bounds: IoBudget | None = None
        self._bandwidth_limit = bandwidth_limit
        self._load = IoLoad() if load is None else load
        self._changed = changed
        self._stopping = asyncio.Event()
        self._answered = asyncio.Event()
        self._polling: _PollingThread | None = None
        self._failing: set[str] = set()
        self.due_at = clock.monotonic()
        """When the next round is due."""
        self.reading: Reading | None = None
        """The smoothed reading."""
        self.pressures: Mapping[str, float] = {}
        """The pressure of each source, from 0 to 1."""
        self.pressure = 0.0
        """The highest pressure of all sources."""
        self.known = known
        """The learned capacity, which is stored and survives restarts."""
        self.capacity = capacity_in_use(known, capacity)
        """The capacity that the IO limit uses."""

    async def run(self, looked: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Poll at each interval until :meth:`stop`; ``looked`` is awaited after each round."""
        try:
            while not self._stopping.is_set():
                await self._clock.wait(self._stopping, self.due_at)
                if not self._stopping.is_set() and self._clock.monotonic() >= self.due_at:
                    await self.look()
                    await looked()
        finally:
            self.stop()

    def stop(self) -> None:
        """End :meth:`run` without waiting for a source that does not answer."""
        self._stopping.set()
        self._answered.set()
        if self._polling is not None:
            self._polling.end()
            self._polling = None

    async def look(self) -> None:
        """Poll the sampler and all sources once, now."""
        began = self._clock.monotonic()
        self.due_at = began + self._interval
        if self._polling is None:
            self._polling = _PollingThread(self._clock, self._sampler, self._sources)
        polling = self._polling
        self._answered = answered = asyncio.Event()
        answer = polling.ask(answered)
        while not answered.is_set():
            waited = self._clock.monotonic() - began
            await self._clock.wait(answered, None if waited >= PATIENCE else began + PATIENCE)
            if not answered.is_set() and self._clock.monotonic() - began >= PATIENCE:
                self._give_up_on(polling.asking)
        if answer:
            self._take(answer[0])

    def _give_up_on(self, name: str) -> None:
        if name not in self._failing:
            self._failing.add(name)
            logger.warning(
                "%s has not answered for %.0f s; until it does, tasks start without regard to pressure", name, PATIENCE
            )
        self._settle(None, {})

    def _take(self, seen: Readings) -> None:
        for name, why in seen.failures.items():
            if name not in self._failing:
                logger.warning("%s failed (%s); it is ignored until it answers again", name, why)
        for name in self._failing - set(seen.failures):
            logger.info("%s answers again", name)
        self._failing = set(seen.failures)
        reading = None
        if seen.reading is not None:
            reading = smoothed(self.reading, seen.reading)
            self.known = learned(self.known, reading, self._load)
        self._bounds = seen.bounds
        self._settle(reading, seen.pressures)

    def _settle(self, reading: Reading | None, pressures: Mapping[str, float]) -> None:
        self.reading = reading
        if reading is not None and self._bandwidth_limit is not None:
            pressures = {**pressures, BANDWIDTH: bandwidth_pressure(reading, self._bandwidth_limit)}
        before = self.pressure, self.capacity
        self.pressures = pressures
        self.pressure = aggregate(pressures.values())
        self.capacity = capacity_in_use(self.known, self._given, self._bounds)
        if before != (self.pressure, self.capacity):
            self._changed()


class _PollingThread:
    """The polling thread. It is a daemon, so that a source that never answers does not keep the program alive."""

    def __init__(self, clock: Clock, sampler: ResourceSampler | None, sources: Sequence[PressureSource]) -> None:
        self._clock = clock
        self._sampler = sampler
        # `name` may be a property written by the user, so read it only once.
        self._sources = [(source.name, source) for source in sources]
        self._questions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.asking = ""
        """The name of the sampler or source being called."""
        self._thread = threading.Thread(target=self._serve, name="taskmill-monitor", daemon=True)
        self._thread.start()

    def ask(self, answered: asyncio.Event) -> list[Readings]:
        """Start a round; when ``answered`` is set, the returned list holds its values."""
        loop = asyncio.get_running_loop()
        answer: list[Readings] = []

        def job() -> None:
            seen = self._seen()
            # If the loop was closed meanwhile, nothing waits for the values.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done, seen)

        def done(seen: Readings) -> None:
            self._clock.work_ends(may_block=True, thread=self._thread)
            answer.append(seen)
            answered.set()

        self._clock.work_begins(may_block=True, thread=self._thread)
        self._questions.put(job)
        return answer

    def end(self) -> None:
        self._questions.put(None)

    def _serve(self) -> None:
        while (job := self._questions.get()) is not None:
            job()

    def _seen(self) -> Readings:
        seen = Readings()
        if self._sampler is not None:
            sampler = self._sampler
            self._ask_one(seen, SAMPLER, lambda: _sample(seen, sampler))
        for name, source in self._sources:
            self._ask_one(seen, name, lambda name=name, source=source: _press(seen, name, source))  # type: ignore[misc]
        return seen

    def _ask_one(self, seen: Readings, name: str, question: Callable[[], None]) -> None:
        self.asking = name
        try:
            question()
        except BaseException as wrong:  # noqa: BLE001 - the other sources must still be called
            seen.failures[name] = exception_text(wrong)


def _sample(seen: Readings, sampler: ResourceSampler) -> None:
    reading = sampler.sample()
    if not isinstance(reading, Reading):
        raise TypeError(f"sample() returned {type(reading).__name__}, not a Reading")
    bounds = getattr(sampler, "bounds", None)
    seen.bounds = bounds if isinstance(bounds, IoBudget) else None
    seen.reading = reading


def _press(seen: Readings, name: str, source: PressureSource) -> None:
    said = source.pressure()
    pressure = clean_share(said)
    if pressure is None:
        raise ValueError(f"pressure() returned {str(said)[:40]}, not a number from 0 to 1")
    seen.pressures[name] = pressure
