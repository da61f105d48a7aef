"""The stored form of an exception: nothing in it can break the attempt, and its size is bounded."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from typing import Any

import pytest

from taskmill import Domain, Retry
from taskmill.execute import tracebacks
from taskmill.execute.tracebacks import LONGEST_TRACEBACK, details_of, own_traceback, shortened
from taskmill.execute.work import outcome_of_exception
from taskmill.model.attempt import Failed
from taskmill.testing.plugin import SchedulerFactory

one_engine = pytest.mark.one_engine("an exception is formatted before anything is stored")


def raised(wrong: BaseException) -> BaseException:
    """Return the exception with a traceback."""
    try:
        raise wrong
    except BaseException as caught:
        return caught


def traceback_of(wrong: BaseException) -> str:
    traceback = details_of(wrong).traceback
    assert traceback is not None
    return traceback


@one_engine
def test_causes_contexts_groups_and_notes_are_kept() -> None:
    def fail() -> None:
        try:
            try:
                raise KeyError("context")
            except KeyError:
                raise ValueError("cause")  # noqa: B904 - the context is what is tested
        except ValueError as cause:
            inner = raised(OSError("of the group"))
            wrong = BaseExceptionGroup("several", [inner])
            wrong.add_note("a note")
            raise wrong from cause

    with pytest.raises(ExceptionGroup) as caught:
        fail()
    text = traceback_of(caught.value)
    for word in ("KeyError: 'context'", "ValueError: cause", "OSError: of the group", "ExceptionGroup: several"):
        assert word in text
    assert "a note" in text
    assert "direct cause" in text


@one_engine
def test_a_long_traceback_is_cut_in_the_middle_and_says_by_how_much() -> None:
    wrong = raised(ValueError("begin" + "ä" * 50_000 + "end"))
    text = traceback_of(wrong)
    size = len(text.encode())
    assert LONGEST_TRACEBACK - 100 < size <= LONGEST_TRACEBACK
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("end")
    (line,) = [line for line in text.splitlines() if line.endswith("bytes were cut ...")]
    cut = int(line.split()[1].replace(",", ""))
    assert cut + size - len(f"\n{line}\n") == len("".join(_whole(wrong)).encode())


def _whole(wrong: BaseException) -> list[str]:
    return ["".join(traceback.format_exception(wrong)).rstrip()]


@one_engine
@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 102, 150, 5000])
@pytest.mark.parametrize("letter", ["x", "ä", "🙂", "\n"])
def test_no_shortened_text_is_too_long(count: int, letter: str) -> None:
    text = letter * count
    short = shortened(text, 100)
    assert len(short.encode()) <= 100
    assert short == text if len(text.encode()) <= 100 else "bytes were cut" in short


@one_engine
def test_a_very_deep_stack_is_formatted_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "MOST_FRAMES", 10)

    def even(depth: int) -> None:
        odd(depth - 1) if depth else fail()

    def odd(depth: int) -> None:
        even(depth - 1) if depth else fail()

    def fail() -> None:
        raise ValueError("deep down")

    with pytest.raises(ValueError, match="deep down") as caught:
        even(50)
    text = traceback_of(caught.value)
    assert "frames left out" in text
    assert "in fail" in text
    assert text.count("File ") < 15


class Odd(Exception):
    """An exception whose methods raise."""

    def __init__(self, raises: type[BaseException]) -> None:
        super().__init__("odd")
        self.raises = raises

    def __str__(self) -> str:
        raise self.raises

    def __repr__(self) -> str:
        raise self.raises

    def __bool__(self) -> bool:
        raise self.raises

    def __len__(self) -> int:
        raise self.raises

    def __eq__(self, other: object) -> bool:
        raise self.raises

    __hash__ = None  # type: ignore[assignment]


class OddName(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Nameless(Exception, metaclass=OddName):
    """A class whose name cannot be read."""


@one_engine
@pytest.mark.parametrize("raises", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, RecursionError])
def test_an_exception_whose_methods_raise_becomes_an_outcome(raises: type[BaseException]) -> None:
    wrong = raised(Odd(raises))
    wrong.__notes__ = 5  # type: ignore[assignment]
    outcome = outcome_of_exception(wrong)
    assert isinstance(outcome, Failed)
    assert outcome.details is not None
    assert outcome.details.exception == "Odd"
    assert outcome.details.traceback


@one_engine
def test_a_class_without_a_name_becomes_an_outcome() -> None:
    outcome = outcome_of_exception(raised(Nameless("x")))
    assert isinstance(outcome, Failed)
    assert outcome.error == "Nameless: x"
    assert outcome.details is not None
    assert outcome.details.exception == "Nameless"


@one_engine
def test_an_exception_that_is_its_own_cause_is_formatted() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert "ValueError: one" in traceback_of(raised(one))


@one_engine
def test_characters_that_no_engine_stores_are_replaced() -> None:
    details = details_of(raised(ValueError("nul \0 half \ud800")))
    assert details.traceback is not None
    assert "\0" not in details.traceback
    details.traceback.encode()


@one_engine
def test_the_location_is_the_innermost_frame_of_the_programs_own_code() -> None:
    import json

    def parse() -> None:
        json.loads("{")

    with pytest.raises(ValueError, match="Expecting") as caught:
        parse()
    details = details_of(caught.value)
    assert details.exception == "JSONDecodeError"
    assert details.location == f"test_tracebacks.py:{parse.__code__.co_firstlineno + 1} in parse"


@one_engine
def test_the_location_in_an_installed_program_is_in_its_own_package() -> None:
    folder = f"{sys.prefix}/site-packages/"
    code: dict[str, Any] = {}
    for file, text in {
        "library/client.py": "def call(): raise OSError('down')",
        "shop/orders.py": "def send(): call()",
    }.items():
        exec(compile(text, folder + file, "exec"), code)
    with pytest.raises(OSError, match="down") as caught:
        code["send"]()
    caught.value.__traceback__ = caught.tb.tb_next
    assert details_of(caught.value).location == "orders.py:1 in send"


@one_engine
def test_an_exception_that_was_never_raised_has_no_location() -> None:
    details = details_of(ValueError("made only"))
    assert details.location is None
    assert details.traceback == "ValueError: made only"


async def test_an_odd_exception_ends_its_task_and_nothing_else(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def odd(number: int) -> None:
        if number:
            raise Odd((ValueError, SystemExit)[number - 1])

    scheduler = await taskmill_scheduler(domains=[domain])
    handles = [await odd.submit(number) for number in (0, 1, 2)]
    await scheduler.run_until_idle()
    records = [await handle.record() for handle in handles]
    assert [record.state for record in records] == ["completed", "dead_letter", "dead_letter"]
    assert [len(record.errors) for record in records] == [0, 1, 1]
    assert {group.exception for group in await scheduler.error_groups()} == {"Odd"}


async def test_an_attempt_inside_middleware_leaves_the_frames_of_the_handler(
    taskmill_scheduler: SchedulerFactory,
) -> None:
    from collections.abc import AsyncIterator
    from contextlib import asynccontextmanager

    from taskmill import Context

    domain = Domain("d", retry=Retry.none())

    @asynccontextmanager
    async def around(_ctx: Context) -> AsyncIterator[None]:
        yield

    @domain.task
    async def on_loop() -> None:
        raise ValueError("no")

    @domain.task
    def in_thread() -> None:
        raise ValueError("no")

    scheduler = await taskmill_scheduler(domains=[domain], middleware=[around])
    for task in (on_loop, in_thread):
        handle = await task.submit()
        await scheduler.run_until_idle()
        (error,) = (await handle.record()).errors
        assert error.traceback is not None
        assert error.traceback.splitlines()[1].endswith(f"in {task.type.function.__name__}")


async def test_a_logged_traceback_starts_at_the_handler_and_keeps_its_causes(
    taskmill_scheduler: SchedulerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    from taskmill.cron import Cron

    domain = Domain("d", retry=Retry.none())

    def fail() -> None:
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise ValueError("no") from cause

    @domain.task
    async def on_loop() -> None:
        fail()

    @domain.task
    def in_thread() -> None:
        fail()

    scheduler = await taskmill_scheduler(domains=[domain], cron=[Cron("cron", "0 0 1 1 *", fail, 60)])
    await on_loop.submit()
    await in_thread.submit()
    await scheduler.run_until_idle()
    await scheduler.run_cron("cron")
    await scheduler.run_until_idle()
    logged = [record for record in caplog.records if record.exc_info is not None]
    first = {record.getMessage().split("(")[1].split(")")[0]: _functions(record) for record in logged}
    assert first == {"d::on_loop": ["on_loop", "fail"], "d::in_thread": ["in_thread", "fail"], "cron::cron": ["fail"]}
    assert caplog.text.count("KeyError: 'cause'\n\nThe above exception was the direct cause") == len(logged)


def _functions(record: logging.LogRecord) -> list[str]:
    """Return the functions in the traceback of a log record."""
    assert record.exc_info is not None
    return [frame.name for frame in traceback.extract_tb(record.exc_info[2])]


@one_engine
def test_an_exception_of_taskmill_itself_is_logged_with_all_its_frames() -> None:
    with pytest.raises(AttributeError) as caught:
        shortened(5)  # type: ignore[arg-type]
    ours = caught.tb.tb_next
    assert own_traceback(caught.value.with_traceback(ours)) is ours is not None
