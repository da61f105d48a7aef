"""The interface of executors: they take a piece of work, return a handle to interrupt it, and report its outcome.

:func:`outcome_of_result` and :func:`outcome_of_exception` never raise, whatever the handler's classes do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from taskmill.core.logs import log_exception
from taskmill.define.context import AttemptLink, Context
from taskmill.define.current import CurrentTask
from taskmill.define.signature import LARGEST_PAYLOAD, json_encode, would_lose_a_float
from taskmill.define.task import Part, PartName, TaskType
from taskmill.execute.tracebacks import details_of, own_traceback
from taskmill.model.attempt import Failed, GaveUp, Interrupted, RawOutcome, Succeeded
from taskmill.model.exceptions import GiveUp, RetryLater, exception_text, message_of
from taskmill.model.records import HistoryRecord

Ended = Callable[[RawOutcome], None]
"""Called once, on the event loop, when the handler has really ended."""

HOLD = 0.25
"""Seconds of real time that a task keeps its slot if no thread or process could be started for it.

Without this delay the dispatcher would try, and fail, to start every task in the queue.
"""


@dataclass(slots=True)
class Work:
    """One call of a handler. The Context is built only for handlers that want one."""

    type: TaskType
    part: PartName
    code: Part
    """The function of that part."""
    task_id: int
    attempt: int
    payload: str
    args: list[Any]
    kwargs: dict[str, Any]
    running: CurrentTask
    context: Callable[[], Context]
    link: AttemptLink
    saved: str | None
    replaced: str | None
    children: Sequence[HistoryRecord] = ()
    noticed: Callable[[BaseException], None] | None = None
    """Called with the exception of a handler in a thread, in that thread."""

    def call_arguments(self) -> list[Any]:
        return [self.context(), *self.args] if self.code.wants_context else self.args

    def log(self, wrong: BaseException) -> None:
        """Log the exception that the handler raised."""
        log_exception(wrong, own_traceback(wrong), self.running.task)
        if self.noticed is not None:
            self.noticed(wrong)


class RunningHandler(Protocol):
    """A started handler."""

    def interrupt(self) -> None:
        """Ask the handler to stop; on the second call, end it by force where that is possible."""
        ...


class Executor(Protocol):
    """Starts handlers. ``ended`` is called exactly once for each."""

    def start(self, work: Work, ended: Ended) -> RunningHandler: ...
    async def close(self) -> None: ...


def outcome_of_result(result: Any) -> RawOutcome:
    if result is None:
        return Succeeded("null")
    try:
        encoded = json_encode(result)
        has_lost_a_float = would_lose_a_float(result, encoded)
    except BaseException as wrong:  # noqa: BLE001 - a value's own attributes may raise anything
        return GaveUp(f"the result cannot be stored as JSON: {message_of(wrong)}", details_of(wrong))
    if has_lost_a_float:
        return GaveUp("the result cannot be stored as JSON, which has neither NaN nor infinity")
    if len(encoded) > LARGEST_PAYLOAD:
        return GaveUp(f"the result is {len(encoded):,} bytes; at most {LARGEST_PAYLOAD:,} can be stored")
    return Succeeded(encoded.decode())


def outcome_of_exception(wrong: BaseException) -> RawOutcome:
    match wrong:
        case asyncio.CancelledError():
            return Interrupted(details=details_of(wrong))
        case RetryLater():
            # A subclass may have overridden __init__ without calling super().
            after_ms: object = getattr(wrong, "after_ms", None)
            return Failed(error_text(wrong), after_ms if isinstance(after_ms, int) else None, details_of(wrong))
        case GiveUp():
            return GaveUp(error_text(wrong), details_of(wrong))
        case _:
            return Failed(error_text(wrong), details=details_of(wrong))


def error_text(wrong: BaseException) -> str:
    """Return ``ValueError: message`` or, for ``RetryLater`` and ``GiveUp``, the message alone."""
    if isinstance(wrong, RetryLater | GiveUp) and (said := message_of(wrong)):
        return said
    return exception_text(wrong)
