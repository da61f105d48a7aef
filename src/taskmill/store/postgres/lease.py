"""The lease of a node: how long it may go on without having been heard.

Whoever was not seen for a whole lease is dead to the others, and they run its tasks. So a node that could not say that
it is alive stops what it runs a while before. A thread of its own minds the time: the pulse may be waiting for a server
that does not answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from taskmill.logs import logger

LEASE = 30.0
"""Seconds without a sign of life after which a node is dead."""
DOUBT = 2 / 3
"""The part of a lease after which a node that could not say that it is alive stops what it runs."""
LONGEST_WAIT = 1.0
"""Seconds between two looks at the clock: it may go on while nobody waits for it, when the machine is suspended."""


def steady_seconds() -> float:
    """Goes on while the machine is suspended, where the system has such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """Calls ``cut_off`` in its thread when this node can no longer prove that it is alive."""

    def __init__(self, cut_off: Callable[[], None]) -> None:
        self._cut_off = cut_off
        self._node: int | None = None
        self._seen_at = 0.0
        self._is_cut_off = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._mind, name="taskmill-lease", daemon=True)
        self.is_lost = False
        """Whether the others took this node for dead."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether our node may be dead to the others by now. A node that was suspended finds out here first."""
        return self._node is not None and (self.is_lost or self._left() <= 0)

    def _left(self) -> float:
        """Seconds after which it is in doubt."""
        return self._seen_at + LEASE * DOUBT - steady_seconds()

    def start(self) -> None:
        self._thread.start()

    def begin(self, node: int) -> None:
        """From now on this is our node."""
        with self._changed:
            self._node, self._seen_at = node, steady_seconds()
            self.is_lost = self._is_cut_off = False
            self._changed.notify()

    def renew(self, seen_at: float) -> None:
        """The others have heard of this node, at that moment or later."""
        with self._changed:
            self._seen_at, self._is_cut_off = seen_at, False

    def lose(self) -> None:
        """The others took it for dead."""
        with self._changed:
            self.is_lost = True
            self._changed.notify()

    def end(self) -> None:
        """It has left."""
        with self._changed:
            self._node = None

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _mind(self) -> None:
        with self._changed:
            while not self._is_closed:
                left = self._left()
                if self._node is not None and (self.is_lost or left <= 0):
                    if not self._is_cut_off:
                        logger.error("node %d cannot prove that it is alive; what it runs is stopped", self._node)
                    self._is_cut_off = True
                    # Again and again: something may have been about to start.
                    self._cut_off()
                self._changed.wait(min(left, LONGEST_WAIT) if left > 0 else LONGEST_WAIT)
