"""Spans for OpenTelemetry: one for each submission, and one for each attempt.

The context of a submission's span is stored with the task, among the options of the call. The span of an attempt, in
whatever process it runs, is a child of that span and linked to it. The attempts of a recurring task are only linked:
one trace that never ends would be of no use.

Names and attributes follow the semantic conventions for messaging: the destination is the task type. Only the API of
OpenTelemetry is needed; without an SDK in the program, no span is recorded and nothing is stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING

import msgspec

from taskmill.core.exits import ends_program
from taskmill.define.context import Context
from taskmill.define.current import current
from taskmill.define.middleware import HandlerError
from taskmill.define.signature import json_encode
from taskmill.errors import ConfigError
from taskmill.model.attempt import StopReason
from taskmill.model.exceptions import exception_text, message_of
from taskmill.model.submission import Stored
from taskmill.model.task import NO_OVERRIDES, NewTask, Overrides, StoredTrace

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context as OtelContext
except ImportError as wrong:
    raise ConfigError('tracing=True needs OpenTelemetry: pip install "taskmill[otel]"') from wrong

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

_decode_overrides = msgspec.json.Decoder(Overrides).decode

Store = Callable[[Sequence[NewTask]], Sequence[Stored]]
AsyncStore = Callable[[Sequence[NewTask]], Awaitable[Sequence[Stored]]]


class Tracing:
    """Makes the spans of a scheduler."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("taskmill")

    async def submit(self, tasks: Sequence[NewTask], store: AsyncStore) -> Sequence[Stored]:
        """Store tasks inside a producer span."""
        with self._producer(tasks) as span:
            stored = await store(_with_context(tasks))
            _note_id(span, stored)
            return stored

    def submit_here(self, tasks: Sequence[NewTask], store: Store) -> Sequence[Stored]:
        """Store tasks inside a producer span, in the caller's thread."""
        with self._producer(tasks) as span:
            stored = store(_with_context(tasks))
            _note_id(span, stored)
            return stored

    @contextlib.contextmanager
    def _producer(self, tasks: Sequence[NewTask]) -> Generator[trace.Span, None, None]:
        types = {task.type for task in tasks}
        attributes = _attributes("submit", "send", types.pop() if len(types) == 1 else None)
        if len(tasks) > 1:
            attributes["messaging.batch.message_count"] = len(tasks)
        with self._span(attributes, trace.SpanKind.PRODUCER) as span:
            try:
                yield span
            except Exception as wrong:
                _record(span, wrong)
                _fail(span, wrong)
                raise

    @contextlib.asynccontextmanager
    async def attempt(self, _ctx: Context) -> AsyncGenerator[None, None]:
        """Run an attempt inside a consumer span. This is a middleware."""
        running = current.get()
        assert running is not None  # noqa: S101 - middleware runs inside a task
        task = running.task
        attributes = _attributes("process", "process", task.type)
        attributes["messaging.message.id"] = str(task.id)
        attributes["taskmill.attempt"] = task.attempt
        if task.group:
            attributes["taskmill.group"] = task.group
        stored = running.trace
        created = None if stored is None else propagate.extract(stored.carrier)
        origin = None if created is None else trace.get_current_span(created).get_span_context()
        links = [trace.Link(origin)] if origin is not None and origin.is_valid else []
        # Otherwise a root span, not a child of the span in which the program happened to start dispatching.
        parent = created if created is not None and stored is not None and not stored.recurs else OtelContext()
        with self._span(attributes, trace.SpanKind.CONSUMER, parent, links) as span:
            try:
                yield
            except Exception as wrong:
                _record(span, wrong)
                # What a handler raises after a request to stop is no failure.
                if running.stop_reason is None:
                    _fail(span, wrong)
                raise
            finally:
                # A timeout is a failure, whatever the handler did afterwards.
                if running.stop_reason is StopReason.TIMEOUT:
                    _mark_failed(span, "timeout", "exceeded its timeout")

    def _span(
        self,
        attributes: dict[str, AttributeValue],
        kind: trace.SpanKind,
        parent: OtelContext | None = None,
        links: Sequence[trace.Link] = (),
    ) -> contextlib.AbstractContextManager[trace.Span]:
        """Make a span current. An exception is neither recorded in it nor marks it as failed."""
        destination = attributes.get("messaging.destination.name")
        operation = str(attributes["messaging.operation.name"])
        name = operation if destination is None else f"{operation} {destination}"
        return self._tracer.start_as_current_span(
            name, parent, kind, attributes, links, record_exception=False, set_status_on_exception=False
        )


def _record(span: trace.Span, wrong: Exception) -> None:
    """Record an exception in a span; if its methods raise, record what can be read of it."""
    try:
        span.record_exception(wrong)
    except BaseException as broken:
        if ends_program(broken):
            raise
        details = {"exception.type": type(wrong).__qualname__, "exception.message": message_of(wrong)}
        span.add_event("exception", details)


def _fail(span: trace.Span, wrong: Exception) -> None:
    """Mark a span as failed with an exception."""
    if isinstance(wrong, HandlerError):
        _mark_failed(span, wrong.exception, message_of(wrong))
    else:
        _mark_failed(span, type(wrong).__qualname__, exception_text(wrong))


def _mark_failed(span: trace.Span, error_type: str, description: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(trace.StatusCode.ERROR, description)


def _attributes(name: str, operation: str, destination: str | None) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "messaging.system": "taskmill",
        "messaging.operation.name": name,
        "messaging.operation.type": operation,
    }
    if destination is not None:
        attributes["messaging.destination.name"] = destination
    return attributes


def _with_context(tasks: Sequence[NewTask]) -> Sequence[NewTask]:
    """Return the tasks with the context of the current span, to be stored."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if not carrier:
        return tasks
    return [_traced(task, carrier) for task in tasks]


def _traced(task: NewTask, carrier: dict[str, str]) -> NewTask:
    before = NO_OVERRIDES if task.overrides is None else _decode_overrides(task.overrides)
    recurs = task.links is not None and task.links.every_ms is not None
    traced = msgspec.structs.replace(before, trace=StoredTrace(carrier, recurs))
    return msgspec.structs.replace(task, overrides=json_encode(traced).decode())


def _note_id(span: trace.Span, stored: Sequence[Stored]) -> None:
    if len(stored) == 1:
        span.set_attribute("messaging.message.id", str(stored[0].id))
