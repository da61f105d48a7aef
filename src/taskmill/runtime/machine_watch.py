"""Watch the machine while tasks are dispatched, and store the readings.

The watch (``resources/watch.py``) reads the machine at intervals. Each reading goes to the backpressure of the
dispatcher at once, and to the store when tasks begin or cease to wait because of it. Stored readings serve ``explain``
in other processes and the next dispatcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from taskmill.core.logs import logger
from taskmill.core.ports import Clock, KnowsMachine
from taskmill.dispatch.backpressure import Backpressure, Seen
from taskmill.errors import StoreError
from taskmill.model.machine import UNSEEN, Capacity, Machine, Reading
from taskmill.policy.capacity import is_news
from taskmill.policy.io_room import IoLoad

FIRST_READING = 1.0
"""The longest wait for the first reading, in seconds. After that, tasks start without backpressure."""
NOTE_INTERVAL = 60.0
"""The shortest time, in seconds, between two writes that only store a newly measured capacity."""


class Watch(Seen, Protocol):
    """Reads the machine at intervals."""

    @property
    def reading(self) -> Reading | None:
        """The latest reading, smoothed; None without a sampler."""
        ...

    async def run(self, looked: Callable[[], Awaitable[None]]) -> None:
        """Read until :meth:`stop` is called; await ``looked`` after each reading."""
        ...

    def stop(self) -> None: ...


MakeWatch = Callable[[IoLoad, Capacity, Callable[[], None]], Watch]
"""Called with the IO budgets of running tasks, the capacity known so far, and a callback for changed readings."""


async def clear_readings(store: KnowsMachine) -> None:
    """Remove the stored limits and pressures, because nothing watches the machine now; keep the measured capacity."""
    seen = await store.machine()
    if seen is not None and seen != (learned := Machine(known=seen.known)):
        await store.note_machine(learned)


class MachineWatch:
    """Passes readings of the machine to the backpressure of a dispatcher, and stores them."""

    def __init__(
        self, store: KnowsMachine, clock: Clock, make_watch: MakeWatch, load: IoLoad, backpressure: Backpressure
    ) -> None:
        self._store = store
        self._clock = clock
        self._make_watch = make_watch
        self._load = load
        self._backpressure = backpressure
        self._noted = UNSEEN
        self._noted_at = float("-inf")
        self._running: asyncio.Task[None] | None = None
        self.watch: Watch | None = None

    @property
    def machine(self) -> Machine:
        """The latest readings, with the limits that follow from them."""
        return UNSEEN if self.watch is None else self._backpressure.report(self.watch)

    async def begin(self, changed: Callable[[bool], None]) -> None:
        """Start to watch, and wait for the first reading, at most :data:`FIRST_READING`.

        ``changed`` is called after each changed reading, with True if the priority from which tasks are throttled has
        changed.
        """
        self._noted = noted = await self._store.machine() or UNSEEN
        if self._store.is_cluster:
            # The stored limits and pressures may be those of another node. Only the capacity is kept.
            self._noted = Machine(known=noted.known, capacity=noted.capacity)
        self._backpressure.remember(await self._store.moved_io())

        def seen() -> None:
            changed(self._backpressure.see(watch))

        watch = self.watch = self._make_watch(self._load, self._noted.known, seen)
        # Apply the given or stored capacity now, so that budgets count from the first start on.
        seen()
        first_reading = asyncio.Event()

        async def looked() -> None:
            first_reading.set()
            await self._note()

        self._running = asyncio.get_running_loop().create_task(watch.run(looked), name="taskmill-watch")
        until = self._clock.monotonic() + FIRST_READING
        while not first_reading.is_set() and self._clock.monotonic() < until:
            await self._clock.wait(first_reading, until)

    async def end(self) -> None:
        """Stop watching. Store the measured capacity without limits, so that no task is held back."""
        if self.watch is None:
            return
        self.watch.stop()
        if self._running is not None:
            await self._running
        await self._write(Machine(known=self.watch.known, capacity=self.watch.capacity))

    async def _note(self) -> None:
        report = self.machine
        waits = (report.limits, report.returns_below) != (self._noted.limits, self._noted.returns_below)
        is_time = self._clock.monotonic() >= self._noted_at + NOTE_INTERVAL
        news = is_news(self._noted.known, report.known) or is_news(self._noted.capacity, report.capacity)
        if waits or (is_time and news):
            await self._write(report)

    async def _write(self, report: Machine) -> None:
        self._noted_at = self._clock.monotonic()
        try:
            await self._store.note_machine(report)
        except StoreError as wrong:
            # Not fatal: only `explain` in other processes needs them, and they are stored again after the next reading.
            logger.warning("readings of the machine could not be stored: %s", wrong)
        else:
            self._noted = report
