"""``Scheduler(tracing=True)``: a producer span for each submission and a consumer span for each attempt."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import taskmill.observe
from taskmill import ConfigError, Context, Domain, Retry, Scheduler, Submission, Task
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.runtime.around import handlers


class Spans:
    """The spans of one test, in the order of their ends."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return [span.name for span in self._exporter.get_finished_spans()]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    provider = TracerProvider()
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return provider


@pytest.fixture
def spans(provider: TracerProvider) -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield Spans(exporter)
    provider.shutdown()


def is_child(span: ReadableSpan, of: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == _id(of) and _trace(span) == _trace(of)


def is_linked(span: ReadableSpan, to: ReadableSpan) -> bool:
    return [link.context.span_id for link in span.links] == [_id(to)]


def _id(span: ReadableSpan) -> int:
    return span.get_span_context().span_id  # type: ignore[union-attr]


def _trace(span: ReadableSpan) -> int:
    return span.get_span_context().trace_id  # type: ignore[union-attr]


async def test_the_span_of_an_attempt_is_linked_to_that_of_its_submission(
    spans: Spans, provider: TracerProvider
) -> None:
    domain = Domain("d")

    @domain.task(group="g")
    async def work() -> None:
        with provider.get_tracer("program").start_as_current_span("inside"):
            pass

    async with Scheduler(domains=[domain], tracing=True) as scheduler:
        with provider.get_tracer("program").start_as_current_span("request"):
            handle = await work.submit()
        await scheduler.run_until_idle()
    producer, consumer = spans.one("submit d::work"), spans.one("process d::work")
    assert (producer.kind, consumer.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert is_child(producer, spans.one("request"))
    assert is_child(consumer, producer)
    assert is_linked(consumer, producer)
    assert is_child(spans.one("inside"), consumer)
    assert producer.attributes == {
        "messaging.system": "taskmill",
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "messaging.destination.name": "d::work",
        "messaging.message.id": str(handle.id),
    }
    assert consumer.attributes == {
        "messaging.system": "taskmill",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "d::work",
        "messaging.message.id": str(handle.id),
        "taskmill.attempt": 1,
        "taskmill.group": "g",
    }


async def test_the_context_is_stored_so_that_another_process_finds_it(spans: Spans, tmp_path: Path) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    async with Scheduler(tmp_path / "tasks.db", tracing=True) as submitter:
        await submitter.submit(Submission("d::work", check=False, retry=Retry.none()))
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], tracing=True) as scheduler:
        await scheduler.run_until_idle()
    assert is_child(spans.one("process d::work"), spans.one("submit d::work"))


async def test_each_attempt_has_a_span_and_a_failed_one_has_its_error(spans: Spans) -> None:
    domain = Domain("d", retry=Retry.constant(1, delay=0))

    @domain.task
    async def fail() -> None:
        raise ValueError("boom")

    async with Scheduler(domains=[domain], tracing=True) as scheduler:
        handle = await fail.submit()
        await scheduler.run_until_idle()
        assert (await handle.wait()).retries == 1
    attempts = spans.named("process d::fail")
    assert [_attributes(span)["taskmill.attempt"] for span in attempts] == [1, 2]
    for span in attempts:
        assert is_child(span, spans.one("submit d::fail"))
        assert span.status.status_code is StatusCode.ERROR
        assert _attributes(span)["error.type"] == "ValueError"


def _failure(span: ReadableSpan) -> tuple[StatusCode, Any]:
    return span.status.status_code, _attributes(span).get("error.type")


FAILED_BY_TIMEOUT = (StatusCode.ERROR, "timeout")
NO_FAILURE = (StatusCode.UNSET, None)


@pytest.mark.parametrize("reaction", ["cancelled", "returns", "raises"])
async def test_an_attempt_that_exceeds_its_timeout_has_failed_whatever_its_handler_does(
    spans: Spans, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, reaction: str
) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task(timeout=5)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if reaction == "raises":
                raise ValueError("while it stops") from None
            if reaction == "cancelled":
                raise

    scheduler = await taskmill_scheduler(domains=[domain], tracing=True)
    await slow.submit()
    async with scheduler.running():
        await manual_clock.advance(6)
    assert _failure(spans.one("process d::slow")) == FAILED_BY_TIMEOUT


