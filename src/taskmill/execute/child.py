"""The worker process: receives calls from its scheduler through a socket and runs them, one at a time.

Laws: it never outlives its scheduler, because its attempts would run beside those of the next scheduler; it answers
each call once; cancellation is not its decision but a signal that ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from taskmill.define.context import Context
from taskmill.define.task import TaskType
from taskmill.errors import ConfigError
from taskmill.execute.child_link import ChildLink
from taskmill.execute.handler_address import Address, find_handler
from taskmill.execute.messages import LENGTH_BYTES, Answer, Call, FromWorker, decode_to_worker, framed
from taskmill.execute.results import error_text, outcome_of_exception, outcome_of_result
from taskmill.model.outcome import RawOutcome
from taskmill.model.signals import GiveUp, RetryLater

# Seconds that an idle worker has to exit gracefully once its scheduler has closed the socket.
FAREWELL = 2.0
LONGEST_TRACEBACK = 20_000


def main(channel: int, inherited: Sequence[int], argv: Sequence[str]) -> None:
    """Serve calls until the scheduler closes the socket or, on Linux, until the kernel ends this process with it."""
    _reset_signals()
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
    """Make SIGTERM end this process and Ctrl-C not, whatever handlers the scheduler's process has."""
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
        self._handlers: dict[Address, TaskType] = {}

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
            handler = self._handlers.get(call.handler)
            if handler is None:
                handler = self._handlers[call.handler] = find_handler(call.handler)
            outcome = outcome_of_result(_call(handler, call, link))
        except BaseException as wrong:  # noqa: BLE001 - it becomes the outcome
            raised = wrong
            outcome = outcome_of_exception(wrong)
        link.close()
        return _answer(outcome, raised)


def _call(handler: TaskType, call: Call, link: ChildLink) -> Any:
    part = handler.part(call.part)
    args, kwargs = handler.signature.decode(call.payload)
    if part.wants_context:
        stripped = call.record
        if stripped is None:
            raise ConfigError(f"{call.handler.type_name}: the worker process found another handler of that name")
        record = msgspec.structs.replace(stripped, payload=msgspec.json.decode(call.payload))
        args = [Context(lambda: record, link, call.saved, _NoState(), call.replaced, call.children), *args]
    context = contextvars.copy_context()
    if part.is_async:
        return context.run(asyncio.run, part.function(*args, **kwargs))
    return context.run(part.function, *args, **kwargs)


def _answer(outcome: RawOutcome, raised: BaseException | None) -> Answer:
    if raised is None or isinstance(raised, asyncio.CancelledError):
        return Answer.of(outcome)
    if isinstance(raised, RetryLater | GiveUp):
        return Answer.of(outcome, f"{type(raised).__name__}: {error_text(raised)}")
    return Answer.of(outcome, error_text(raised), _traceback(raised))


def _traceback(raised: BaseException) -> str:
    """Format the traceback of an exception; return a note if the exception's own methods prevent that."""
    try:
        told = "".join(traceback.format_exception(raised))
    except BaseException as broken:  # noqa: BLE001 - the answer must be sent
        told = f"(its traceback could not be formatted: {type(broken).__name__})"
    return told[-LONGEST_TRACEBACK:].encode("utf-8", "replace").decode()


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
