"""Run ``async def`` handlers on the event loop as asyncio tasks.

A wrapper coroutine drives the handler's coroutine, for two reasons. It catches every exception, even a ``SystemExit``
or ``KeyboardInterrupt`` that the handler raises: asyncio would raise those out of the event loop and end the program.
And it can abandon a handler that ignores cancellation, so that the loop can end without it.
"""

from __future__ import annotations

import asyncio
import ctypes
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from taskmill.core.exits import ends_program
from taskmill.execute.work import Ended, Work, error_text, outcome_of_exception, outcome_of_result
from taskmill.model.attempt import Failed, Interrupted, RawOutcome
from taskmill.observe.log import log_exception, logger

Log = Callable[[BaseException], None]


class LoopExecutor:
    """One asyncio task per handler; interrupting cancels it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def start(self, work: Work, ended: Ended) -> LoopRunning:
        coroutine = work.function()(*work.call_arguments(), **work.kwargs)

        def log(wrong: BaseException) -> None:
            log_exception(wrong, work.task_id, work.type.name, work.attempt)

        return self.call(coroutine, work.type.name, log, ended)

    def call(self, coroutine: Coroutine[Any, Any, Any], name: str, log: Log, ended: Ended) -> LoopRunning:
        """Run a coroutine as an asyncio task named ``name``."""
        return LoopRunning(self._loop, coroutine, name, log, ended)

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


class LoopRunning:
    """A running coroutine, until it has ended or was abandoned."""

    __slots__ = ("_coroutine", "_ended", "_interrupted", "_left", "_log", "task")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], name: str, log: Log, ended: Ended
    ) -> None:
        self._coroutine = coroutine
        self._log = log
        self._ended = ended
        self._interrupted = False
        self._left = False
        self.task = loop.create_task(self._run(), name=name)
        self.task.add_done_callback(self._done)

    def interrupt(self) -> None:
        """Cancel the coroutine; on the second call, abandon it."""
        if self._interrupted:
            self._leave()
        self._interrupted = True
        self.task.cancel()

    def _leave(self) -> None:
        """Abandon the coroutine: close it and never resume it, even if it catches the exception."""
        self._left = True
        try:
            self._coroutine.close()
        except (RuntimeError, ValueError):
            # It ignores GeneratorExit, or it is itself the caller. In both cases it is never resumed.
            _keep_forever(self._coroutine)
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            logger.warning("%s raised %s when it was closed", self.task.get_name(), error_text(wrong))

    async def _run(self) -> RawOutcome:
        try:
            return outcome_of_result(await self._steps())
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            if not self._interrupted and _was_cancelled(wrong):
                return Interrupted(from_outside=True)
            self._log(wrong)
            return outcome_of_exception(wrong)

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, Any]:
        """Run the coroutine step by step, as ``await`` does, until it has ended or was abandoned."""
        coroutine = self._coroutine
        try:
            waits_for = coroutine.send(None)
            while True:
                try:
                    answer = yield waits_for
                except BaseException as thrown:
                    if self._left:
                        raise
                    waits_for = coroutine.throw(thrown)
                else:
                    if self._left:
                        raise asyncio.CancelledError
                    waits_for = coroutine.send(answer)
        except StopIteration as over:
            return over.value

    def _done(self, task: asyncio.Task[RawOutcome]) -> None:
        if task.cancelled():
            # Cancelled before its first step.
            self._coroutine.close()
            outcome: RawOutcome = Interrupted(from_outside=not self._interrupted)
        elif (wrong := task.exception()) is None:
            outcome = task.result()
        else:
            outcome = Interrupted(from_outside=True) if ends_program(wrong) else Failed(error_text(wrong))
        self._ended(outcome)


def _keep_forever(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Keep a reference, so that Python never tries to close this coroutine again.

    At program exit there is no event loop left, and a coroutine that catches everything around an ``await`` in a loop
    would hang the interpreter.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))


def _was_cancelled(wrong: BaseException) -> bool:
    """True if the current asyncio task was cancelled and ``wrong`` is the handler's reaction to that.

    False if the handler raised ``CancelledError`` itself.
    """
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return False
    cause: BaseException | None = wrong
    while cause is not None and not isinstance(cause, asyncio.CancelledError):
        cause = cause.__context__
    return cause is not None
