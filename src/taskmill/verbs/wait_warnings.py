"""Warn a caller that waits for a task that cannot start.

Either nothing dispatches, or all slots are held by handlers that wait for tasks without a slot.

Each warning is logged once per scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from taskmill.core.logs import about, logger
from taskmill.model.records import TaskRecord

PATIENCE = 1.0
"""Seconds that a caller waits before it is warned."""


class WaitWarnings:
    """The handlers that wait for other tasks, and which warnings were logged."""

    def __init__(self) -> None:
        self._waiting = Counter[int]()
        """The ids of the tasks whose handlers wait, with the number of tasks each waits for."""
        self._warned_of_dispatcher = False
        self._warned_of_slots = False

    @contextmanager
    def waiting(self, handler: int | None) -> Generator[None, None, None]:
        """Note that the handler of this task waits for another task; ``None`` if the caller is not a handler."""
        if handler is None:
            yield
            return
        self._waiting[handler] += 1
        try:
            yield
        finally:
            self._waiting[handler] -= 1
            if not self._waiting[handler]:
                del self._waiting[handler]

    def no_dispatcher(self, id: int) -> None:
        """Warn that nothing dispatches."""
        if not self._warned_of_dispatcher:
            self._warned_of_dispatcher = True
            logger.warning(
                "waiting for task %d, but no scheduler dispatches this store, here or in another process; dispatch "
                "with `async with scheduler.running():` (blocking: `with scheduler.running():`) or `taskmill run`",
                id,
                extra={"task_id": id},
            )

    def all_wait(self, running: list[int]) -> bool:
        """True if the handlers of all these tasks wait."""
        return self._waiting.keys() >= set(running)

    def no_slot(self, record: TaskRecord, slots: int) -> None:
        """Warn that all slots are held by handlers that wait."""
        if not self._warned_of_slots:
            self._warned_of_slots = True
            logger.warning(
                "all slots (%d) are held by handlers that wait for other tasks, and task %d (%s) waits for a slot, so "
                "none of them can continue; raise max_concurrency, or let the handlers return and use ctx.spawn with "
                "finalize, or depends_on",
                slots,
                record.id,
                record.type,
                extra=about(record.id, record.type),
            )
