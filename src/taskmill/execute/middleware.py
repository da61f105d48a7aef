"""Run the code of an attempt inside the scheduler's middleware: async context managers, the first one outermost.

Middleware runs on the event loop, in the asyncio task of an ``async def`` handler. For handlers in threads and
processes that task only waits, and cancelling it does not end the handler. So :class:`WithinMiddleware` ends the
attempt only when both the middleware and the handler have ended.

Laws: middleware sees the exception of the handler. If it swallows that exception, the attempt fails with it anyway, and
a warning is logged. An exception of the middleware's own is the outcome of the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import cast

from taskmill.core.logs import about, logger
from taskmill.define.middleware import HandlerError, Middleware
from taskmill.define.signature import json_encode
from taskmill.errors import ConfigError
from taskmill.execute.on_loop import LoopExecutor, LoopRunning
from taskmill.execute.work import Ended, Executor, RunningHandler, Work, error_text, outcome_of_result
from taskmill.model.attempt import ErrorDetails, Failed, GaveUp, Interrupted, RawOutcome, Succeeded
from taskmill.model.exceptions import GiveUp, RetryLater


def start_async(middleware: Sequence[Middleware], work: Work, loop: LoopExecutor, ended: Ended) -> LoopRunning:
    """Start an ``async def`` handler inside middleware."""

    async def call() -> RawOutcome:
        outcome = outcome_of_result(await work.code.function(*work.call_arguments(), **work.kwargs))
        if isinstance(outcome, GaveUp):
            # Its result cannot be stored, and the middleware must see that the attempt fails.
            raise GiveUp(outcome.error)
        return outcome

    return loop.call(_inside(middleware, work, call), work.type.name, work.running, ended, _as_it_is)


async def _inside(
    middleware: Sequence[Middleware], work: Work, call: Callable[[], Awaitable[RawOutcome]]
) -> RawOutcome:
    if not middleware:
        return await call()
    raised: BaseException | None = None
    traceback: TracebackType | None = None
    try:
        async with _opened(middleware[0], work):
            try:
                return await _inside(middleware[1:], work, call)
            except BaseException as wrong:
                raised, traceback = wrong, wrong.__traceback__
                raise
        assert raised is not None  # noqa: S101 - the context manager has swallowed it
        logger.warning(
            "task %d (%s): middleware %s swallowed %s; the attempt fails with it anyway",
            work.task_id,
            work.type.name,
            _name(middleware[0]),
            error_text(raised),
            extra=about(work.running.task),
        )
        # Without the frames that the middleware has added while it had the exception.
        raise raised.with_traceback(traceback)
    finally:
        # The exception refers to this frame: break the reference cycle.
        del raised, traceback


def _opened(middleware: Middleware, work: Work) -> AbstractAsyncContextManager[object]:
    """Return the context manager of a middleware; raise ``ConfigError`` if it is not one."""
    manager = cast("object", middleware(work.context()))
    if not isinstance(manager, AbstractAsyncContextManager):
        raise ConfigError(
            f"middleware {_name(middleware)} must return an async context manager, not {type(manager).__name__}; "
            "write it as an async generator function and decorate it with contextlib.asynccontextmanager"
        )
    return cast("AbstractAsyncContextManager[object]", manager)


def _name(middleware: Middleware) -> str:
    return getattr(middleware, "__qualname__", repr(middleware))


class WithinMiddleware:
    """A handler in a thread or a process, inside middleware on the event loop."""

    def __init__(
        self, middleware: Sequence[Middleware], work: Work, executor: Executor, loop: LoopExecutor, ended: Ended
    ) -> None:
        self._work = work
        self._executor = executor
        self._ended = ended
        self._handler: RunningHandler | None = None
        """The handler, while it is running."""
        self._handler_over = asyncio.Event()
        self._raw: RawOutcome | None = None
        """The outcome of the handler, once it has ended."""
        self._thrown: BaseException | None = None
        """The exception of the handler, as the middleware sees it."""
        self._waits_for_handler: RawOutcome | None = None
        """The outcome of the attempt, if its middleware ended before the handler."""
        work.noticed = self._note_exception
        self._around = loop.call(self._run(middleware), work.type.name, work.running, self._end, _as_it_is)

    def interrupt(self) -> None:
        """Interrupt the handler while it runs, otherwise the middleware."""
        (self._around if self._handler is None else self._handler).interrupt()

    async def _run(self, middleware: Sequence[Middleware]) -> RawOutcome:
        try:
            return await _inside(middleware, self._work, self._call)
        except BaseException as wrong:
            if self._raw is None or wrong is not self._thrown:
                raise
            return self._raw

    async def _call(self) -> RawOutcome:
        # The middleware may have saved something.
        saved = self._work.context().saved
        self._work.saved = json_encode(dict(saved)).decode() if saved else None
        self._handler = self._executor.start(self._work, self._handler_ended)
        await self._handler_over.wait()
        assert self._raw is not None  # noqa: S101 - it has ended
        if isinstance(self._raw, Succeeded):
            return self._raw
        self._thrown = self._thrown or _exception_of(self._raw)
        raise self._thrown

    def _note_exception(self, wrong: BaseException) -> None:
        # A coroutine cannot raise StopIteration.
        if not isinstance(wrong, StopIteration):
            self._thrown = wrong

    def _handler_ended(self, raw: RawOutcome) -> None:
        self._handler, self._raw = None, raw
        self._handler_over.set()
        if self._waits_for_handler is not None:
            self._end(self._waits_for_handler)

    def _end(self, outcome: RawOutcome) -> None:
        if self._handler is not None:
            # The waiting task was cancelled from outside.
            self._waits_for_handler = outcome
            return
        self._thrown = self._work.noticed = None
        self._ended(outcome)


def _as_it_is(outcome: RawOutcome) -> RawOutcome:
    return outcome


def _exception_of(raw: RawOutcome) -> BaseException:
    match raw:
        case Interrupted():
            return asyncio.CancelledError()
        case GaveUp(error):
            return GiveUp(error)
        case Failed(error, int(after_ms)):
            return RetryLater(error, timedelta(milliseconds=after_ms))
        case _:
            details: ErrorDetails | None = getattr(raw, "details", None)
            name = type(raw).__name__.lower() if details is None else details.exception
            return HandlerError(getattr(raw, "error", str(raw)), name)
