"""``ManualClock``: a clock that moves only when a test moves it."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import sys
import threading
from datetime import UTC, datetime, timedelta, tzinfo
from types import FrameType

from taskmill.errors import ConfigError
from taskmill.model.durations import Duration, instant, milliseconds, to_ms

_PATIENCE = 0.25
"""Seconds of real time for which settling waits for user code, which may itself wait for this clock.

They count from the last beginning or end of any work: the store may be slow, and many handlers may run in turn.
"""
_FIRST_LOOK, _LATER_LOOK = 0.0005, 0.01
"""Seconds of real time after which settling checks again whether the user's threads wait for an event."""
_SPINS = 20
"""Iterations of the event loop without other callbacks after which everything has settled."""
_POLLS = 5000
"""Iterations with the same callbacks after which they count as polling: code that yields until something changes."""
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
        self._begun_and_ended = 0
        """Counts the beginnings and ends of work."""
        self._threads: list[threading.Thread] = []
        """The threads among ``_may_block``; the rest is user code in worker processes."""
        self._settling = 0
        """The number of calls that wait until everything has settled."""
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
        """Let ``duration`` pass. Sleepers wake in order when due, and their work settles before time moves on."""
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
        sign, length = 1, duration
        if isinstance(duration, str):
            if duration.lstrip().startswith("-"):
                sign, length = -1, duration.lstrip()[1:]
        elif (isinstance(duration, timedelta) and duration < timedelta()) or (
            isinstance(duration, int | float) and duration < 0
        ):
            sign, length = -1, -duration
        self._now += sign * timedelta(milliseconds=milliseconds(length, "duration"))
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
            # A sum of floats may lie slightly after the present time, and its caller would wait forever: move a little.
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

    def work_begins(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        self._begun_and_ended += 1
        if may_block:
            self._may_block += 1
            if thread is not None:
                self._threads.append(thread)
        else:
            self._at_work += 1

    def work_ends(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        self._begun_and_ended += 1
        if may_block:
            self._may_block -= 1
            if thread is not None:
                self._threads.remove(thread)
        else:
            self._at_work -= 1
        self._changed.set()

    async def _settle(self) -> None:
        """Run everything that can run now: callbacks, the store's threads, and handlers in threads.

        A thread that waits for a ``threading.Event`` has settled, and so has code that only polls. Other user code gets
        a moment of real time.
        """
        self._settling += 1
        try:
            await self._run_until_quiet()
        finally:
            self._settling -= 1

    async def _run_until_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A program may run several event loops in turn, and an asyncio event belongs to one of them.
            self._loop, self._changed = loop, asyncio.Event()
        patience_ends = 0.0
        seen = -1
        look = _FIRST_LOOK
        quiet = polls = 0
        before: list[object] | None = None
        while quiet < _SPINS:
            await asyncio.sleep(0)
            quiet += 1
            ready = getattr(loop, "_ready", ())
            # Each other call of this method is ready too.
            if len(ready) >= self._settling:
                owners: list[object] = [getattr(handle._callback, "__self__", None) for handle in ready]
                polls = polls + 1 if owners == before else 0
                before = owners
                if polls < _POLLS:
                    quiet = 0
            self._changed.clear()
            if seen != self._begun_and_ended:
                seen, patience_ends = self._begun_and_ended, loop.time() + _PATIENCE
            if self._at_work:
                quiet = 0
                await self._changed.wait()
            elif self._user_code_runs() and (left := patience_ends - loop.time()) > 0:
                quiet = 0
                timer = loop.call_later(min(look, left), self._changed.set)
                await self._changed.wait()
                timer.cancel()
                look = min(2 * look, _LATER_LOOK)

    def _user_code_runs(self) -> bool:
        """True if user code may be running, and not only waiting for events."""
        if self._may_block > len(self._threads):
            return True
        if not self._threads:
            return False
        frames = sys._current_frames()
        return not all(_waits_for_an_event(frames.get(thread.ident or 0)) for thread in self._threads)


def _waits_for_an_event(frame: FrameType | None) -> bool:
    """True if the thread of this frame waits for a ``threading.Event`` that is not set.

    ``Thread.start`` does so too, but only for a moment.
    """
    wait = None if frame is None else frame.f_back
    if frame is None or wait is None or wait.f_back is None:
        return False
    if frame.f_code is not threading.Condition.wait.__code__ or wait.f_code is not threading.Event.wait.__code__:
        return False
    event, timeout = wait.f_locals["self"], wait.f_locals["timeout"]
    is_long = timeout is None or timeout > _PATIENCE
    return is_long and not event.is_set() and wait.f_back.f_globals.get("__name__") != threading.__name__


def _ring(alarm: asyncio.Timeout) -> None:
    alarm.reschedule(asyncio.get_running_loop().time())
