"""The watch: asks the sampler and the sources of pressure at an interval, and keeps what they said.

They are asked in a thread of its own, one after the other: a file of the system, a driver of a battery or a function of
the user may take its time, and the event loop does not wait for it. What they say is judged on the loop.

Whoever fails is left out until it answers again, and the log says so once; a signal that is missing never holds back
work. The same goes for one that does not answer: after :data:`PATIENCE` what was known is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from taskmill.logs import resources_logger as logger
from taskmill.model.exception_text import exception_text
from taskmill.model.io_budget import IoBudget
from taskmill.model.readings import UNKNOWN_CAPACITY, Capacity, Reading
from taskmill.model.resources import PressureSource, ResourceSampler
from taskmill.policy.capacity import capacity_in_use, learned
from taskmill.policy.io_gate import IoLoad
from taskmill.policy.smoothing import clean_share, smoothed
from taskmill.policy.throttling import aggregate, bandwidth_pressure
from taskmill.ports import Clock

PATIENCE = 30.0
"""Seconds after which an answer that does not come is no longer waited for."""
BANDWIDTH = "bandwidth"
"""What the snapshot calls the pressure of ``bandwidth_limit``."""
SAMPLER = "sampler"


async def _nothing() -> None:
    """Nobody wants to know."""


class Seen(msgspec.Struct):
    """What one round of questions brought."""

    reading: Reading | None = None
    pressures: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    bounds: IoBudget | None = None
    failures: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class ResourceWatch:
    """What is known about the machine. ``changed`` is called on the loop whenever pressure or capacity have changed."""

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
        self._inquirer: _Inquirer | None = None
        self._failing: set[str] = set()
        self.due_at = clock.monotonic()
        """When the next look is due."""
        self.reading: Reading | None = None
        """Smoothed."""
        self.pressures: Mapping[str, float] = {}
        """By source, as it said; from 0 to 1."""
        self.pressure = 0.0
        """The highest of them."""
        self.known = known
        """What was learned about capacity, to be kept over restarts."""
        self.capacity = capacity_in_use(known, capacity)
        """What the IO gate goes by."""

    async def run(self, looked: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Look at each interval until :meth:`stop`; ``looked`` is awaited each time."""
        try:
            while not self._stopping.is_set():
                await self._clock.wait(self._stopping, self.due_at)
                if not self._stopping.is_set() and self._clock.monotonic() >= self.due_at:
                    await self.look()
                    await looked()
        finally:
            self.stop()

    def stop(self) -> None:
        """Let :meth:`run` end. A source that does not answer is not waited for."""
        self._stopping.set()
        self._answered.set()
        if self._inquirer is not None:
            self._inquirer.end()
            self._inquirer = None

    async def look(self) -> None:
        """Ask everyone once, now."""
        began = self._clock.monotonic()
        self.due_at = began + self._interval
        if self._inquirer is None:
            self._inquirer = _Inquirer(self._clock, self._sampler, self._sources)
        inquirer = self._inquirer
        self._answered = answered = asyncio.Event()
        answer = inquirer.ask(answered)
        while not answered.is_set():
            waited = self._clock.monotonic() - began
            await self._clock.wait(answered, None if waited >= PATIENCE else began + PATIENCE)
            if not answered.is_set() and self._clock.monotonic() - began >= PATIENCE:
                self._give_up_on(inquirer.asking)
        if answer:
            self._take(answer[0])

    def _give_up_on(self, name: str) -> None:
        if name not in self._failing:
            self._failing.add(name)
            logger.warning("%s has not answered for %.0f s; until it does, tasks start regardless", name, PATIENCE)
        self._settle(None, {})

    def _take(self, seen: Seen) -> None:
        for name, why in seen.failures.items():
            if name not in self._failing:
                logger.warning("%s failed (%s); until it answers again, it is left out", name, why)
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


class _Inquirer:
    """The thread that asks. A daemon: a source that never answers does not keep the program alive."""

    def __init__(self, clock: Clock, sampler: ResourceSampler | None, sources: Sequence[PressureSource]) -> None:
        self._clock = clock
        self._sampler = sampler
        # A name is code of the user's, too, and it is read once.
        self._sources = [(source.name, source) for source in sources]
        self._questions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.asking = ""
        """Who is being asked."""
        threading.Thread(target=self._serve, name="taskmill-monitor", daemon=True).start()

    def ask(self, answered: asyncio.Event) -> list[Seen]:
        """Put all questions; the answer is in the list when ``answered`` is set by it."""
        loop = asyncio.get_running_loop()
        answer: list[Seen] = []

        def job() -> None:
            seen = self._seen()
            # A loop that has been closed meanwhile has nobody left to be told.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done, seen)

        def done(seen: Seen) -> None:
            self._clock.work_ends(may_block=True)
            answer.append(seen)
            answered.set()

        self._clock.work_begins(may_block=True)
        self._questions.put(job)
        return answer

    def end(self) -> None:
        self._questions.put(None)

    def _serve(self) -> None:
        while (job := self._questions.get()) is not None:
            job()

    def _seen(self) -> Seen:
        seen = Seen()
        if self._sampler is not None:
            sampler = self._sampler
            self._ask_one(seen, SAMPLER, lambda: _sample(seen, sampler))
        for name, source in self._sources:
            self._ask_one(seen, name, lambda name=name, source=source: _press(seen, name, source))  # type: ignore[misc]
        return seen

    def _ask_one(self, seen: Seen, name: str, question: Callable[[], None]) -> None:
        self.asking = name
        try:
            question()
        except BaseException as wrong:  # noqa: BLE001 - whatever it is, the others are asked
            seen.failures[name] = exception_text(wrong)


def _sample(seen: Seen, sampler: ResourceSampler) -> None:
    reading = sampler.sample()
    if not isinstance(reading, Reading):
        raise TypeError(f"sample() returned {type(reading).__name__}, not a Reading")
    bounds = getattr(sampler, "bounds", None)
    seen.bounds = bounds if isinstance(bounds, IoBudget) else None
    seen.reading = reading


def _press(seen: Seen, name: str, source: PressureSource) -> None:
    said = source.pressure()
    pressure = clean_share(said)
    if pressure is None:
        raise ValueError(f"pressure() returned {str(said)[:40]}, not a number from 0 to 1")
    seen.pressures[name] = pressure
