"""A parameter without an annotation takes only values that JSON preserves; otherwise the error names the annotation."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from taskmill import Domain, Scheduler, Submission, SubmissionError


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Shade(StrEnum):
    DARK = "dark"


@dataclass
class Point:
    x: int


class Pair(NamedTuple):
    left: int


CHANGED: list[tuple[Any, str]] = [
    (b"abc", "bytes"),
    ((1, "a"), "tuple[int, str]"),
    ((1, 2, 3, 4, 5), "tuple[int, ...]"),
    ((), "tuple[()]"),
    ({1, 2}, "set[int]"),
    (frozenset({"a"}), "frozenset[str]"),
    ({1: "a"}, "dict[int, str]"),
    ({"a": {2: None}}, "dict[str, dict[int, None]]"),
    ([1, (2, 3)], "list[int | tuple[int, int]]"),
    (Decimal("1.10"), "Decimal"),
    (datetime(2030, 1, 1, tzinfo=UTC), "datetime"),
    (date(2030, 1, 1), "date"),
    (timedelta(seconds=5), "timedelta"),
    (UUID(int=7), "UUID"),
    (Path("a"), "Path"),
    (Colour.RED, "Colour"),
    (Point(1), "Point"),
    (Pair(1), "Pair"),
    ([{"deep": [b"x"]}], "list[dict[str, list[bytes]]]"),
    (Level.LOW, "Level"),
    (Shade.DARK, "Shade"),
    (Counter("ab"), "dict[str, int]"),
    (OrderedDict(a=1), "dict[str, int]"),
]
KEPT: list[Any] = [None, True, 0, -5, 2**53, 1.5, "text", [], {}, [1, [2.5, None]], {"a": {"b": ["c"]}}]
KEPT += ["päth"]

domain = Domain("loose")


@domain.task
async def bare(value) -> Any:  # type: ignore[no-untyped-def]
    return value


@domain.task
async def anything(value: Any) -> Any:
    return value


@domain.task
async def an_object(value: object) -> Any:
    return value


@domain.task
async def starred(*value: Any) -> Any:
    return list(value)


@domain.task
async def named(**value: Any) -> Any:
    return value


@domain.task
async def in_a_list(value: list[Any]) -> Any:
    return value


@domain.task
async def in_a_dict(value: dict[str, Any]) -> Any:
    return value


@pytest.mark.one_engine("it is refused before the store is asked")
@pytest.mark.parametrize("task", [bare, anything, an_object], ids=lambda task: task.name)
@pytest.mark.parametrize(("value", "annotation"), CHANGED, ids=[annotation for _, annotation in CHANGED])
def test_a_value_that_json_would_change_is_refused_with_the_annotation_to_use(
    task: Any, value: Any, annotation: str
) -> None:
    with pytest.raises(SubmissionError) as refusal:
        task.prepare(value)
    said = str(refusal.value)
    assert said.startswith(f"{task.name}: argument 'value': a")
    assert said.endswith(f"annotate it, for example as value: {annotation}")


@pytest.mark.one_engine("it is refused before the store is asked")
@pytest.mark.parametrize(("value", "annotation"), CHANGED, ids=[annotation for _, annotation in CHANGED])
def test_so_it_is_inside_stars_and_containers_of_any(value: Any, annotation: str) -> None:
    cases: tuple[Callable[[], object], ...] = (
        lambda: starred.prepare(1, value),
        lambda: named.prepare(one=1, two=value),
        lambda: in_a_list.prepare([1, value]),
        lambda: in_a_dict.prepare({"one": value}),
    )
    for prepare in cases:
        with pytest.raises(SubmissionError, match=r"argument 'value': an? \w+ .*annotate it"):
            prepare()
    assert annotation


@pytest.mark.one_engine("it is refused before the store is asked")
def test_the_error_says_what_would_have_happened() -> None:
    with pytest.raises(SubmissionError, match="a tuple would come back as a list"):
        bare.prepare([{"a": (1, 2)}])
    with pytest.raises(SubmissionError, match="keys are not strings"):
        bare.prepare({"a": {1: 2}})
    with pytest.raises(SubmissionError, match="a bytes would come back as a str"):
        bare.prepare(b"")


async def test_a_payload_by_name_is_checked_as_well() -> None:
    async with Scheduler(domains=[domain]) as scheduler:
        with pytest.raises(SubmissionError, match="tuple"):
            await scheduler.submit(Submission("loose::bare", {"value": (1, 2)}))
        assert await scheduler.count() == 0


async def test_plain_json_values_are_kept() -> None:
    async with Scheduler(domains=[domain]) as scheduler:
        handles = [await task.submit(value) for task in (bare, anything, an_object) for value in KEPT]
        handles += [await starred.submit(*KEPT), await named.submit(a=KEPT[0], b=KEPT[-1])]
        await scheduler.run_until_idle(timeout=20)
        results = [await handle.result() for handle in handles]
    assert results == [*KEPT, *KEPT, *KEPT, KEPT, {"a": KEPT[0], "b": KEPT[-1]}]


@pytest.mark.one_engine("no store is opened")
def test_an_annotation_that_the_error_names_is_accepted() -> None:
    values = [(each, said) for each, said in CHANGED if said != "tuple[()]"]
    for number, (value, annotation) in enumerate(values):

        async def take(value: Any) -> None: ...

        take.__annotations__ = {"value": eval(annotation, globals())}
        domain.task(name=f"annotated-{number}")(take).prepare(value)


@dataclass
class Job:
    name: str
    extra: dict = field(default_factory=dict)  # type: ignore[type-arg]
    after: Job | None = None


class Note(msgspec.Struct, rename="camel"):
    any_text: Any


class Named(NamedTuple):
    value: Any


class Words(TypedDict):
    value: Any


LOOSE: list[tuple[Any, Any, str]] = [
    (dict | None, {"a": (1, 2)}, "value: dict[str, tuple[int, int]]"),
    (dict | None, {1: 2}, "value: dict[int, int]"),
    (dict, Point(1), "value: Point"),
    (list | None, [b"x"], "value: list[bytes]"),
    (list[Any] | None, [{1}], "value: list[set[int]]"),
    (list[Any] | None, (1, 2), "value: tuple[int, int]"),
    (dict[str, Any] | str, {"a": Level.LOW}, "value: dict[str, Level]"),
    (Mapping[str, Any], {"a": b"x"}, "value: dict[str, bytes]"),
    (Sequence[Any], (1, 2), "value: tuple[int, int]"),
    (Sequence[Any], [date(2030, 1, 1)], "value: list[date]"),
    (tuple, (b"x", 1), "value: tuple[bytes, int]"),
    (tuple[Any, ...], (b"x",), "value: tuple[bytes]"),
    (tuple[int, Any], (1, b"x"), "value: tuple[int, bytes]"),
    (set, {b"x"}, "value: set[bytes]"),
    (Annotated[Any, "noted"], (1,), "value: tuple[int]"),
    (Any | None, (1,), "value: tuple[int]"),
    (dict[int, list[Any]], {1: [(2,)]}, "value: dict[int, list[tuple[int]]]"),
    (Job, Job("a", {"x": (1,)}), "extra: dict[str, tuple[int]]"),
    (list[Job], [Job("a"), Job("b", after=Job("c", {"x": b""}))], "extra: dict[str, bytes]"),
    (Job, {"name": "a", "extra": {"x": (1,)}}, "extra: dict[str, tuple[int]]"),
    (Note, Note((1,)), "any_text: tuple[int]"),
    (Note, {"anyText": (1,)}, "any_text: tuple[int]"),
    (Named, Named((1,)), "value: tuple[int]"),
    (Words, {"value": (1,)}, "value: tuple[int]"),
]


def _taking(annotation: Any) -> Any:
    async def take(value: Any) -> Any: ...

    take.__annotations__ = {"value": annotation}
    return Domain("loose").task(take)


@pytest.mark.one_engine("it is refused before the store is asked")
@pytest.mark.parametrize(("annotation", "value", "advice"), LOOSE, ids=[f"{one}-{two}" for one, two, _ in LOOSE])
def test_a_part_that_the_annotation_leaves_loose_is_checked_as_well(annotation: Any, value: Any, advice: str) -> None:
    with pytest.raises(SubmissionError) as refusal:
        _taking(annotation).prepare(value)
    said = str(refusal.value)
    assert said.startswith("loose::take: argument 'value': a ")
    assert said.endswith(f"annotate it, for example as {advice}")


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (dict | None, {"a": [1, None]}),
        (dict | None, OrderedDict(a=1)),
        (dict | None, None),
        (dict[str, Any] | str, "text"),
        (Sequence[Any], [1, "a"]),
        (tuple, (1, "a")),
        (tuple, [1, "a"]),
        (tuple[datetime, Any], (datetime(2030, 1, 1, tzinfo=UTC), 1)),
        (dict[Level, Any], {Level.LOW: 1}),
        (Job, Job("a", {"x": [1]}, Job("b"))),
        (Job, Job(Shade.DARK)),
        (Job, {"name": "a"}),
        (list[Note], [Note({"a": 1})]),
        (list[int], (1, 2)),
    ],
)
def test_a_part_with_an_annotation_is_taken_as_that(annotation: Any, value: Any) -> None:
    _taking(annotation).prepare(value)


@pytest.mark.one_engine("it is refused before the store is asked")
def test_the_advice_for_stars_is_about_each_argument() -> None:
    with pytest.raises(SubmissionError, match=r"argument 'value'.* as \*value: int \| tuple\[int\]$"):
        starred.prepare(1, (2,))
    with pytest.raises(SubmissionError, match=r"argument 'value'.* as \*\*value: int \| set\[int\]$"):
        named.prepare(a=1, z={3})
    fitting = Domain("loose")

    @fitting.task
    async def follows(*value: int | tuple[int], **words: int | set[int]) -> None: ...

    follows.prepare(1, (2,), a=1, z={3})


async def test_a_value_from_a_caller_without_the_handler_is_read_by_the_annotation(tmp_path: Path) -> None:
    remote = Domain("remote")

    @remote.task
    async def take(at: datetime, ids: set[int], pair: tuple[int, str]) -> list[str]:
        return [at.isoformat(), str(sorted(ids)), str(pair)]

    given = {"at": datetime(2030, 1, 2, tzinfo=UTC), "ids": {1, 2}, "pair": (1, "a")}
    async with Scheduler(tmp_path / "tasks.db") as elsewhere:
        handle = await elsewhere.submit(Submission("remote::take", given, check=False))
    async with Scheduler(tmp_path / "tasks.db", domains=[remote]) as scheduler:
        await scheduler.run_until_idle(timeout=20)
        result = await take.handle(handle.id).result()
    assert result == ["2030-01-02T00:00:00+00:00", "[1, 2]", "(1, 'a')"]


@domain.task
async def text_and_bytes(text: str = "", data: bytes = b"") -> None: ...


@pytest.mark.one_engine("it is refused before the store is asked")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"text": b"abc"}, "argument 'text': expected str, got bytes"),
        ({"text": bytearray(b"abc")}, "argument 'text': expected str, got bytearray"),
        ({"data": "YWJj"}, "argument 'data': expected bytes, got str"),
    ],
)
def test_bytes_are_no_text_and_text_is_no_bytes(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SubmissionError, match=said):
        text_and_bytes.prepare(**arguments)
    text_and_bytes.prepare("abc", b"abc")
