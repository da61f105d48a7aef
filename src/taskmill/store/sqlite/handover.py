"""Whether work is better handed to a thread or done on the loop itself.

A thread gets the interpreter only when the loop lets go of it. A loop that is busy and polls its selector every few
milliseconds lets go and takes it back before the waiting thread wakes up; the thread can starve for hundreds of
milliseconds. So the time a hand-over takes is watched: once it was slow, work is done on the loop for a while, unless
the disk itself turns out to be what is slow.
"""

from __future__ import annotations

import time

SLOW_HANDOVER = 0.008
SLOW_DISK = 0.005
STAY_FOR = 5.0
GIVE_UP_FOR = 60.0
SMOOTHING = 0.3


class Handover:
    """Remembers how the last hand-overs went, and what the same work cost on the loop."""

    def __init__(self) -> None:
        self._on_loop_until = 0.0
        self._in_thread_until = 0.0
        self._thread_cost = 0.0
        self._loop_cost = 0.0

    @property
    def loop_is_busy(self) -> bool:
        return time.monotonic() < self._on_loop_until

    def thread_took(self, seconds: float) -> None:
        now = time.monotonic()
        if seconds > SLOW_HANDOVER and now >= self._in_thread_until:
            self._thread_cost = seconds
            self._loop_cost = 0.0
            self._on_loop_until = now + STAY_FOR

    def loop_took(self, seconds: float) -> None:
        self._loop_cost += SMOOTHING * (seconds - self._loop_cost)
        # A disk this slow would stall the loop, unless the thread was starved far longer than that.
        if self._loop_cost > max(SLOW_DISK, self._thread_cost / 4):
            self._on_loop_until = 0.0
            self._in_thread_until = time.monotonic() + GIVE_UP_FOR
