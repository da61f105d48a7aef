"""Run ``def`` handlers in threads.

They are daemon threads: Python joins the threads of ``concurrent.futures`` at exit, so one handler that never returns
would keep the program alive forever. A thread cannot be stopped from outside; its handler must check ``ctx.cancelled``.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from taskmill.core.logs import about, logger
from taskmill.core.ports import Clock
from taskmill.define.current import CurrentTask, current
from taskmill.execute.work import HOLD, Ended, Work, error_text, outcome_of_exception, outcome_of_result
from taskmill.model.attempt import RawOutcome, Unstarted

Job = Callable[[], None]


class ThreadExecutor:
    """Runs each handler in a thread of its own and reuses the thread afterwards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._idle: list[_Worker] = []

    def start(self, work: Work, ended: Ended) -> ThreadRunning:
        function, arguments = work.code.function, work.call_arguments()
        return self.call(
            lambda: function(*arguments, **work.kwargs),
            work.running,
            work.log,
            ended,
        )

    def call(
        self,
        function: Callable[[], Any],
        running: CurrentTask,
        log: Callable[[BaseException], None],
        ended: Ended,
    ) -> ThreadRunning:
        """Run a function of a task in a thread; ``ended`` is called on the event loop."""
        loop = asyncio.get_running_loop()
        try:
            worker = self._idle.pop() if self._idle else _Worker()
        except RuntimeError as wrong:
            # The system has no threads left, which is not the task's fault.
            unstarted = Unstarted(f"no thread could be started: {error_text(wrong)}")
            task = running.task
            logger.error(
                "task %d (%s) returns to the queue: %s", task.id, task.type, unstarted.error, extra=about(task)
            )
            loop.call_later(HOLD, ended, unstarted)
            return ThreadRunning()
        context = contextvars.copy_context()
        context.run(current.set, running)

        def job() -> None:
            outcome: RawOutcome
            try:
                outcome = outcome_of_result(context.run(function))
            except BaseException as wrong:  # noqa: BLE001 - it becomes the outcome
                log(wrong)
                outcome = outcome_of_exception(wrong)
            try:
                loop.call_soon_threadsafe(done, outcome)
            except RuntimeError:
                # The loop was closed meanwhile. Nothing waits for the outcome, but the run may still hold the right to
                # dispatch for this handler.
                with contextlib.suppress(RuntimeError):
                    ended(outcome)

        def done(outcome: RawOutcome) -> None:
            self._clock.work_ends(may_block=True, thread=worker.thread)
            self._idle.append(worker)
            ended(outcome)

        self._clock.work_begins(may_block=True, thread=worker.thread)
        worker.give(job)
        return ThreadRunning()

    async def close(self) -> None:
        """End idle threads; busy ones end with their handler or with the process."""
        for worker in self._idle:
            worker.give(None)
        self._idle.clear()


class ThreadRunning:
    """A running handler in a thread. The attempt sets ``ctx.cancelled``, so :meth:`interrupt` does nothing."""

    def interrupt(self) -> None:
        return


class _Worker:
    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name="taskmill-handler", daemon=True)
        self.thread.start()

    def give(self, job: Job | None) -> None:
        self._jobs.put(job)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
