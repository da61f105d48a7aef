"""The choice between a thread and the event loop for disk work, based on how long it took so far.

A thread gets the GIL only when the loop releases it. A busy loop that polls its selector every few milliseconds
releases the GIL and takes it back before the waiting thread wakes up, so the thread can starve for hundreds of
milliseconds. Once work in the thread has been slow, work is done on the loop for a while, unless the disk turns out to
be the slow part.
"""

from __future__ import annotations

import time

SLOW_HANDOVER = 0.008
SLOW_DISK = 0.005
STAY_FOR = 5.0
GIVE_UP_FOR = 60.0
SMOOTHING = 0.3


class Handover:
    """The latest times of work in the thread and on the loop, and which of the two is better now."""

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
        # Go back to the thread: the disk stalls the loop, and the thread was starved less than four times as long.
        if self._loop_cost > max(SLOW_DISK, self._thread_cost / 4):
            self._on_loop_until = 0.0
            self._in_thread_until = time.monotonic() + GIVE_UP_FOR
