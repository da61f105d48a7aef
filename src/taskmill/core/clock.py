"""The system clock."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from datetime import UTC, datetime, tzinfo

# This clock, if the system has it, also counts the time while the machine is suspended.
_BOOT = getattr(time, "CLOCK_BOOTTIME", None)
_LONGEST_WAIT = 30.0


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

    def monotonic(self) -> float:
        return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Wait until ``event`` is set or ``until`` is reached.

        It may return earlier, so that callers check again after a suspend or a step of the wall clock.
        """
        left = _LONGEST_WAIT if until is None else min(until - self.monotonic(), _LONGEST_WAIT)
        if event.is_set() or left <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await event.wait()

    def work_begins(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        """Do nothing: only test clocks count work."""

    def work_ends(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        """Do nothing: only test clocks count work."""
