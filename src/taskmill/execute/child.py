"""The worker process: receives calls from its scheduler through a socket and runs them, one at a time.

Laws: it never outlives its scheduler, because its attempts would run beside those of the next scheduler; it answers
each call once; a cancellation is a signal that ends the process.

The Context of a handler reaches the scheduler through :class:`ChildLink`. It throttles progress reports before they
cost anything: a report is sent at once if none was sent recently; otherwise the latest one is sent after the interval,
or when the handler ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import msgspec

from taskmill.define import worker_process
from taskmill.define.context import ALREADY_DONE, Context
from taskmill.define.current import current
from taskmill.define.task import TaskType
from taskmill.errors import ConfigError, InvalidState
from taskmill.execute.address import HandlerAddress, find_handler
from taskmill.execute.messages import (
    LENGTH_BYTES,
    Answer,
    Call,
    FromWorker,
    MovedBytes,
    Reported,
    RequestAnswer,
    SaveRequest,
    SpawnRequest,
    WireSubmission,
    decode_to_worker,
    framed,
)
from taskmill.execute.tracebacks import details_of
from taskmill.execute.work import error_text, outcome_of_exception, outcome_of_result
from taskmill.handle import Handle, Spawned
from taskmill.model.attempt import RawOutcome, Unrunnable
from taskmill.model.durations import Duration
from taskmill.model.exceptions import GiveUp, RetryLater
from taskmill.model.explanation import Explanation
from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.progress import ProgressReport
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.submission import Stored, Submission

# Seconds that an idle worker has to exit gracefully once its scheduler has closed the socket.
FAREWELL = 2.0
REPORT_INTERVAL = 0.05

# One sequence for all calls, so that a late answer to an earlier call is never taken for an answer to this one.
_numbers = itertools.count()
_encode = msgspec.json.Encoder().encode
_check = msgspec.json.Decoder(ProgressReport).decode


def main(channel: int, inherited: Sequence[int], argv: Sequence[str]) -> None:
    """Serve calls until the socket is closed. On Linux the kernel also ends this process if the scheduler dies."""
    _reset_signals()
    worker_process.begin()
    # Child processes of this process must not keep the socket or the dispatch lock open.
    for descriptor in (channel, *inherited):
        os.set_inheritable(descriptor, False)
    os.register_at_fork(after_in_child=partial(_close_once, list(inherited)))
    sys.argv[:] = argv
    _Worker(socket.socket(fileno=channel)).serve()


def _close_once(descriptors: list[int]) -> None:
    """Close descriptors in a forked child, but not in its own children: the numbers may belong to other files there."""
    while descriptors:
        os.close(descriptors.pop())


def _reset_signals() -> None:
    """Let SIGTERM end this process and ignore Ctrl-C, whatever the scheduler's process has set."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class _Worker:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._busy = False
        self._link: ChildLink | None = None
        self._handlers: dict[HandlerAddress, TaskType] = {}

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="taskmill-scheduler-watch", daemon=True).start()
        while (call := self._calls.get()) is not None:
            answer = self._run(call)
            # Flush, because a later kill would drop buffered output of the handler.
            for stream in (sys.stdout, sys.stderr):
                _flush(stream)
            self._busy = False
            self._send(answer)

    def _listen(self) -> None:
        """Read messages in a separate thread, so that the end of the scheduler is noticed during a call."""
        try:
            # A broken channel means the same as a closed one: the scheduler is gone.
            with contextlib.suppress(OSError):
                self._receive()
        except Exception:  # noqa: BLE001 - a worker that cannot read messages must end, whatever the reason
            traceback.print_exc()
        if not self._busy:
            self._calls.put(None)
            time.sleep(FAREWELL)
        os._exit(1)

    def _receive(self) -> None:
        with self._channel.makefile("rb") as stream:
            while header := stream.read(LENGTH_BYTES):
                message = decode_to_worker(stream.read(int.from_bytes(header, "big")))
                if isinstance(message, Call):
                    self._busy = True
                    self._calls.put(message)
                elif self._link is not None:
                    self._link.answered(message)

    def _send(self, message: FromWorker) -> None:
        data = framed(message)
        try:
            with self._sending:
                self._channel.sendall(data)
        except OSError:
            # The scheduler is gone.
            os._exit(1)

    def _run(self, call: Call) -> Answer:
        link = self._link = ChildLink(self._send)
        raised: BaseException | None = None
        outcome: RawOutcome
        try:
            outcome = outcome_of_result(_call(self._handler(call.handler), call, link))
        except ConfigError as wrong:
            raised = wrong
            outcome = Unrunnable(error_text(wrong), details_of(wrong))
        except BaseException as wrong:  # noqa: BLE001 - it becomes the outcome
            raised = wrong
            outcome = outcome_of_exception(wrong)
        link.close()
        return _answer(outcome, raised)

    def _handler(self, address: HandlerAddress) -> TaskType:
        """Return the handler at this address; raise ``ConfigError`` if it cannot be imported.

        An OS error passes through: the system may have no file descriptors or no memory left, and a retry may help.
        """
        handler = self._handlers.get(address)
        if handler is None:
            try:
                handler = find_handler(address)
            except (ConfigError, OSError, MemoryError):
                raise
            except BaseException as wrong:
                raise ConfigError(
                    f"{address.type_name}: a worker process cannot import {address.name}: {error_text(wrong)}"
                ) from wrong
            self._handlers[address] = handler
        return handler