async def test_a_timeout_in_a_thread_is_a_failure(
    spans: Spans, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d", retry=Retry.none())
    until_then = threading.Event()

    @domain.task(timeout=5)
    def slow() -> None:
        until_then.wait(20)

    scheduler = await taskmill_scheduler(domains=[domain], tracing=True)
    handle = await slow.submit()
    async with scheduler.running():
        await manual_clock.advance(6)
        until_then.set()
        await handle.wait()
    assert _failure(spans.one("process d::slow")) == FAILED_BY_TIMEOUT


async def test_a_timeout_in_a_process_is_a_failure(spans: Spans) -> None:
    async with Scheduler(domains=[handlers.work], tracing=True) as scheduler:
        await handlers.endless.submit()
        await scheduler.run_until_idle()
    assert _failure(spans.one("process work::endless")) == FAILED_BY_TIMEOUT


@pytest.mark.parametrize("kind", ["on_loop", "in_thread", "in_process"])
@pytest.mark.parametrize("is_traced", [False, True], ids=["bare", "traced"])
async def test_an_exception_whose_text_cannot_be_read_is_kept_as_what_it_is(
    kind: str, is_traced: bool, spans: Spans
) -> None:
    task: Task[[], None] = getattr(handlers, f"unreadable_{kind}")
    async with Scheduler(domains=[handlers.work], tracing=is_traced) as scheduler:
        handle = await task.submit()
        await scheduler.run_until_idle()
        record = await handle.record()
        (group,) = await scheduler.error_groups()
    assert record.last_error == "Unreadable: (its message could not be read: ZeroDivisionError)"
    assert (group.exception, (group.location or "").split(" in ")[1]) == ("Unreadable", f"unreadable_{kind}")
    if is_traced:
        (event,) = spans.one(f"process {task.name}").events
        assert event.attributes is not None
        assert "its message could not be read: ZeroDivisionError" in str(event.attributes["exception.message"])


async def test_the_exception_of_a_process_has_the_name_of_its_class(spans: Spans) -> None:
    async with Scheduler(domains=[handlers.work], tracing=True) as scheduler:
        for how in ("boom", "give up", "later"):
            await handlers.fail.submit(how)
        await handlers.die.submit()
        await scheduler.run_until_idle()
        kept = {group.exception for group in await scheduler.error_groups()}
    failed, died = spans.named("process work::fail"), spans.named("process work::die")
    assert {_failure(span) for span in failed} == {
        (StatusCode.ERROR, "ValueError"),
        (StatusCode.ERROR, "GiveUp"),
        (StatusCode.ERROR, "RetryLater"),
    }
    assert {_failure(span) for span in died} == {(StatusCode.ERROR, "crashed")}
    assert kept == {_attributes(span)["error.type"] for span in (*failed, *died)}
    (boom,) = (span for span in failed if _attributes(span)["error.type"] == "ValueError")
    assert boom.status.description == "ValueError: boom"


@pytest.mark.parametrize("raises", [False, True])
async def test_an_attempt_that_is_cancelled_is_no_failure(
    spans: Spans, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, raises: bool
) -> None:
    domain = _stoppable(raises)
    scheduler = await taskmill_scheduler(domains=[domain], tracing=True)
    handle = await scheduler.submit(Submission("d::work"))
    async with scheduler.running():
        await manual_clock.advance(1)
        await handle.cancel()
        assert (await handle.wait()).ending == "cancelled"
    assert _failure(spans.one("process d::work")) == NO_FAILURE


@pytest.mark.parametrize("raises", [False, True])
async def test_an_attempt_that_is_preempted_is_no_failure(
    spans: Spans, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, raises: bool
) -> None:
    domain = _stoppable(raises)

    @domain.task(priority=0)
    async def urgent() -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain], tracing=True, max_concurrency=1, shutdown_grace=0)
    await scheduler.submit(Submission("d::work"))
    async with scheduler.running():
        await manual_clock.advance(1)
        await (await urgent.submit()).wait()
    assert [_failure(span) for span in spans.named("process d::work")][:1] == [NO_FAILURE]


@pytest.mark.parametrize("raises", [False, True])
async def test_an_attempt_that_a_shutdown_stops_is_no_failure(
    spans: Spans, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, raises: bool
) -> None:
    scheduler = await taskmill_scheduler(domains=[_stoppable(raises)], tracing=True, shutdown_grace=0)
    await scheduler.submit(Submission("d::work"))
    async with scheduler.running():
        await manual_clock.advance(1)
    assert _failure(spans.one("process d::work")) == NO_FAILURE


