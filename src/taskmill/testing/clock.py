"""``ManualClock``: a clock that moves only when a test moves it."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from datetime import UTC, datetime, timedelta, tzinfo

from taskmill.errors import ConfigError
from taskmill.model.durations import Duration, instant, milliseconds, to_ms

_PATIENCE = 0.25
"""Seconds of real time for which settling waits for handlers in threads, which may themselves wait for this clock."""
_SPINS = 20
_HAIR = 10
"""Microseconds of rounding error to tolerate in sums of floats, and in the corrections made for them."""


class ManualClock:
    """A wall clock and a monotonic clock that stand still until :meth:`advance` or :meth:`jump`.

    ``start`` is an aware datetime; its zone is the host zone of the test.
    """

    def __init__(self, start: datetime | None = None) -> None:
        start = datetime(2030, 1, 1, tzinfo=UTC) if start is None else start
        instant(start, "start", ConfigError)
        self._zone: tzinfo = start.tzinfo or UTC
        self._now = start.astimezone(UTC)
        self._elapsed = timedelta()
        self._hair = 0
        """Microseconds by which :meth:`monotonic` is ahead of ``_elapsed``, until time moves."""
        self._sleepers: list[tuple[timedelta, int, asyncio.Timeout]] = []
        self._order = itertools.count()
        self._at_work = 0
        self._may_block = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()

    def now(self) -> datetime:
        """Return the wall time, in the zone of ``start``."""
        return self._now.astimezone(self._zone)

    def now_ms(self) -> int:
        return to_ms(self._now)

    def zone(self) -> tzinfo:
        """Return the zone of ``start``."""
        return self._zone

    def monotonic(self) -> float:
        """Return the seconds since the clock was created; :meth:`jump` does not change them."""
        return (self._elapsed + timedelta(microseconds=self._hair)).total_seconds()

    async def advance(self, duration: Duration) -> None:
        """Let ``duration`` pass. Sleepers due on the way wake in order, and their work settles before time moves on."""
        target = self._elapsed + timedelta(milliseconds=milliseconds(duration, "duration"))
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            at = self._sleepers[0][0]
            self._move_to(max(at, self._elapsed))
            while self._sleepers and self._sleepers[0][0] <= at:
                _ring(heapq.heappop(self._sleepers)[2])
            await self._settle()
        self._move_to(max(target, self._elapsed))
        await self._settle()

    async def jump(self, duration: Duration) -> None:
        """Move only the wall clock, backwards if negative, as an administrator or a time server would."""
        self._now += duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
        for _, _, alarm in self._sleepers:
            _ring(alarm)
        self._sleepers.clear()
        await self._settle()

    def _move_to(self, elapsed: timedelta) -> None:
        if elapsed > self._elapsed:
            self._now += elapsed - self._elapsed
            self._elapsed, self._hair = elapsed, 0

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        if until is None:
            # Registered anyway, so that a jump wakes the sleeper to check the wall clock again.
            until = self.monotonic() + 1e9
        if event.is_set() or until <= self.monotonic():
            return
        # Rounded up, so that a sleeper never wakes before its instant; rounding errors of floats are ignored.
        at = timedelta(milliseconds=-(-(round(until * 1e6) - _HAIR) // 1000))
        if at <= self._elapsed:
            # A sum of floats may lie slightly beyond the present, and its caller would wait forever: move a little.
            self._hair += 1
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as alarm:
                sleeper = (at, next(self._order), alarm)
                heapq.heappush(self._sleepers, sleeper)
                try:
                    await event.wait()
                finally:
                    if sleeper in self._sleepers:
                        self._sleepers.remove(sleeper)
                        heapq.heapify(self._sleepers)

    async def sleep(self, duration: Duration) -> None:
        """Sleep on this clock, for handlers under test."""
        until = self.monotonic() + milliseconds(duration, "duration") / 1000
        while self.monotonic() < until:
            await self.wait(asyncio.Event(), until)

    def work_begins(self, *, may_block: bool = False) -> None:
        if may_block:
            self._may_block += 1
        else:
            self._at_work += 1

    def work_ends(self, *, may_block: bool = False) -> None:
        if may_block:
            self._may_block -= 1
        else:
            self._at_work -= 1
        self._changed.set()

    async def _settle(self) -> None:
        """Run everything that can run now: callbacks, the store's threads, and handlers in threads."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A program may run several event loops in turn, and an asyncio event belongs to one of them.
            self._loop, self._changed = loop, asyncio.Event()
        patience_ends = loop.time() + _PATIENCE
        quiet = 0
        while quiet < _SPINS:
            await asyncio.sleep(0)
            quiet += 1
            if getattr(loop, "_ready", ()):
                quiet = 0
            self._changed.clear()
            left = None if self._at_work else patience_ends - loop.time()
            if self._at_work or (self._may_block and left is not None and left > 0):
                quiet = 0
                timer = None if left is None else loop.call_later(left, self._changed.set)
                await self._changed.wait()
                if timer is not None:
                    timer.cancel()


def _ring(alarm: asyncio.Timeout) -> None:
    alarm.reschedule(asyncio.get_running_loop().time())
