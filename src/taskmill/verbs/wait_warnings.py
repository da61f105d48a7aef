"""Warn a caller that waits for a task that cannot start.

Either nothing dispatches, or handlers that wait for other tasks hold all slots: those of the scheduler, of the task's
group, or of its domain.

Each warning is logged once per scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from taskmill.core.logs import about, logger
from taskmill.model.records import TaskRecord
from taskmill.model.type_name import domain_of

if TYPE_CHECKING:
    from taskmill.model.task import Claimed
    from taskmill.policy.rules import Rules

PATIENCE = 1.0
"""Seconds that a caller waits before it is warned."""


class WaitWarnings:
    """The handlers that wait for other tasks, and which warnings were logged."""

    def __init__(self) -> None:
        self._waiting = Counter[int]()
        """The ids of the tasks whose handlers wait, with the number of tasks each waits for."""
        self._warned_of_dispatcher = False
        self._warned_of_slots = set[str]()
        """The kinds of limits that were warned of."""
        self._waited = 0.0
        """Seconds that callers have waited without a dispatcher, in waits that have timed out."""

    def patience(self) -> float:
        """Return the seconds until a caller is warned. The time of earlier waits without a dispatcher is subtracted."""
        return max(PATIENCE - self._waited, 0.0)

    def timed_out(self, seconds: float, *, is_dispatched: bool) -> None:
        """Note a wait that has timed out."""
        self._waited = 0.0 if is_dispatched else self._waited + seconds

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

    def no_slot(self, record: TaskRecord, running: Sequence[Claimed], rules: Rules) -> None:
        """Warn if handlers that wait hold all slots that the task of ``record`` could get."""
        domain, group = domain_of(record.type), record.group
        in_group = [task for task in running if task.group == group]
        in_domain = [task for task in running if domain_of(task.type) == domain]
        limits = (
            ("all slots", "max_concurrency", rules.declared.max_concurrency, running),
            (f"all slots of group {group!r}", "its cap", rules.group(group).cap, in_group),
            (f"all slots of domain {domain!r}", "its max_concurrency", rules.domain_cap(domain), in_domain),
        )
        for held, remedy, limit, holders in limits:
            is_full = limit is not None and len(holders) >= limit
            if is_full and remedy not in self._warned_of_slots and self._all_wait(holders):
                self._warned_of_slots.add(remedy)
                logger.warning(
                    "%s (%d) are held by handlers that wait for other tasks, and task %d (%s) waits for a slot, so "
                    "none of them can continue; raise %s, or let the handlers return and use ctx.spawn with "
                    "finalize, or depends_on",
                    held,
                    limit,
                    record.id,
                    record.type,
                    remedy,
                    extra=about(record),
                )
                return

    def _all_wait(self, holders: Sequence[Claimed]) -> bool:
        return self._waiting.keys() >= {task.id for task in holders}