def _stoppable(raises: bool) -> Domain:
    """Return a domain with a handler that runs until it is stopped, and then perhaps raises an error of its own."""
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if raises:
                raise ValueError("while it stops") from None
            raise

    return domain


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_many_submissions_in_one_call_have_one_span(spans: Spans) -> None:
    domain = Domain("d")

    @domain.task
    async def one() -> None: ...

    @domain.task
    async def other() -> None: ...

    async with Scheduler(domains=[domain], tracing=True) as scheduler:
        await scheduler.submit_many([one.prepare(), one.prepare()])
        await scheduler.submit_many([one.prepare(), other.prepare()])
        await scheduler.submit_many([])
        await scheduler.run_until_idle()
    same, mixed = spans.one("submit d::one"), spans.one("submit")
    assert _attributes(same)["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in _attributes(same)
    assert "messaging.destination.name" not in _attributes(mixed)
    parents = [span.parent.span_id for span in spans.named("process d::one") if span.parent is not None]
    assert sorted(parents) == sorted([_id(same), _id(same), _id(mixed)])


@pytest.mark.parametrize("kind", ["loop", "thread", "process"])
async def test_a_child_is_traced_to_the_attempt_that_spawned_it(spans: Spans, kind: str) -> None:
    domain = Domain("d")

    @domain.task
    async def on_loop(ctx: Context) -> None:
        await ctx.spawn(handlers.on_loop.prepare(1))

    @domain.task
    def in_thread(ctx: Context) -> None:
        ctx.spawn(handlers.on_loop.prepare(1))

    parent: Any = {"loop": on_loop, "thread": in_thread, "process": handlers.parent_in_process}[kind]
    async with Scheduler(domains=[domain, handlers.work], tracing=True) as scheduler, scheduler.running():
        for _ in range(2):  # The second time in the same worker process.
            await (await parent.submit()).wait()
    attempts = [span for span in spans.named(f"process {parent.name}") if _attributes(span)["taskmill.attempt"] == 1]
    submitted, children = spans.named("submit work::on_loop"), spans.named("process work::on_loop")
    assert len(attempts) == 2
    for attempt, submission, child in zip(attempts, submitted, children, strict=True):
        assert is_child(submission, attempt)
        assert is_child(child, submission)


async def test_occurrences_of_a_series_are_linked_and_not_children(
    spans: Spans, provider: TracerProvider, taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task
    async def beat() -> None: ...

    scheduler = await taskmill_scheduler(domains=[domain], tracing=True)
    await beat.options(every=60, max_runs=2, timeout=9).submit()
    with provider.get_tracer("program").start_as_current_span("serve"):
        async with scheduler.running():
            await manual_clock.advance(120)
    occurrences = spans.named("process d::beat")
    assert len(occurrences) == 2
    for span in occurrences:
        assert is_linked(span, spans.one("submit d::beat"))
        assert span.parent is None


@pytest.mark.one_engine("the rows of a file are read")
@pytest.mark.parametrize("tracing", [True, False])
async def test_the_context_is_stored_only_if_tracing_is_on(spans: Spans, tmp_path: Path, tracing: bool) -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    async with Scheduler(tmp_path / "tasks.db", domains=[domain], tracing=tracing):
        await work.submit()
        await work.options(retry=Retry.none()).submit()
    with sqlite3.connect(tmp_path / "tasks.db") as file:
        stored = [overrides for (overrides,) in file.execute("SELECT overrides FROM taskmill_task ORDER BY id")]
    file.close()
    assert [row is not None and "traceparent" in row for row in stored] == [tracing, tracing]
    assert stored[0] is not None if tracing else stored[0] is None
    assert '"retry"' in stored[1]
    assert bool(spans.names) is tracing


async def test_without_a_provider_nothing_is_recorded_and_tasks_run() -> None:
    domain = Domain("d")

    @domain.task
    async def work() -> int:
        return 1

    async with Scheduler(domains=[domain], tracing=True) as scheduler:
        handle = await work.submit()
        await scheduler.run_until_idle()
        assert await handle.result() == 1


@pytest.mark.one_engine("it is refused before there is a store")
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "taskmill.observe.tracing", raising=False)
    monkeypatch.delattr(taskmill.observe, "tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r'tracing=True needs OpenTelemetry: pip install "taskmill\[otel\]"'):
        Scheduler(tracing=True)
    with pytest.raises(ConfigError, match="tracing must be True or False"):
        Scheduler(tracing=1)  # type: ignore[arg-type]


@pytest.mark.one_engine("nothing is submitted")
def test_opentelemetry_is_imported_only_if_tracing_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    Scheduler(tracing=False)
