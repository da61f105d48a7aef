"""The signature of a handler defines how arguments are stored and how they reach the handler."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from taskmill import Context, Domain, HistoryRecord, Scheduler, Submission, SubmissionError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = "yes"


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


@dataclass
class Shape:
    name: str
    points: list[Point]
    centre: Point | None = None
    notes: dict[str, str] = field(default_factory=dict)


class Photo(msgspec.Struct):
    path: Path
    taken_at: datetime
    size: int = 0


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict):
    deep: bool
    depth: int


NOON = datetime(2030, 5, 6, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))

KINDS: list[tuple[Any, Any]] = [
    (str, "päth/🙂\n\0"),
    (int, -(2**63)),
    (int, 2**63 - 1),
    (int, 2**70 + 1),
    (float, 0.1 + 0.2),
    (float, -0.0),
    (float, 5e-324),
    (float, 3),
    (bool, True),
    (bytes, b"\x00\xff"),
    (None, None),
    (Any, {"a": [1, 2.5, None, True, "x"]}),
    (datetime, NOON),
    (datetime, datetime(2030, 1, 1, 12)),
    (date, date(2030, 1, 1)),
    (time, time(12, 30)),
    (timedelta, timedelta(days=1, microseconds=3)),
    (UUID, UUID(int=7)),
    (Decimal, Decimal("1.10")),
    (Path, Path("photos/ä.jpg")),
    (PurePosixPath, PurePosixPath("/a/b")),
    (list[Path], [Path("a"), Path("b")]),
    (dict[str, Path | None], {"a": Path("x"), "b": None}),
    (Colour, Colour.BLUE),
    (Level, Level.HIGH),
    (Word, Word.YES),
    (Literal["fast", "slow"], "slow"),
    (Point, Point(1, 2)),
    (Shape, Shape("l", [Point(0), Point(3, 4)], Point(1), {"k": "v"})),
    (Photo, Photo(Path("a.jpg"), NOON, 3)),
    (list[Photo], [Photo(Path("a.jpg"), NOON)]),
    (Cat | Dog, Dog(["sit"])),
    (Pair, Pair(1, "r")),
    (Options, {"deep": True, "depth": 2}),
    (set[int], {3, 1, 2}),
    (frozenset[str], frozenset({"a", "b"})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (dict[int, list[Point]], {1: [Point(1)], 2: []}),
    (dict[str, dict[str, list[int | None]]], {"a": {"b": [1, None]}}),
    (int | str, "text"),
    (Point | None, None),
    (Mapping[str, int], {"a": 1}),
]


@pytest.mark.parametrize("run_in", ["loop", "thread"])
@pytest.mark.parametrize(("kind", "value"), KINDS, ids=[f"{i}-{kind}" for i, (kind, _) in enumerate(KINDS)])
async def test_an_argument_reaches_the_handler_as_its_annotation_says(kind: Any, value: Any, run_in: str) -> None:
    received: list[Any] = []
    domain = Domain("kinds")

    def on_thread(value: Any) -> Any:
        received.append(value)
        return value

    async def on_loop(value: Any) -> Any:
        received.append(value)
        return value

    handler: Callable[..., Any] = on_loop if run_in == "loop" else on_thread
    handler.__annotations__ = {"value": kind, "return": kind}
    task = domain.task(name="take")(handler)
    async with Scheduler(domains=[domain]) as scheduler:
        handles = [
            await task.submit(value),
            await task.submit(value=value),
            await scheduler.submit(Submission("kinds::take", {"value": value})),
        ]
        await scheduler.run_until_idle(timeout=10)
        results = [await handle.result() for handle in handles]
    assert received == [value] * 3
    assert [type(one) for one in received] == [type(results[0])] * 3
    assert results == [value] * 3


async def test_a_record_shows_payload_and_result_as_plain_json() -> None:
    domain = Domain("plain")

    @domain.task
    async def move(shape: Shape, to: Path, colour: Colour = Colour.RED) -> Point:
        return shape.points[0]

    async with Scheduler(domains=[domain]) as scheduler:
        handle = await move.submit(Shape("l", [Point(1, 2)]), to=Path("a"), colour=Colour.BLUE)
        shape: dict[str, Any] = {"name": "l", "points": [{"x": 1, "y": 2}], "centre": None, "notes": {}}
        assert (await handle.record()).payload == {"shape": shape, "to": "a", "colour": "blue"}
        await scheduler.run_until_idle(timeout=10)
        record = await handle.record()
        assert isinstance(record, HistoryRecord)
        assert record.result == {"x": 1, "y": 2}
        assert await handle.result() == Point(1, 2)


async def test_every_kind_of_parameter_round_trips() -> None:
    calls: list[Any] = []
    domain = Domain("parameters")

    @domain.task
    async def everything(
        first: int, /, second: Point, *rest: int, only: date, maybe: str = "m", **others: Path
    ) -> None:
        calls.append((first, second, rest, only, maybe, others))

    @domain.task
    async def only_stars(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))

    @domain.task
    def unannotated(ctx: Context, /, a, b=7, *rest, c, **others):  # type: ignore[no-untyped-def]
        calls.append((ctx.attempt, a, b, rest, c, others))

    @domain.task
    async def nothing() -> None:
        calls.append(())

    day = date(2030, 1, 1)
    async with Scheduler(domains=[domain], max_concurrency=1) as scheduler:
        await everything.submit(1, Point(2), 3, 4, only=day, extra=Path("e"))
        await everything.submit(1, second=Point(2), only=day, maybe="said")
        await only_stars.submit()
        await only_stars.submit(1, "a", [None], name={"x": 1.5})
        await unannotated.submit([1, {"k": None}], c="c")
        await unannotated.submit(1, 2, 3, c=4, d=5)
        await nothing.submit()
        await scheduler.run_until_idle(timeout=10)
    assert calls == [
        (1, Point(2), (3, 4), day, "m", {"extra": Path("e")}),
        (1, Point(2), (), day, "said", {}),
        ((), {}),
        ((1, "a", [None]), {"name": {"x": 1.5}}),
        (1, [1, {"k": None}], 7, (), "c", {}),
        (1, 1, 2, (3,), 4, {"d": 5}),
        (),
    ]


@pytest.mark.one_engine("no store is opened")
async def test_stars_with_annotations_are_checked_one_by_one() -> None:
    domain = Domain("stars")

    @domain.task
    async def add(*numbers: int, **names: date) -> int:
        return sum(numbers)

    with pytest.raises(SubmissionError, match="numbers"):
        add.prepare(1, "two")  # type: ignore[arg-type]
    with pytest.raises(SubmissionError, match="names"):
        add.prepare(1, due="soon")  # type: ignore[arg-type]


async def test_a_default_that_was_not_said_is_the_handlers_at_the_time_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    old, new = Domain("d"), Domain("d")

    @old.task(name="work")
    async def before(a: int, b: int = 1) -> int:
        return b

    @new.task(name="work")
    async def after(a: int, b: int = 2, c: int = 3) -> int:
        return b * 10 + c

    async with Scheduler(path, domains=[old]):
        unsaid = await before.submit(0)
        said = await before.submit(0, b=1)
    async with Scheduler(path, domains=[new]) as scheduler:
        await scheduler.run_until_idle(timeout=10)
        ended = {record.id: record.result for record in await scheduler.history()}
        assert ended == {unsaid.id: 23, said.id: 13}


@pytest.mark.one_engine("no store is opened")
def test_calling_a_task_calls_the_plain_function() -> None:
    domain = Domain("plain")

    @domain.task
    def add(a: int, b: int = 1) -> int:
        """Return the sum."""
        return a + b

    @domain.task(name="other")
    async def later(ctx: Context | None, a: object) -> object:
        return a

    marker = object()
    assert add(1) == 2
    assert add(1, b=5) == 6
    unchecked: Any = add
    assert unchecked("not", "checked") == "notchecked"
    coroutine = later(None, marker)
    assert inspect.iscoroutine(coroutine)
    assert asyncio.run(coroutine) is marker
    assert (add.__name__, add.__doc__, add.name) == ("add", "Return the sum.", "plain::add")
    assert later.name == "plain::other"
    with pytest.raises(TypeError):
        unchecked()


async def test_changing_what_was_given_afterwards_changes_nothing() -> None:
    domain = Domain("copies")
    tags = {"a": "before"}

    @domain.task
    async def work(values: list[int]) -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        values = [1]
        prepared = work.options(tags=tags).prepare(values)
        by_name = Submission("copies::work", {"values": values}, tags=tags)
        tags["a"] = "after"
        values.append(2)
        handle = await scheduler.submit(prepared)
        record = await handle.record()
        assert record.payload == {"values": [1]}
        assert record.tags == {"a": "before"}
        assert (await (await scheduler.submit(by_name)).record()).tags == {"a": "before"}