def _call(handler: TaskType, call: Call, link: ChildLink) -> Any:
    part = handler.part(call.part)
    args, kwargs = handler.signature.decode(call.payload)
    running = _Running(call)
    if part.wants_context:
        args = [Context(running.record, link, call.saved, _NoState(), call.replaced, call.children), *args]
    context = contextvars.copy_context()
    context.run(current.set, running)
    if part.is_async:
        return context.run(asyncio.run, part.function(*args, **kwargs))
    return context.run(part.function, *args, **kwargs)


class _Running:
    """The task of a call, for :func:`taskmill.current_task`."""

    def __init__(self, call: Call) -> None:
        self.task = call.record
        self.trace = self.stop_reason = None
        self._payload = call.payload

    def record(self) -> TaskRecord:
        """Return the task as it was when this attempt started."""
        return msgspec.structs.replace(self.task, payload=msgspec.json.decode(self._payload))


def _answer(outcome: RawOutcome, raised: BaseException | None) -> Answer:
    if raised is None or isinstance(raised, asyncio.CancelledError):
        return Answer.of(outcome)
    if isinstance(raised, RetryLater | GiveUp):
        return Answer.of(outcome, f"{type(raised).__name__}: {error_text(raised)}", on_purpose=True)
    return Answer.of(outcome, error_text(raised))


def _flush(stream: Any) -> None:
    """Flush an output stream, which a handler may have closed or replaced."""
    try:
        stream.flush()
    except Exception:  # noqa: BLE001 - the answer must be sent
        return


class _NoState(dict[type, Any]):
    """Raises an error for every lookup, because state objects live in the scheduler's process."""

    def __contains__(self, kind: object) -> bool:
        raise ConfigError(
            f"{getattr(kind, '__name__', kind)} lives in the scheduler's process and cannot be reached by a "
            'handler with run_in="process"; create it in the handler\'s module'
        )


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
                self._send(MovedBytes(self._moved))
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
    return [Handle(_OUT_OF_REACH, one) for one in stored]


class OutOfReach:
    """Stands in for the scheduler, which a worker process cannot reach: every method raises ``InvalidState``."""

    async def cancel(self, id: int) -> bool:
        raise _out_of_reach(id)

    async def get(self, id: int) -> TaskRecord | HistoryRecord:
        raise _out_of_reach(id)

    async def explain(self, id: int) -> Explanation:
        raise _out_of_reach(id)

    async def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord:  # noqa: ARG002 - a protocol's
        raise _out_of_reach(id)


_OUT_OF_REACH = OutOfReach()


def _out_of_reach(id: int) -> InvalidState:
    return InvalidState(f"task {id} cannot be watched from a worker process; use finalize or depends_on instead")
