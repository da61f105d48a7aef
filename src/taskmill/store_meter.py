"""The socket of whoever wants to know what writing costs."""

from __future__ import annotations

from typing import Protocol


class StoreMeter(Protocol):
    """Is told what writing costs, on the event loop; durations are seconds."""

    def committed(self, seconds: float, requests: int) -> None:
        """A transaction of so many requests took so long, from asking for the write lock to the end of its commit."""
        ...

    def synced(self, seconds: float) -> None:
        """What was committed was forced to the disk."""
        ...
