"""The port through which a store reports the cost of writing."""

from __future__ import annotations

from typing import Protocol


class StoreMeter(Protocol):
    """Receives the cost of writing, on the event loop; durations are in seconds."""

    def committed(self, seconds: float, requests: int) -> None:
        """Record a transaction: its duration, from requesting the write lock to the commit, and its requests."""
        ...

    def synced(self, seconds: float) -> None:
        """Record the duration of forcing committed data to disk."""
        ...
