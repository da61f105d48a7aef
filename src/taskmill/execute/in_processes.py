"""Run handlers with ``run_in="process"`` in worker processes: for CPU work, and for work that must be killable.

A worker runs one handler at a time and is reused. Interrupting a handler ends its process, so an interrupted worker is
never reused. Workers hold the dispatch lock too, and end with their scheduler.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Callable, Sequence

import msgspec

from taskmill.core.logs import about, logger
from taskmill.core.ports import Clock
from taskmill.errors import InvalidState
from taskmill.execute.address import address_of, check_importable, check_loadable
from taskmill.execute.messages import (
    Answer,
    Call,
    FromWorker,
    MovedBytes,
    Refused,
    Reported,
    RequestAnswer,
    SaveRequest,
    SpawnRequest,
    framed,
)
from taskmill.execute.work import HOLD, Ended, Work, error_text
from taskmill.execute.worker import PATIENCE, WorkerProcess
from taskmill.model.attempt import Crashed, Failed, Interrupted, RawOutcome, Unrunnable, Unstarted
from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.submission import Stored

__all__ = ["ProcessExecutor", "ProcessRunning", "check_importable", "check_loadable"]

# The most idle workers to keep; the next burst starts more.
MOST_IDLE = max(2, os.cpu_count() or 1)


MeasureIo = Callable[[int], IoBudget | None]
"""Returns the bytes that a process has moved so far, or ``None`` if the system does not report them."""


class ProcessExecutor:
    """Runs each handler in a worker process of its own and reuses the process afterwards.

    ``inherit`` returns the descriptors that workers hold open while they live: the dispatch lock. An executor serves
    one such lock and is closed before the lock is released. ``measure`` returns the bytes a process has moved so far.
    """

    def __init__(
        self, clock: Clock, inherit: Callable[[], Sequence[int]] = tuple, measure: MeasureIo | None = None
    ) -> None:
        self._clock = clock
        self._inherit = inherit
        self._measure = measure
        self._workers: dict[WorkerProcess, ProcessRunning | None] = {}
        self._idle: list[WorkerProcess] = []
        self._serving: set[asyncio.Task[None]] = set()

    def start(self, work: Work, ended: Ended) -> ProcessRunning:
        call = framed(
            Call(
                address_of(work.type.function, work.type.name),
                work.part,
                work.payload,
                work.saved,
                work.replaced,
                msgspec.structs.replace(work.running.record(), payload={}),
                work.children,
            )
        )
        running = ProcessRunning(work, ended)
        try:
            worker = running.worker = self._worker()
        except (OSError, RuntimeError) as wrong:
            # The system has no descriptors, processes or threads left, which is not the task's fault.
            unstarted = Unstarted(f"no worker process could be started: {error_text(wrong)}")
            _log_unstarted(unstarted, work)
            asyncio.get_running_loop().call_later(HOLD, self._end, running, unstarted)
        else:
            self._workers[worker] = running
            running.moved_before = self._moved_by(worker)
            worker.send(call)
        self._clock.work_begins(may_block=True)
        return running

    async def close(self) -> None:
        """End all workers, idle ones gracefully, and wait until they are dead."""
        self._idle.clear()
        for worker, running in list(self._workers.items()):
            if running is None:
                worker.retire()
            else:
                worker.kill()
        await self._wait_for_workers()
        for worker in list(self._workers):
            worker.kill()
        await self._wait_for_workers()
        for worker in self._workers:
            logger.error("%r did not die within %g s after SIGKILL", worker, PATIENCE)

    async def _wait_for_workers(self) -> None:
        if self._workers:
            await asyncio.wait([worker.gone for worker in self._workers], timeout=PATIENCE)

    def _worker(self) -> WorkerProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_usable():
                return worker
        return WorkerProcess(self._inherit(), self._received, self._died)

    def _received(self, worker: WorkerProcess, message: FromWorker) -> None:
        running = self._workers[worker]
        match message:
            case Reported():
                if running is not None:
                    running.work.link.report(message.progress)
            case MovedBytes():
                if running is not None:
                    running.moved += message.io
            case SaveRequest() | SpawnRequest():
                context = None if running is None else running.context
                task = asyncio.get_running_loop().create_task(_serve(worker, running, message), context=context)
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
            case Answer():
                if running is not None:
                    outcome = message.unpacked()
                    _log(message, outcome, running.work)
                    running.record_io(self._moved_by(worker))
                    self._workers[worker] = None
                    self._release(worker)
                    self._end(running, outcome)

    def _moved_by(self, worker: WorkerProcess) -> IoBudget | None:
        return self._measure(worker.pid) if self._measure is not None else None

    def _release(self, worker: WorkerProcess) -> None:
        if not worker.is_usable():
            return
        if len(self._idle) < MOST_IDLE:
            self._idle.append(worker)
        else:
            worker.retire()

    def _died(self, worker: WorkerProcess) -> None:
        running = self._workers.pop(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if running is not None:
            self._end(running, Interrupted() if worker.interrupted else Crashed(worker.obituary()))

    def _end(self, running: ProcessRunning, outcome: RawOutcome) -> None:
        running.worker = None
        self._clock.work_ends(may_block=True)
        running.ended(outcome)


class ProcessRunning:
    """A running handler in a worker process."""

    __slots__ = ("context", "ended", "moved", "moved_before", "work", "worker")

    def __init__(self, work: Work, ended: Ended) -> None:
        self.work = work
        self.ended = ended
        self.worker: WorkerProcess | None = None
        self.context = contextvars.copy_context()
        """The context that the requests of the handler are served in."""
        self.moved = NO_IO
        """The bytes that the handler reported as moved."""
        self.moved_before: IoBudget | None = None
        """The bytes that the process had moved before this handler."""

    def record_io(self, moved_by_process: IoBudget | None) -> None:
        """Record the bytes moved: on each axis the handler's report, else the measured amount."""
        moved = self.moved
        if moved_by_process is not None and self.moved_before is not None:
            measured = moved_by_process - self.moved_before
            moved = IoBudget(*(said or seen for said, seen in zip(moved.amounts, measured.amounts, strict=True)))
        if moved != NO_IO:
            self.work.link.record_io(moved)

    def interrupt(self) -> None:
        """End the process: with SIGTERM first, with SIGKILL on the second call or after five seconds."""
        if self.worker is not None:
            self.worker.terminate()


