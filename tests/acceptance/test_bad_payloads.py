"""A payload that does not fit its handler, or is too large, is refused, and nothing is stored."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from taskmill import Domain, PayloadTooLarge, Retry, Scheduler, Submission, SubmissionError, TaskFailed
from tests.acceptance.box import (
    MIB,
    NAN,
    SURROGATE,
    Parcel,
    Size,
    anything,
    put,
    refused,
    ship,
    untyped,
    weigh,
    weigh_all,
    weigh_maybe,
)


@pytest.mark.parametrize(
    ("submit", "names"),
    [
        pytest.param(lambda: untyped(put).submit(count=2), "path", id="missing"),
        pytest.param(lambda: untyped(put).submit("a", 1, 2), "positional", id="one too many"),
        pytest.param(lambda: untyped(put).submit("a", colour="red"), "colour", id="unknown keyword"),
        pytest.param(lambda: untyped(put).submit("a", path="b"), "path", id="given twice"),
        pytest.param(lambda: untyped(put).submit(7), "path", id="int for str"),
        pytest.param(lambda: untyped(put).submit(None), "path", id="None for str"),
        pytest.param(lambda: untyped(put).submit("a", count="many"), "count", id="str for int"),
        pytest.param(lambda: untyped(put).submit("a", count=1.5), "count", id="float for int"),
        pytest.param(lambda: untyped(put).submit("a", count=True), "count", id="bool for int"),
        pytest.param(lambda: untyped(weigh).submit(True), "grams", id="bool for float"),
        pytest.param(lambda: untyped(weigh).submit(NAN), "grams", id="NaN"),
        pytest.param(lambda: untyped(weigh).submit(math.inf), "grams", id="infinity"),
        pytest.param(lambda: untyped(weigh_all).submit([1.0, NAN]), "grams", id="NaN in a list"),
        pytest.param(lambda: untyped(weigh_maybe).submit(NAN), "grams", id="NaN where None is allowed"),
        pytest.param(lambda: untyped(anything).submit(NAN), "'value'", id="NaN for an unannotated parameter"),
        pytest.param(
            lambda: untyped(anything).submit({"x": [-math.inf]}), "'value'", id="nested infinity, unannotated"
        ),
        pytest.param(lambda: untyped(ship).submit({"label": "a"}), "size", id="nested missing"),
        pytest.param(
            lambda: untyped(ship).submit(Parcel("a", Size(1, cast("int", "wide")))),
            "parcel.size.height",
            id="nested wrong type",
        ),
        pytest.param(lambda: untyped(ship).submit("box"), "parcel", id="text for a dataclass"),
        pytest.param(lambda: untyped(put).submit(SURROGATE), "path", id="lone surrogate"),
        pytest.param(lambda: untyped(anything).submit(object()), "'value'", id="an object"),
        pytest.param(lambda: untyped(anything).submit({1: {(): 2}}), "'value'", id="a key JSON has no word for"),
    ],
)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_payload_that_does_not_fit_the_handler_is_refused(
    scheduler: Scheduler, path: Path, submit: Callable[[], Any], names: str
) -> None:
    assert scheduler
    await refused(path, submit, SubmissionError, names)


@pytest.mark.parametrize(
    ("payload", "names"),
    [
        ({}, "path"),
        ({"path": 7}, "path"),
        ({"path": "a", "colour": "red"}, "colour"),
        ({"path": "a", "count": NAN}, "count"),
        ({"path": object()}, "path"),
    ],
)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_payload_by_name_is_held_to_the_handlers_signature(
    scheduler: Scheduler, path: Path, payload: dict[str, Any], names: str
) -> None:
    await refused(path, lambda: scheduler.submit(Submission("box::put", payload)), SubmissionError, names)


async def test_a_payload_that_contains_itself_is_refused(scheduler: Scheduler, path: Path) -> None:
    assert scheduler
    knot: list[Any] = []
    knot.append(knot)
    await refused(path, lambda: anything.submit(knot), SubmissionError, "box::anything")


def _text_of_payload_size(size: int, letter: str = "a") -> str:
    frame = len(json.dumps({"path": ""}, separators=(",", ":")))
    return letter * ((size - frame) // len(letter.encode()))


@pytest.mark.parametrize("letter", ["a", "é"])
async def test_exactly_one_mebibyte_of_payload_passes(scheduler: Scheduler, letter: str) -> None:
    text = _text_of_payload_size(MIB, letter)
    handle = await put.submit(text)
    await scheduler.run_until_idle(timeout=30)
    assert await handle.result() == len(text)


@pytest.mark.parametrize("letter", ["a", "é"])
async def test_one_byte_more_than_a_mebibyte_is_too_large(scheduler: Scheduler, path: Path, letter: str) -> None:
    text = _text_of_payload_size(MIB, letter) + "ab"
    await refused(path, lambda: put.submit(text[1:] if letter == "a" else text), PayloadTooLarge, "box::put")
    by_name = Submission("box::put", {"path": text})
    await refused(path, lambda: scheduler.submit(by_name), PayloadTooLarge, "box::put")


async def test_a_result_beyond_a_mebibyte_fails_the_task_and_says_so(scheduler: Scheduler) -> None:
    domain = Domain("big")

    @domain.task(retry=Retry.none())
    async def grow(size: int) -> str:
        return "a" * size

    async with Scheduler(domains=[domain]) as other:
        fits = await grow.submit(MIB - 2)
        exceeds = await grow.submit(MIB - 1)
        await other.run_until_idle(timeout=10)
        assert len(await fits.result()) == MIB - 2
        with pytest.raises(TaskFailed, match="1,048,577 bytes"):
            await exceeds.result()
    assert scheduler


@pytest.mark.parametrize("payload", [["a"], "a", 5, [("path", "a")], b"{}"])
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_payload_by_name_must_be_a_mapping(payload: Any) -> None:
    with pytest.raises(SubmissionError, match="payload"):
        Submission("box::put", payload)


async def test_an_unknown_argument_by_name_is_refused_with_the_parameters_of_the_task() -> None:
    domain = Domain("kinds")

    @domain.task
    async def none() -> None: ...

    @domain.task
    async def one(path: str) -> None: ...

    @domain.task
    async def two(path: str, count: int = 1) -> None: ...

    expected = {
        "none": "unknown arguments 'pth', 'b'; the task has no parameters",
        "one": "unknown arguments 'pth', 'b'; its parameter is 'path'",
        "two": "unknown arguments 'pth', 'b'; its parameters are 'path', 'count'",
    }
    async with Scheduler(domains=[domain]) as other:
        for name, text in expected.items():
            with pytest.raises(SubmissionError) as refusal:
                await other.submit(Submission(f"kinds::{name}", {"pth": "x", "b": 1}))
            assert str(refusal.value) == f"kinds::{name}: {text}"
        with pytest.raises(SubmissionError, match="unknown argument 'extra'; its parameter is 'path'"):
            await other.submit(Submission("kinds::one", {"path": "x", "extra": 1}))
        assert await other.tasks() == []
