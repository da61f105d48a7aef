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
from taskmill.core.logs import AttemptFields, log_exception, logger
from taskmill.define.current import CurrentTask, current
from taskmill.execute.loop_watch import LoopWatch
from taskmill.execute.tracebacks import own_traceback
from taskmill.execute.work import Ended, error_text, outcome_of_exception, outcome_of_result
from taskmill.model.attempt import Interrupted, RawOutcome


class LoopExecutor:
    """One asyncio task per handler; interrupting cancels it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.watch = LoopWatch()

    def call(
        self,
        coroutine: Coroutine[Any, Any, Any],
        name: str,
        running: CurrentTask,
        ended: Ended,
        outcome: Callable[[Any], RawOutcome] = outcome_of_result,
        *,
        is_logged: bool = True,
    ) -> LoopRunning:
        """Run a coroutine of a task as an asyncio task named ``name``; ``outcome`` judges its result."""
        return LoopRunning(self, coroutine, name, running, ended, outcome, is_logged)

    async def close(self) -> None:
        """End the thread that watches for blocking handlers."""
        self.watch.close()


class LoopRunning:
    """A running coroutine, until it has ended or was abandoned."""

    __slots__ = (
        "_ended",
        "_executor",
        "_interrupted",
        "_is_logged",
        "_left",
        "_outcome",
        "_running",
        "coroutine",
        "task",
        "type",
    )

    def __init__(
        self,
        executor: LoopExecutor,
        coroutine: Coroutine[Any, Any, Any],
        type: str,
        running: CurrentTask,
        ended: Ended,
        outcome: Callable[[Any], RawOutcome],
        is_logged: bool,
    ) -> None:
        self.coroutine = coroutine
        self.type = type
        self._executor = executor
        self._running = running
        self._ended = ended
        self._outcome = outcome
        self._is_logged = is_logged
        self._interrupted = False
        self._left = False
        executor.watch.begin()
        self.task = executor.loop.create_task(self._run(), name=type)
        self.task.add_done_callback(self._done)

    @property
    def fields(self) -> AttemptFields:
        """What log records show of the task that it belongs to."""
        return self._running.task

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
            self.coroutine.close()
        except (RuntimeError, ValueError):
            # It ignores GeneratorExit, or it is itself the caller. In both cases it is never resumed.
            _keep_forever(self.coroutine)
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            logger.warning("%s raised %s when it was closed", self.type, error_text(wrong))

    async def _run(self) -> RawOutcome:
        # Set only in the context of this asyncio task.
        current.set(self._running)
        try:
            return self._outcome(await self._steps())
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            if not self._interrupted and _was_cancelled(wrong):
                return Interrupted(from_outside=True)
            if self._is_logged:
                log_exception(wrong, own_traceback(wrong), self._running.task)
            return outcome_of_exception(wrong)

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, Any]:
        """Run the coroutine step by step, as ``await`` does, until it has ended or was abandoned."""
        coroutine, watch = self.coroutine, self._executor.watch
        watch.steps += 1
        watch.current = self
        try:
            waits_for = coroutine.send(None)
            while True:
                watch.current = None
                try:
                    answer = yield waits_for
                except BaseException as thrown:
                    if self._left:
                        raise
                    watch.steps += 1
                    watch.current = self
                    waits_for = coroutine.throw(thrown)
                else:
                    if self._left:
                        raise asyncio.CancelledError
                    watch.steps += 1
                    watch.current = self
                    waits_for = coroutine.send(answer)
        except StopIteration as over:
            return over.value
        finally:
            watch.current = None

    def _done(self, task: asyncio.Task[RawOutcome]) -> None:
        self._executor.watch.end()
        if task.cancelled():
            # Cancelled before its first step.
            self.coroutine.close()
            outcome: RawOutcome = Interrupted(from_outside=not self._interrupted)
        elif (wrong := task.exception()) is None:
            outcome = task.result()
        else:
            outcome = Interrupted(from_outside=True) if ends_program(wrong) else outcome_of_exception(wrong)
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
