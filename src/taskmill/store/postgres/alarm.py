"""Waking a thread that waits for data on a connection."""

from __future__ import annotations

import selectors
import socket

# `select` cannot handle descriptors of 1024 and above.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Alarm:
    """A wake-up call for one waiting thread, which any other thread can ring."""

    def __init__(self) -> None:
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)

    def ring(self) -> None:
        # If the buffer is full, the thread has been woken already.
        try:
            self._wake.send(b".")
        except (BlockingIOError, OSError):
            return

    def wait(self, connection: int | None, longest: float) -> None:
        """Wait until it rings or the descriptor ``connection`` is readable, at most ``longest`` seconds."""
        with _Selector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection, selectors.EVENT_READ)
            if any(key.fileobj is self._woken for key, _ in selector.select(longest)):
                self._woken.recv(4096)

    def close(self) -> None:
        self._woken.close()
        self._wake.close()
