"""``async def`` handlers run on the event loop as asyncio tasks.

The handler's coroutine is driven from inside a coroutine of ours. What it raises ends there, ``SystemExit`` and
``KeyboardInterrupt`` included: asyncio would carry those out of the event loop, and the program would end for one
handler. And a handler that refuses to end can be left where it stands, so that the loop can end without it.
"""

from __future__ import annotations

import asyncio
import ctypes
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from taskmill.execute.results import error_text, outcome_of_exception, outcome_of_result
from taskmill.execute.work import Ended, Work
from taskmill.exits import ends_program
from taskmill.model.outcome import Failed, Interrupted, RawOutcome
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
        """Run a coroutine as an asyncio task called ``name``."""
        return LoopRunning(self._loop, coroutine, name, log, ended)

    async def close(self) -> None:
        """Nothing to release."""


class LoopRunning:
    """A coroutine at work, until it has ended or has been left."""

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
        """Cancel it; asked again, leave it where it stands."""
        if self._interrupted:
            self._leave()
        self._interrupted = True
        self.task.cancel()

    def _leave(self) -> None:
        """Run no more of it, whatever it catches, than what it does about being closed."""
        self._left = True
        try:
            self._coroutine.close()
        except (RuntimeError, ValueError):
            # It catches even that, or it is what asks for this. It has no more steps in either case.
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
        """Run the coroutine step by step, as ``await`` does, until it has ended or was left."""
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
            # It was cancelled before its first step.
            self._coroutine.close()
            outcome: RawOutcome = Interrupted(from_outside=not self._interrupted)
        elif (wrong := task.exception()) is None:
            outcome = task.result()
        else:
            outcome = Interrupted(from_outside=True) if ends_program(wrong) else Failed(error_text(wrong))
        self._ended(outcome)


def _keep_forever(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Keep Python from closing a coroutine that refuses it, at the latest when the program exits.

    With no event loop left, a loop around an ``await`` that catches everything would never leave that exit.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))


def _was_cancelled(wrong: BaseException) -> bool:
    """True if something has cancelled the asyncio task that runs now, and ``wrong`` is how its handler took it.

    A handler that raises ``CancelledError`` of its own accord has cancelled nothing but itself.
    """
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return False
    cause: BaseException | None = wrong
    while cause is not None and not isinstance(cause, asyncio.CancelledError):
        cause = cause.__context__
    return cause is not None
