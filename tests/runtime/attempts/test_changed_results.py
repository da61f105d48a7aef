"""A result is stored as JSON. Its return annotation gives it back; without one it is a plain JSON value."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import pytest

from taskmill import Domain, Scheduler


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


ID = uuid.UUID(int=1)
RESULTS: list[tuple[Any, Any, Any]] = [
    (None, None, None),
    ([1, "a", {"b": None}], list[Any], [1, "a", {"b": None}]),
    ((1, 2), tuple[int, int], [1, 2]),
    ({1}, set[int], [1]),
    ({1: "a"}, dict[int, str], {"1": "a"}),
    (datetime(2030, 1, 1, tzinfo=UTC), datetime, "2030-01-01T00:00:00Z"),
    (date(2030, 1, 1), date, "2030-01-01"),
    (ID, uuid.UUID, str(ID)),
    (b"a", bytes, "YQ=="),
    (PurePosixPath("a/b"), PurePosixPath, "a/b"),
    (Colour.RED, Colour, "red"),
    (Point(1), Point, {"x": 1}),
]


def returning(value: Any, annotation: Any) -> Callable[[], Any]:
    def give() -> Any:
        return value

    give.__annotations__ = {} if annotation is Any else {"return": annotation}
    return give


async def result_of(value: Any, annotation: Any) -> tuple[Any, Any]:
    """Return what ``result()`` and the record give back for a handler with this return annotation."""
    domain = Domain("results")
    task = domain.task(name="give")(returning(value, annotation))
    async with Scheduler(domains=[domain]) as scheduler, scheduler.running():
        handle = await task.submit()
        return await handle.result(), (await handle.wait()).result


@pytest.mark.parametrize(("value", "annotation", "plain"), RESULTS, ids=[type(each[0]).__name__ for each in RESULTS])
async def test_the_annotation_gives_a_result_back_and_without_one_it_is_plain_json(
    value: Any, annotation: Any, plain: Any
) -> None:
    assert await result_of(value, annotation) == (value, plain)
    assert await result_of(value, Any) == (plain, plain)


async def test_a_result_that_contradicts_its_annotation_is_returned_as_its_json() -> None:
    assert await result_of("x", int) == ("x", "x")
