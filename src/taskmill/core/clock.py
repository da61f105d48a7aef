"""The system clock, and a steady clock that also counts while the machine is suspended."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

_LONGEST_WAIT = 30.0


def steady_clock(platform: str = sys.platform, system: Any = time) -> Callable[[], float]:
    """Return a monotonic clock that also counts suspended time, if the system has one.

    On Linux and macOS, ``time.monotonic`` stops while the machine sleeps. ``CLOCK_MONOTONIC_RAW`` continues on macOS
    (it is ``mach_continuous_time`` there), but not on Linux, which has ``CLOCK_BOOTTIME`` instead. On Windows,
    ``time.monotonic`` continues.
    """
    number = getattr(system, "CLOCK_MONOTONIC_RAW" if platform == "darwin" else "CLOCK_BOOTTIME", None)
    clock: Callable[[], float] = system.monotonic if number is None else partial(system.clock_gettime, number)
    return clock


steady_seconds = steady_clock()


class SystemClock:
    """Wall time in UTC, and a monotonic clock that counts suspended time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def zone(self) -> tzinfo:
        # Imported here, because only programs with cron tasks need zones.
        from taskmill.core.host_zone import host_zone

        return host_zone()

    monotonic = staticmethod(steady_seconds)

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Wait until ``event`` is set or ``until`` is reached.

        It may return earlier, so that callers check again after a suspend or a step of the wall clock.
        """
        left = _LONGEST_WAIT if until is None else min(until - self.monotonic(), _LONGEST_WAIT)
        if event.is_set() or left <= 0:
            return
        # Imported here, because a command that only reads has no event loop.
        import asyncio

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await event.wait()

    def work_begins(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        """Do nothing: only test clocks count work."""

    def work_ends(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        """Do nothing: only test clocks count work."""
