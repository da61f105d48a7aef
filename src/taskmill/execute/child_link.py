"""The link from a Context in a worker process to the scheduler: messages over a socket.

Progress reports are throttled here, before they cost anything. A report is sent at once if none was sent recently;
otherwise the latest one is sent after the interval, or when the handler ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

import msgspec

from taskmill.define.context import ALREADY_DONE
from taskmill.errors import InvalidState
from taskmill.execute.messages import (
    FromWorker,
    Moved,
    Reported,
    RequestAnswer,
    SaveRequest,
    SpawnRequest,
    WireSubmission,
)
from taskmill.handle import Handle, Spawned
from taskmill.model.durations import Duration
from taskmill.model.explanation import Explanation
from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.progress import ProgressReport
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.stages import Stored
from taskmill.model.submission import Submission

REPORT_INTERVAL = 0.05

# One sequence for all calls, so that a late answer to an earlier call is never taken for an answer to this one.
_numbers = itertools.count()
_encode = msgspec.json.Encoder().encode
_check = msgspec.json.Decoder(ProgressReport).decode


class ChildLink:
    """Serves one call. A thread that outlives its handler finds the link closed."""

    stop_requested = False
    """Always False: a worker process is not asked to stop, it is killed."""

    def __init__(self, send: Callable[[FromWorker], None]) -> None:
        self._send = send
        self._closed = False
        self._reporting = threading.Lock()
        self._held_back: ProgressReport | None = None
        self._moved = NO_IO
        self._next_report = 0.0
        self._timer: threading.Thread | None = None
        self._has_held_back = threading.Event()
        self._asked: dict[int, Future[Any]] = {}
        """Unanswered requests, by number."""

    def report(self, progress: ProgressReport) -> None:
        self._held_back = progress
        if time.monotonic() >= self._next_report:
            with self._reporting:
                self._send_held_back()
        elif not self._has_held_back.is_set():
            self._has_held_back.set()
            if self._timer is None:
                self._timer = threading.Thread(target=self._send_in_time, name="taskmill-progress", daemon=True)
                self._timer.start()

    def record_io(self, moved: IoBudget) -> None:
        with self._reporting:
            self._moved += moved

    def save(self, saved: str) -> Awaitable[None]:
        future = self._ask(lambda number: SaveRequest(number, saved))
        if not _on_a_loop():
            future.result()
            return ALREADY_DONE
        return asyncio.wrap_future(future)

    def spawn(self, submissions: Sequence[Submission], *, sibling: bool) -> Spawned:
        wire = [WireSubmission.of(submission) for submission in submissions]
        future = self._ask(lambda number: SpawnRequest(number, sibling, wire))
        if not _on_a_loop():
            return Spawned(_handles(future.result()))
        return Spawned(pending=_awaited(future))

    def _ask(self, request: Callable[[int], FromWorker]) -> Future[Any]:
        if self._closed:
            raise InvalidState("the attempt is over; nothing was stored")
        number, future = next(_numbers), Future[Any]()
        self._asked[number] = future
        try:
            self._send(request(number))
        except BaseException:
            # It was not sent, so no answer will come.
            del self._asked[number]
            raise
        return future

    def answered(self, answer: RequestAnswer) -> None:
        future = self._asked.pop(answer.number, None)
        # The handler cancels the future when it stops waiting.
        if future is not None and future.set_running_or_notify_cancel():
            if answer.refusal is not None:
                future.set_exception(answer.refusal.unpacked())
            else:
                future.set_result(answer.stored)

    def close(self) -> None:
        """Send the last report and the moved bytes, and wait for the answers that the handler did not wait for."""
        with self._reporting:
            self._send_held_back()
            if self._moved != NO_IO:
                self._send(Moved(self._moved))
            self._closed = True
        self._has_held_back.set()
        wait(list(self._asked.values()))

    def _send_in_time(self) -> None:
        while not self._closed:
            self._has_held_back.wait()
            # Clear before taking the report, so that a report made in between is not missed.
            self._has_held_back.clear()
            time.sleep(max(0.0, self._next_report - time.monotonic()))
            with self._reporting:
                self._send_held_back()

    def _send_held_back(self) -> None:
        held_back, self._held_back = self._held_back, None
        if held_back is None or self._closed:
            return
        self._next_report = time.monotonic() + REPORT_INTERVAL
        # A malformed report must not fail the handler.
        with contextlib.suppress(TypeError, ValueError):
            _check(_encode(held_back))
            self._send(Reported(held_back))


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _awaited(future: Future[Any]) -> list[Handle[Any]]:
    return _handles(await asyncio.wrap_future(future))


def _handles(stored: Sequence[Stored]) -> list[Handle[Any]]:
    return [Handle(_ELSEWHERE, one) for one in stored]


class Elsewhere:
    """Stands in for the scheduler, which a worker process cannot reach: every method raises ``InvalidState``."""

    async def cancel(self, id: int) -> bool:
        raise _out_of_reach(id)

    async def get(self, id: int) -> TaskRecord | HistoryRecord:
        raise _out_of_reach(id)

    async def explain(self, id: int) -> Explanation:
        raise _out_of_reach(id)

    async def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord:  # noqa: ARG002 - a protocol's
        raise _out_of_reach(id)


_ELSEWHERE = Elsewhere()


def _out_of_reach(id: int) -> InvalidState:
    return InvalidState(f"task {id} cannot be watched from a worker process; use finalize or depends_on instead")
