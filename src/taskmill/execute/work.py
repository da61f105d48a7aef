"""The interface of executors: they take a piece of work and return a handle to interrupt it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from taskmill.define.context import AttemptLink, Context
from taskmill.define.task import PartName, TaskType
from taskmill.model.outcome import RawOutcome
from taskmill.model.records import HistoryRecord, TaskRecord

Ended = Callable[[RawOutcome], None]
"""Called once, on the event loop, when the handler has really ended."""

HOLD = 0.25
"""Seconds of real time that a task keeps its slot if no thread or process could be started for it.

Without this delay the whole queue would be tried in vain.
"""


@dataclass(slots=True)
class Work:
    """One call of a handler. The Context is built only for handlers that want one."""

    type: TaskType
    part: PartName
    task_id: int
    attempt: int
    payload: str
    args: list[Any]
    kwargs: dict[str, Any]
    record: Callable[[], TaskRecord]
    context: Callable[[], Context]
    link: AttemptLink
    saved: str | None
    replaced: str | None
    children: Sequence[HistoryRecord] = ()

    def function(self) -> Callable[..., Any]:
        return self.type.part(self.part).function

    def call_arguments(self) -> list[Any]:
        return [self.context(), *self.args] if self.type.part(self.part).wants_context else self.args


class Running(Protocol):
    """A started handler."""

    def interrupt(self) -> None:
        """Ask the handler to stop; on the second call, end it by force where that is possible."""
        ...


class Executor(Protocol):
    """Starts handlers. ``ended`` is called exactly once for each."""

    def start(self, work: Work, ended: Ended) -> Running: ...
    async def close(self) -> None: ...
