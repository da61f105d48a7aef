"""A move that kills its own process: run as a program with a source, a target and the moment of its death.

Moments are counted: each transaction of either store has one before it begins and one after its commit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from taskmill.moving import Step, move
from taskmill.store.moving import journey
from taskmill.store.postgres.endpoint import PostgresEndpoint
from taskmill.store.sqlite.endpoint import SqliteEndpoint

BATCH_ROWS = 25
NEVER = 0


class Fate:
    """Counts moments, and kills the process at the last."""

    def __init__(self, moments: int) -> None:
        self._last = moments
        self.passed = 0

    def moment(self) -> None:
        self.passed += 1
        if self.passed == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def doomed(fate: Fate, whole: Any) -> Any:
    @contextlib.contextmanager
    def writing(self: Any, seal: str | None, *, durable: bool = False) -> Iterator[None]:
        fate.moment()
        with whole(self, seal, durable=durable):
            yield
        fate.moment()

    return writing


def tell(step: Step) -> None:
    print(step.phase, step.table, step.done, step.total, flush=True)


def decide(moments: int, set_attribute: Callable[[object, str, Any], None]) -> Fate:
    """Let the moves of this process count their moments, and kill it at the last."""
    fate = Fate(moments)
    for kind in (SqliteEndpoint, PostgresEndpoint):
        set_attribute(kind, "writing", doomed(fate, kind.writing))
    set_attribute(journey, "BATCH_ROWS", BATCH_ROWS)
    return fate


if __name__ == "__main__":
    decide(int(sys.argv[3]), setattr)
    move(sys.argv[1], sys.argv[2], watch=tell)
