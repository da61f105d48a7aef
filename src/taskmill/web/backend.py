"""What all parts of the page share: the schedulers, the cache of answers, and redaction.

The page reads on a scheduler of its own beside a dispatching one, so that its questions never delay those of the
program. A store in memory has only one reader, which is shared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from taskmill import Activity, ConfigError, HistoryRecord, InvalidState, Scheduler, TaskRecord
from taskmill.web.access import Access
from taskmill.web.memory import ShortMemory
from taskmill.web.problems import RequestRefused

logger = logging.getLogger("taskmill.web")
audit_logger = logging.getLogger("taskmill.audit")

AnyTask = TaskRecord | HistoryRecord
R = TypeVar("R", TaskRecord, HistoryRecord, AnyTask)
Redact = Callable[[Any], Any]
"""Takes a ``TaskRecord`` or a ``HistoryRecord`` and returns one of the same kind."""

MOST_IN_LISTS = 4_096
"""The largest payload or result of a record in a list, in bytes of JSON."""
LEFT_OUT = "(left out)"


class CheckedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, checked against the description."""

    request: Request
    access: Access
    path: Mapping[str, Any]
    query: Any = None
    body: Any = None


class Backend:
    """The schedulers behind the page, and the rules for what leaves it."""

    def __init__(self, scheduler: Scheduler, redact: Redact | None) -> None:
        self.scheduler = scheduler
        self._redact = redact
        self.is_redacted = redact is not None
        self.answers = ShortMemory[bytes]()
        """Whole answers; every change drops them."""
        self.activities = ShortMemory[Activity]()
        """Activities, which take longer to count than anything else, and change slowly."""
        self.simulating = asyncio.Lock()
        """Held during a simulation: a page runs one at a time."""

    def check_open(self) -> None:
        """Raise a 503 unless the scheduler is open in this process."""
        try:
            self.scheduler._opened()
        except InvalidState as wrong:
            raise RequestRefused(503, "closed", str(wrong), {"retry-after": "5"}) from None

    async def reader(self) -> Scheduler:
        """Return the scheduler for reading; it shows every task that runs in this process as running."""
        return await self.scheduler._reader()

    # Redaction

    def shown(self, record: R) -> R:
        """Return the record as it may leave the process."""
        if self._redact is None:
            return record
        try:
            redacted: Any = self._redact(record)
        except Exception as wrong:  # noqa: BLE001 - a function of the program may raise anything
            # The text of the error may contain what must not leave; its type is enough to find it.
            fields = {"task_id": record.id, "task_type": record.type, "attempt": record.attempt, "group": record.group}
            logger.error("redact raised %s for task %d", type(wrong).__name__, record.id, extra=fields)  # noqa: TRY400
            raise RequestRefused(500, "redact_failed", f"redact failed for task {record.id}; see the log") from None
        if type(redacted) is not type(record):
            logger.error("redact returned %s instead of %s", type(redacted).__name__, type(record).__name__)
            raise RequestRefused(500, "redact_failed", "redact returned no record; see the log")
        return redacted

    def brief(self, record: R) -> R:
        """Return the record as it may leave in a list: without tracebacks and without large values."""
        shown = self.shown(record)
        changes: dict[str, Any] = {}
        if shown.errors:
            changes["errors"] = ()
        if (size := _size(shown.payload)) > MOST_IN_LISTS:
            changes["payload"] = {LEFT_OUT: f"{size} bytes"}
        if isinstance(shown, HistoryRecord) and (size := _size(shown.result)) > MOST_IN_LISTS:
            changes["result"] = {LEFT_OUT: f"{size} bytes"}
        return msgspec.structs.replace(shown, **changes) if changes else shown

    def listed(self, records: Iterable[R]) -> list[R]:
        return [self.brief(record) for record in records]


def _size(value: object) -> int:
    return len(msgspec.json.encode(value))


def checked_redact(redact: object) -> Redact | None:
    if redact is not None and not callable(redact):
        raise ConfigError(f"redact must be a function of a record, got {redact!r}")
    return redact
