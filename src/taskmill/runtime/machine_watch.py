"""MachineWatch the machine while tasks are dispatched, and remembering what was seen of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from taskmill.core.ports import Clock, KnowsMachine
from taskmill.dispatch.backpressure import Backpressure, Seen
from taskmill.errors import StoreError
from taskmill.model.machine import UNSEEN, Capacity, Machine
from taskmill.observe.log import logger
from taskmill.policy.capacity import is_news
from taskmill.policy.io_room import IoLoad

FIRST_LOOK = 1.0
"""Seconds that tasks wait at start for the first look; who has not answered by then holds nobody until it does."""
NOTE_INTERVAL = 60.0
"""What is learned about capacity is written at most so often; another one writes when tasks begin or cease to wait."""


class Watch(Seen, Protocol):
    """Looks at the machine at an interval."""

    async def run(self, looked: Callable[[], Awaitable[None]]) -> None:
        """Go on until it is stopped; ``looked`` is awaited each time."""
        ...

    def stop(self) -> None: ...


MakeWatch = Callable[[IoLoad, Capacity, Callable[[], None]], Watch]
"""With what running tasks have in their budgets, what was known before, and whom to tell of changes."""


async def leave_unwatched(store: KnowsMachine) -> None:
    """Nobody watches the machine: what was learned is kept, and nobody is said to wait for what was seen before."""
    seen = await store.machine()
    if seen is not None and seen != (learned := Machine(known=seen.known)):
        await store.note_machine(learned)


class MachineWatch:
    """Feeds readings of the machine to the backpressure of a dispatcher."""

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
        """What is known now."""
        return UNSEEN if self.watch is None else self._backpressure.report(self.watch)

    async def begin(self, changed: Callable[[bool], None]) -> None:
        """Go on looking from now on, the first time before anything starts, unless that takes too long.

        ``changed`` is called whenever something has, and told whether other tasks wait for the pressure to fall.
        """
        self._noted = noted = await self._store.machine() or UNSEEN
        if self._store.is_cluster:
            # What is remembered of the machine another node may have seen; of this one nobody knows anything yet.
            self._noted = Machine(known=noted.known, capacity=noted.capacity)
        self._backpressure.remember(await self._store.moved_io())

        def seen() -> None:
            changed(self._backpressure.see(watch))

        watch = self.watch = self._make_watch(self._load, self._noted.known, seen)
        # Budgets count from the first start on, by what is given or was known before.
        seen()
        first_look = asyncio.Event()

        async def looked() -> None:
            first_look.set()
            await self._note()

        self._running = asyncio.get_running_loop().create_task(watch.run(looked), name="taskmill-watch")
        until = self._clock.monotonic() + FIRST_LOOK
        while not first_look.is_set() and self._clock.monotonic() < until:
            await self._clock.wait(first_look, until)

    async def end(self) -> None:
        """Look no longer; what was learned is kept, and nobody is held any more."""
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
            # Only explanations on other nodes need it, and it is stored again after the next reading.
            logger.warning("what was seen of the machine could not be kept: %s", wrong)
        else:
            self._noted = report
