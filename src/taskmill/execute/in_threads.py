"""``def`` handlers run in threads of our own.

They are daemon threads: Python joins the threads of ``concurrent.futures`` at exit, and one handler that never
returns would keep the program alive for ever. A thread cannot be stopped from outside; its handler is expected to
look at ``ctx.cancelled``.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from taskmill.execute.results import error_text, outcome_of_exception, outcome_of_result
from taskmill.execute.work import HOLD, Ended, Work
from taskmill.model.outcome import RawOutcome, Unstarted
from taskmill.observe.log import log_exception, logger
from taskmill.ports import Clock

Job = Callable[[], None]


class ThreadExecutor:
    """A thread per running handler, kept for the next one when it is done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._idle: list[_Worker] = []

    def start(self, work: Work, ended: Ended) -> ThreadRunning:
        function, arguments = work.function(), work.call_arguments()
        return self.call(
            lambda: function(*arguments, **work.kwargs),
            lambda wrong: log_exception(wrong, work.task_id, work.type.name, work.attempt),
            ended,
        )

    def call(self, function: Callable[[], Any], log: Callable[[BaseException], None], ended: Ended) -> ThreadRunning:
        """Run ``function`` in a thread; ``ended`` is called on the loop."""
        loop = asyncio.get_running_loop()
        try:
            worker = self._idle.pop() if self._idle else _Worker()
        except RuntimeError as wrong:
            # The system has no more threads, which is not the task's fault.
            unstarted = Unstarted(f"no thread could be started: {error_text(wrong)}")
            logger.error("a task returns to the queue: %s", unstarted.error)
            loop.call_later(HOLD, ended, unstarted)
            return ThreadRunning()
        context = contextvars.copy_context()

        def job() -> None:
            outcome: RawOutcome
            try:
                outcome = outcome_of_result(context.run(function))
            except BaseException as wrong:  # noqa: BLE001 - it becomes the outcome
                log(wrong)
                outcome = outcome_of_exception(wrong)
            # A loop that has been closed meanwhile has nobody left to be told.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done, outcome)

        def done(outcome: RawOutcome) -> None:
            self._clock.work_ends(may_block=True)
            self._idle.append(worker)
            ended(outcome)

        self._clock.work_begins(may_block=True)
        worker.give(job)
        return ThreadRunning()

    async def close(self) -> None:
        """Let idle threads go; busy ones end with their handler, or with the process."""
        for worker in self._idle:
            worker.give(None)
        self._idle.clear()


class ThreadRunning:
    """Its interruption is ``ctx.cancelled``, which the attempt has set already."""

    def interrupt(self) -> None:
        return


class _Worker:
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="taskmill-handler", daemon=True).start()

    def give(self, job: Job | None) -> None:
        self._jobs.put(job)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
