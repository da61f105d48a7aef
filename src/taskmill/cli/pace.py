"""How often to look: at an interval, and less often where a look is dear."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator


class Pace:
    """Looks are ``interval`` apart, and take at most ``share`` of the time: a long queue is not counted all day."""

    def __init__(self, interval: float, share: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._share = share
        self._clock = clock
        self._next = clock()

    @property
    def is_due(self) -> bool:
        return self._clock() >= self._next

    @contextlib.contextmanager
    def look(self) -> Generator[None]:
        began = self._clock()
        try:
            yield
        finally:
            ended = self._clock()
            self._next = max(began + self._interval, ended + (ended - began) * (1 / self._share - 1))
