"""The lease of this node: how long it may run tasks without a successful heartbeat.

Other nodes declare a node dead after a whole lease without a heartbeat, and run its tasks. So a node that cannot renew
its lease stops its tasks some time before that. A separate thread watches the time, because the heartbeat thread may be
waiting for a server that does not answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from taskmill.core.clock import steady_seconds
from taskmill.core.logs import logger

LEASE = 30.0
"""Seconds without a heartbeat after which a node is dead."""
DOUBT = 2 / 3
"""The part of a lease without a heartbeat after which a node stops its tasks."""
LONGEST_WAIT = 1.0
"""Seconds between two checks of the clock: a longer wait would not count time in which the machine is suspended."""


class Lease:
    """The lease of one node; its thread calls ``cut_off`` when the node can no longer prove that it is alive."""

    def __init__(self, cut_off: Callable[[], None]) -> None:
        self._cut_off = cut_off
        self._node: int | None = None
        self._seen_at = 0.0
        self._is_cut_off = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._mind, name="taskmill-lease", daemon=True)
        self.is_lost = False
        """True if other nodes have declared this one dead."""

    @property
    def is_in_doubt(self) -> bool:
        """True if other nodes may have declared this one dead.

        Read directly before a start, because a node that was suspended finds out here first.
        """
        return self._node is not None and (self.is_lost or self._left() <= 0)

    def _left(self) -> float:
        """Return the seconds left until the lease is in doubt."""
        return self._seen_at + LEASE * DOUBT - steady_seconds()

    def start(self) -> None:
        self._thread.start()

    def begin(self, node: int) -> None:
        """Start the lease of this node."""
        with self._changed:
            self._node, self._seen_at = node, steady_seconds()
            self.is_lost = self._is_cut_off = False
            self._changed.notify()

    def renew(self, seen_at: float) -> None:
        """Renew the lease: a heartbeat was stored at ``seen_at`` or later."""
        with self._changed:
            self._seen_at, self._is_cut_off = seen_at, False

    def lose(self) -> None:
        """Record that other nodes have declared this one dead."""
        with self._changed:
            self.is_lost = True
            self._changed.notify()

    def end(self) -> None:
        """End the lease: the node has left, or has no tasks that could be stopped."""
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
                        logger.error("node %d cannot prove that it is alive; its tasks are stopped", self._node)
                    self._is_cut_off = True
                    # Repeated with each check: a task may have been about to start.
                    self._cut_off()
                self._changed.wait(min(left, LONGEST_WAIT) if left > 0 else LONGEST_WAIT)
