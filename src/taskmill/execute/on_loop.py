"""``async def`` handlers run on the event loop as asyncio tasks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from taskmill.execute.results import outcome_of_exception, outcome_of_result
from taskmill.execute.work import Ended, Work
from taskmill.observe.log import log_exception


class LoopExecutor:
    """One asyncio task per handler; interrupting cancels it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def start(self, work: Work, ended: Ended) -> LoopRunning:
        coroutine = work.function()(*work.call_arguments(), **work.kwargs)
        return LoopRunning(self._loop.create_task(coroutine), work, ended)

    async def close(self) -> None:
        """Nothing to release."""


class LoopRunning:
    __slots__ = ("_ended", "_interrupted", "_work", "task")

    def __init__(self, task: asyncio.Task[Any], work: Work, ended: Ended) -> None:
        self.task = task
        self._work = work
        self._ended = ended
        self._interrupted = False
        task.add_done_callback(self._done)

    def interrupt(self) -> None:
        """Cancel it; if it ignored that, end its coroutine, which only a handler that catches everything survives."""
        if self._interrupted:
            coroutine = self.task.get_coro()
            # It may be running at this very moment, or refuse even this; then there is nothing more to do.
            with contextlib.suppress(RuntimeError, ValueError):
                coroutine.close()
        self._interrupted = True
        self.task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._ended(outcome_of_exception(asyncio.CancelledError()))
        elif (wrong := task.exception()) is not None:
            if self._interrupted and isinstance(wrong, RuntimeError):
                # What asyncio says of a coroutine that was ended under it.
                self._ended(outcome_of_exception(asyncio.CancelledError()))
                return
            log_exception(wrong, self._work.task_id, self._work.type.name, self._work.attempt)
            self._ended(outcome_of_exception(wrong))
        else:
            self._ended(outcome_of_result(task.result()))
