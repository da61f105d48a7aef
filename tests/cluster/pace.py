"""Time in the cluster test: short leases, and a clock, the same in all processes, whose minute takes three seconds."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime, tzinfo

from taskmill.core.clock import SystemClock
from tests.crash.journal import boot_time

SPEED = 20
"""Seconds of the scheduler's clock that pass in one real second. Leases and heartbeats use real time."""
MINUTE = 60 / SPEED
LEASE = 5.0
BEAT = 0.3
EPOCH_MS = 1_900_000_020_000
"""The wall-clock time at the start of the machine: a whole minute."""


class FastClock(SystemClock):
    """A clock that runs faster, and at the same pace in all processes of a machine."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        return EPOCH_MS + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return boot_time() * SPEED

    def zone(self) -> tzinfo:
        return UTC

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        left = 1.0 if until is None else min((until - self.monotonic()) / SPEED, 1.0)
        if event.is_set() or left <= 0:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await event.wait()


def real(ms: float) -> float:
    """Return the time on the journals' clock for a time on the scheduler's clock."""
    return (ms - EPOCH_MS) / 1000 / SPEED


def minute_of(ms: int) -> int:
    """Return the minute of the scheduler's clock, counted from the start of the machine."""
    return (ms - EPOCH_MS) // 60_000


def hasten() -> None:
    """Scale leases and timeouts of this process from half a minute to seconds, in the same proportions."""
    from taskmill.store.postgres import connection, heartbeat, lease, writer
    from taskmill.store.sql import cluster

    # The limit beyond which clocks count as stepped, in time of the faster clock.
    cluster.CLOCKS_APART_MS = 60_000 * SPEED
    lease.LEASE = LEASE
    heartbeat.BEAT = BEAT
    heartbeat.ANSWER = 1.0
    writer.SERVER_PATIENCE = 3 * LEASE
    connection.WRITING["idle_in_transaction_session_timeout"] = "'1500ms'"
    # The shortest that libpq accepts.
    connection.CONNECTING["connect_timeout"] = 2


def pause(seconds: float) -> None:
    """Sleep as part of the load; nothing is awaited here."""
    time.sleep(seconds)
