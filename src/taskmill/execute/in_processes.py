"""Handlers with ``run_in="process"`` run in worker processes: CPU work, and work that can be killed.

A worker runs one handler at a time and is kept for the next one. Interrupting ends the process, so an
interrupted worker is never used again. Workers inherit the right to dispatch and die with their scheduler.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence

import msgspec

from taskmill.errors import InvalidState
from taskmill.execute.handler_address import address_of, check_importable
from taskmill.execute.messages import (
    Answer,
    Call,
    FromWorker,
    Moved,
    Refusal,
    Reported,
    RequestAnswer,
    SaveRequest,
    SpawnRequest,
    framed,
)
from taskmill.execute.results import error_text
from taskmill.execute.work import HOLD, Ended, Work
from taskmill.execute.worker_process import PATIENCE, WorkerProcess
from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.outcome import Crashed, Interrupted, RawOutcome, Unstarted
from taskmill.model.stages import Stored
from taskmill.observe.log import about, logger
from taskmill.ports import Clock

__all__ = ["ProcessExecutor", "ProcessRunning", "check_importable"]

# More workers than this are not kept while there is nothing to do; the next burst starts them again.
MOST_IDLE = max(2, os.cpu_count() or 1)


MeasureIo = Callable[[int], IoBudget | None]
"""What the process with an id has moved so far, if the system tells."""


class ProcessExecutor:
    """A worker process per running handler, kept for the next one when it is done.

    ``inherit`` names the descriptors that workers hold as long as they live: the right to dispatch. An executor
    serves one such right, and is closed before that is released. ``measure`` tells what a process has moved so far.
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
                msgspec.structs.replace(work.record(), payload={}) if work.type.part(work.part).wants_context else None,
                work.children,
            )
        )
        running = ProcessRunning(work, ended)
        try:
            worker = running.worker = self._worker()
        except (OSError, RuntimeError) as wrong:
            # No descriptors, no processes or no threads are left, which is not the task's fault.
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
        """End all workers, the idle ones in good order, and wait until they are dead."""
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
            logger.error("%r does not die", worker)

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
            case Moved():
                if running is not None:
                    running.moved += message.io
            case SaveRequest() | SpawnRequest():
                task = asyncio.get_running_loop().create_task(_serve(worker, running, message))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
            case Answer():
                if running is not None:
                    outcome = message.unpacked()
                    _log(message, running.work)
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
    """A handler in a worker process, until it is over."""

    __slots__ = ("ended", "moved", "moved_before", "work", "worker")

    def __init__(self, work: Work, ended: Ended) -> None:
        self.work = work
        self.ended = ended
        self.worker: WorkerProcess | None = None
        self.moved = NO_IO
        """What the handler says it has moved."""
        self.moved_before: IoBudget | None = None
        """What the process had moved before it."""

    def record_io(self, moved_by_process: IoBudget | None) -> None:
        """What the handler has moved: what it says, and what was measured where it says nothing."""
        moved = self.moved
        if moved_by_process is not None and self.moved_before is not None:
            measured = moved_by_process - self.moved_before
            moved = IoBudget(*(said or seen for said, seen in zip(moved.amounts, measured.amounts, strict=True)))
        if moved != NO_IO:
            self.work.link.record_io(moved)

    def interrupt(self) -> None:
        """End its process: by SIGTERM first, by SIGKILL if asked again or after a while."""
        if self.worker is not None:
            self.worker.terminate()


async def _serve(worker: WorkerProcess, running: ProcessRunning | None, request: SaveRequest | SpawnRequest) -> None:
    """Do what a handler asks for, and tell it that it is done, or why it is not."""
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
    except Exception as wrong:  # noqa: BLE001 - the handler is told, whatever it was
        answer.refusal = Refusal.of(wrong)
    worker.send(framed(answer))


def _log_unstarted(unstarted: Unstarted, work: Work) -> None:
    logger.error(
        "task %d (%s) returns to the queue: %s",
        work.task_id,
        work.type.name,
        unstarted.error,
        extra=about(work.task_id, work.type.name),
    )


def _log(answer: Answer, work: Work) -> None:
    """The traceback was made in the worker; it is logged here, where logging is set up."""
    if answer.raised is None:
        return
    logger.log(
        logging.INFO if answer.traceback is None else logging.WARNING,
        "task %d (%s) attempt %d raised %s%s",
        work.task_id,
        work.type.name,
        work.attempt,
        answer.raised,
        f"\n{answer.traceback.rstrip()}" if answer.traceback else "",
        extra=about(work.task_id, work.type.name),
    )
