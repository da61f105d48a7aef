"""Test helpers for programs that use taskmill: a clock that the test moves, a scheduler that remembers what was
submitted, and a pytest plugin."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Literal

from taskmill.define.context import Context
from taskmill.define.middleware import HandlerError
from taskmill.define.task import Task
from taskmill.errors import ConfigError, TaskFailed
from taskmill.handle import Handle
from taskmill.model.records import HistoryRecord, how_it_ended
from taskmill.model.status import Ending
from taskmill.model.submission import Submission
from taskmill.model.task import Origin
from taskmill.scheduler import Scheduler
from taskmill.testing.clock import ManualClock
from taskmill.testing.recording import RecordingContext, context

__all__ = ["ManualClock", "ObservedScheduler", "RecordingContext", "context"]


class ObservedScheduler(Scheduler):
    """A scheduler for tests. ``inline=True`` runs each submission to its end before ``submit`` returns.

    With ``inline="raise"``, ``submit`` also raises the exception of a handler that failed while ``submit`` waited. A
    duplicate of a task that waits for its retry runs nothing and raises nothing.
    """

    def __init__(self, *args: Any, inline: bool | Literal["raise"] = False, **settings: Any) -> None:
        if not isinstance(inline, bool) and inline != "raise":
            raise ConfigError(f"inline must be True, False or 'raise', got {inline!r}")
        if inline == "raise":
            settings["middleware"] = [*settings.get("middleware", ()), self._keep_error]
        super().__init__(*args, **settings)
        self._inline = inline
        self._errors: dict[int, BaseException] = {}
        """The exceptions of the failed last attempts of this submission; only with ``inline="raise"``."""
        self.submitted: list[Submission] = []
        """Every submission that was stored, in order."""

    async def submit(self, submission: Submission, *, connection: object = None) -> Handle[Any]:
        return (await self.submit_many([submission], connection=connection))[0]

    async def submit_many(self, submissions: Iterable[Submission], *, connection: object = None) -> list[Handle[Any]]:
        given = list(submissions)
        handles = await super().submit_many(given, connection=connection)
        self.submitted += given
        if self._inline and not self.is_dispatching:
            self._errors.clear()
            await self.run_until_idle()
            if self._inline == "raise":
                await self._raise_first_error(handles)
        return handles

    async def _spawn(self, submissions: Sequence[Submission], origin: Origin) -> list[Handle[Any]]:
        handles = await super()._spawn(submissions, origin)
        self.submitted += submissions
        return handles

    @contextlib.asynccontextmanager
    async def _keep_error(self, ctx: Context) -> AsyncGenerator[None, None]:
        self._errors.pop(ctx.task.id, None)
        try:
            yield
        except Exception as wrong:
            self._errors[ctx.task.id] = _as_raised(wrong) if isinstance(wrong, HandlerError) else wrong
            raise

    async def _raise_first_error(self, handles: Iterable[Handle[Any]]) -> None:
        """Raise the error of the first task that failed or waits for a retry."""
        for handle in handles:
            record = await handle.record()
            if handle.id in self._errors:
                raise self._errors[handle.id]
            if isinstance(record, HistoryRecord) and record.ending is not Ending.COMPLETED:
                raise TaskFailed(f"task {record.id} ({record.type}) {how_it_ended(record)}", record)

    def assert_submitted(self, task: Task[Any, Any] | str, /, **arguments: Any) -> Submission:
        """Assert that this task was submitted with (at least) these arguments, and return that submission."""
        name = task if isinstance(task, str) else task.name
        of_type = [submission for submission in self.submitted if submission.type == name]
        for submission in of_type:
            if all(submission.payload.get(key, _MISSING) == value for key, value in arguments.items()):
                return submission
        seen = [dict(submission.payload) for submission in of_type]
        raise AssertionError(f"no submission of {name} with {arguments!r}; submitted were {seen!r}")

    def assert_not_submitted(self, task: Task[Any, Any] | str, /) -> None:
        """Assert that this task was not submitted."""
        name = task if isinstance(task, str) else task.name
        seen = [dict(submission.payload) for submission in self.submitted if submission.type == name]
        assert not seen, f"{name} was submitted with {seen!r}"


def _as_raised(wrong: HandlerError) -> Exception:
    """Return a built-in exception for that of a handler in a process, of which only the text is known; else itself."""
    message = str(wrong).partition(": ")[2]
    kind = getattr(builtins, wrong.exception, None)
    # A coroutine cannot raise StopIteration.
    if not isinstance(kind, type) or not issubclass(kind, Exception) or kind is StopIteration:
        return wrong
    try:
        raised = kind(message)
    except TypeError:
        return wrong  # it takes more than a text
    raised.__cause__ = wrong
    return raised


_MISSING = object()