async def _serve(worker: WorkerProcess, running: ProcessRunning | None, request: SaveRequest | SpawnRequest) -> None:
    """Execute a request of a handler and send the answer or the error."""
    answer = RequestAnswer(request.number, [], None)
    try:
        if running is None:
            raise InvalidState("the attempt is over; nothing was stored")
        if isinstance(request, SaveRequest):
            await running.work.link.save(request.saved)
        else:
            submissions = [submission.unpacked() for submission in request.submissions]
            handles = await running.work.link.spawn(submissions, sibling=request.sibling)
            answer.stored = [Stored(handle.id, handle.kind, handle.replaced_id) for handle in handles]
    except Exception as wrong:  # noqa: BLE001 - every error is reported to the handler
        answer.refusal = Refused.of(wrong)
    worker.send(framed(answer))


def _log_unstarted(unstarted: Unstarted, work: Work) -> None:
    logger.error(
        "task %d (%s) returns to the queue: %s",
        work.task_id,
        work.type.name,
        unstarted.error,
        extra=about(work.running.task),
    )


def _log(answer: Answer, outcome: RawOutcome, work: Work) -> None:
    """Log an exception with the traceback made in the worker; only this process has logging configured."""
    if answer.raised is None:
        return
    details = outcome.details if isinstance(outcome, Failed | Unrunnable) and not answer.on_purpose else None
    logger.log(
        logging.INFO if answer.on_purpose else logging.WARNING,
        "task %d (%s) attempt %d raised %s%s",
        work.task_id,
        work.type.name,
        work.attempt,
        answer.raised,
        f"\n{details.traceback.rstrip()}" if details is not None and details.traceback else "",
        extra=about(work.running.task),
    )
