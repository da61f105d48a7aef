"""Defining and submitting work: what a handler's signature means, and which of several options counts."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from taskmill import (
    ConfigError,
    Context,
    Domain,
    Handle,
    HistoryRecord,
    Priority,
    Retry,
    Scheduler,
    Submission,
    SubmissionError,
    TaskFailed,
    UnknownTaskType,
)
from taskmill.store.sqlite.connection import sqlite_module
from taskmill.testing import ManualClock

if TYPE_CHECKING:
    import sqlite3
else:
    # The library the store uses: two of them in one process break each other's locks.
    sqlite3 = importlib.import_module(sqlite_module())


# Payloads


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


def test_calling_a_task_calls_the_plain_function() -> None:
    domain = Domain("plain")

    @domain.task
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    @domain.task(name="other")
    async def later(ctx: Context | None, a: object) -> object:
        return a

    marker = object()
    assert add(1) == 2
    assert add(1, b=5) == 6
    assert add("not", "checked") == "notchecked"
    coroutine = later(None, marker)
    assert inspect.iscoroutine(coroutine)
    assert asyncio.run(coroutine) is marker
    assert (add.__name__, add.__doc__, add.name) == ("add", "Adds.", "plain::add")
    assert later.name == "plain::other"
    with pytest.raises(TypeError):
        add()


async def test_options_do_not_change_the_original() -> None:
    domain = Domain("views")

    @domain.task(tags={"a": "type"})
    async def work() -> None: ...

    async with Scheduler(domains=[domain]):
        urgent = work.options(priority=1, tags={"b": "call"})
        more = urgent.options(group="g", tags={"c": "again"})
        records = [await (await task.submit()).record() for task in (work, urgent, more, work)]
    assert [record.priority for record in records] == [128, 1, 1, 128]
    assert [record.group for record in records] == ["", "", "g", ""]
    assert [dict(record.tags) for record in records] == [
        {"a": "type"},
        {"a": "type", "b": "call"},
        {"a": "type", "b": "call", "c": "again"},
        {"a": "type"},
    ]
    assert work.name == more.name


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


# Precedence

LEVELS = ("scheduler", "domain", "type", "call")
AT_LEVELS: dict[str, tuple[str, ...]] = {
    "priority": ("domain", "type", "call"),
    "group": ("domain", "type", "call"),
    "ttl": LEVELS,
    "retry": LEVELS,
    "timeout": ("domain", "type", "call"),
    "label": ("type", "call"),
    "key": ("type", "call"),
    "on_duplicate": ("type", "call"),
}
VALUES: dict[str, dict[str, Any]] = {
    "priority": {"domain": 10, "type": 20, "call": 30},
    "group": {"domain": "of domain", "type": "of type", "call": "of call"},
    "ttl": {"scheduler": 100, "domain": timedelta(seconds=200), "type": 300.5, "call": 400},
    "retry": {level: Retry.constant(n, 0) for n, level in enumerate(LEVELS)},
    "timeout": {"domain": 1, "type": 2, "call": 4},
    "label": {"type": "of type", "call": "of call"},
    "key": {"type": "of type", "call": "of call"},
    "on_duplicate": {"type": "reject", "call": "skip"},
}
BUILT_IN: dict[str, Any] = {"priority": 128, "group": "", "ttl": None, "retry": 3, "label": None, "key": None}


def _subsets(levels: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [tuple(level for bit, level in enumerate(levels) if number >> bit & 1) for number in range(2 ** len(levels))]


def _scheduler_setting(option: str) -> str:
    return {"ttl": "default_ttl"}.get(option, option)


async def _observed(
    option: str, given: Mapping[str, Any], seen: Callable[[Scheduler, ManualClock, Handle[Any]], Any]
) -> Any:
    """Submit a task that fails or hangs, with ``option`` given at some levels, and see what came of it."""
    clock = ManualClock()

    def at(level: str, name: str = option) -> dict[str, Any]:
        return {name: given[level]} if level in given else {}

    domain = Domain("levels", **at("domain"))

    @domain.task(**at("type"))
    async def work() -> None:
        if option == "timeout":
            await asyncio.Event().wait()
        raise RuntimeError("no")

    extra: dict[str, Any] = {"retry": Retry.none()} if option == "timeout" else {}
    settings = {**extra, **at("scheduler", _scheduler_setting(option))}
    async with Scheduler(domains=[domain], clock=clock, **settings) as scheduler:
        handle = await work.options(**at("call")).submit()
        return await seen(scheduler, clock, handle)


@pytest.mark.parametrize(
    ("option", "levels"),
    [
        (option, levels)
        for option in ("priority", "group", "ttl", "label", "key")
        for levels in _subsets(AT_LEVELS[option])
    ],
)
async def test_the_most_specific_level_that_says_something_wins(option: str, levels: tuple[str, ...]) -> None:
    async def seen(scheduler: Scheduler, clock: ManualClock, handle: Handle[Any]) -> Any:
        record = await scheduler.get(handle.id)
        if option != "ttl":
            return getattr(record, option)
        return record.expires_at and (record.expires_at - clock.now()).total_seconds()

    given = {level: VALUES[option][level] for level in levels}
    expected = given[levels[-1]] if levels else BUILT_IN[option]
    if isinstance(expected, timedelta):
        expected = expected.total_seconds()
    assert await _observed(option, given, seen) == expected


@pytest.mark.parametrize("levels", _subsets(AT_LEVELS["retry"]))
async def test_the_most_specific_retry_policy_wins(levels: tuple[str, ...]) -> None:
    async def seen(scheduler: Scheduler, clock: ManualClock, handle: Handle[Any]) -> int:
        await scheduler.run_until_idle()
        return (await scheduler.get(handle.id)).retries

    given = {level: VALUES["retry"][level] for level in levels}
    expected = LEVELS.index(levels[-1]) if levels else BUILT_IN["retry"]
    assert await _observed("retry", given, seen) == expected


@pytest.mark.parametrize("levels", _subsets(AT_LEVELS["timeout"]))
async def test_the_most_specific_timeout_wins(levels: tuple[str, ...]) -> None:
    async def seen(scheduler: Scheduler, clock: ManualClock, handle: Handle[Any]) -> float | None:
        ended: float | None = None
        async with scheduler.running():
            for second in range(6):
                await clock.advance(0 if second == 0 else 1)
                if isinstance(await scheduler.get(handle.id), HistoryRecord):
                    ended = second
                    break
            await scheduler.stop(grace=0)
        return ended

    given = {level: VALUES["timeout"][level] for level in levels}
    expected = VALUES["timeout"][levels[-1]] if levels else None
    assert await _observed("timeout", given, seen) == expected


async def test_a_more_specific_level_can_take_a_limit_back() -> None:
    domain = Domain("limits", ttl=5, timeout=5, group="g")

    @domain.task(label="l", key="k")
    async def work() -> None: ...

    @domain.task(ttl=None, group=None)
    async def free() -> None: ...

    async with Scheduler(domains=[domain], default_ttl=7):
        none = work.options(ttl=None, group=None, label=None, key=None)
        record = await (await none.submit()).record()
        assert (record.expires_at, record.group, record.label, record.key) == (None, "", None, None)
        record = await (await free.submit()).record()
        assert (record.expires_at, record.group) == (None, "")


async def test_the_call_decides_about_duplicates_before_the_type_does() -> None:
    domain = Domain("duplicates")

    @domain.task(key="k", on_duplicate="reject")
    async def strict() -> None: ...

    @domain.task(key="k")
    async def lenient() -> None: ...

    async with Scheduler(domains=[domain]):
        await strict.submit()
        with pytest.raises(SubmissionError, match="'k'"):
            await strict.submit()
        assert (await strict.options(on_duplicate="skip").submit()).kind == "duplicate"
        await lenient.submit()
        assert (await lenient.submit()).kind == "duplicate"
        with pytest.raises(SubmissionError, match="'k'"):
            await lenient.options(on_duplicate="reject").submit()


@pytest.mark.parametrize("computed", [False, True])
async def test_tags_of_all_levels_merge_and_the_more_specific_wins_per_name(computed: bool) -> None:
    domain = Domain("tagged", tags={"a": "domain", "b": "domain", "c": "domain"})
    of_type = {"b": "type", "c": "type", "d": "type"}
    tags: Any = (lambda: of_type) if computed else of_type

    @domain.task(tags=tags)
    async def work() -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        handles = [
            await work.options(tags={"c": "call", "e": "call"}).submit(),
            await scheduler.submit(Submission("tagged::work", {}, tags={"c": "call", "e": "call"})),
        ]
        for handle in handles:
            expected = {"a": "domain", "b": "type", "c": "call", "d": "type", "e": "call"}
            assert (await handle.record()).tags == expected
        assert await scheduler.tag_values("c") == {"call": 2}


# Options as functions of the arguments


async def test_functions_get_the_handlers_arguments_however_it_is_submitted() -> None:
    domain = Domain("functions")

    @domain.task(
        key=lambda bucket, path, size: f"{bucket}/{path}/{size}",
        group=lambda bucket: f"s3://{bucket}",
        label=lambda path, bucket: f"{path} of {bucket}",
        tags=lambda size: {"big": "yes" if size > 10 else "no"},
        priority=lambda path: Priority.HIGH if path.name == "now" else Priority.LOW,
    )
    async def store(ctx: Context, bucket: str, path: Path, *, size: int = 3) -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        handles = [
            await store.submit("b", Path("now")),
            await store.submit(path=Path("later"), size=11, bucket="b"),
            await scheduler.submit(Submission("functions::store", {"bucket": "c", "path": "now", "size": 12})),
        ]
        seen = [await handle.record() for handle in handles]
    assert [(record.key, record.group, record.label, dict(record.tags), record.priority) for record in seen] == [
        ("b/now/3", "s3://b", "now of b", {"big": "no"}, 64),
        ("b/later/11", "s3://b", "later of b", {"big": "yes"}, 192),
        ("c/now/12", "s3://c", "now of c", {"big": "yes"}, 64),
    ]


async def test_functions_with_names_of_their_own_get_the_arguments_in_order() -> None:
    domain = Domain("functions")

    @domain.task(key=lambda p: f"key {p}")
    async def one(path: str) -> None: ...

    @domain.task(key=lambda *args: "+".join(map(str, args)), label=lambda *args, **kwargs: f"{args} {kwargs}")
    async def many(*numbers: int) -> None: ...

    @domain.task(key=lambda: "always")
    async def constant(path: str) -> None: ...

    @domain.task(key=str.upper)
    async def builtin(path: str) -> None: ...

    async with Scheduler(domains=[domain]):
        keys = [
            (await (await one.submit("a")).record()).key,
            (await (await many.submit(1, 2)).record()).key,
            (await (await many.submit(1, 2, 3)).record()).label,
            (await (await constant.submit("a")).record()).key,
            (await (await builtin.submit("a")).record()).key,
        ]
    assert keys == ["key a", "1+2", "(1, 2, 3) {}", "always", "A"]


async def test_a_function_gets_decoded_values_and_none_means_no_key() -> None:
    domain = Domain("decoded")

    @domain.task(key=lambda point: f"{point.x}" if point.x else None)
    async def work(point: Point) -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        by_name = Submission("decoded::work", {"point": {"x": 5}})
        assert (await (await scheduler.submit(by_name)).record()).key == "5"
        assert (await work.submit(Point(5))).kind == "duplicate"
        assert [(await work.submit(Point(0))).kind for _ in range(2)] == ["inserted"] * 2


async def test_what_the_call_says_beats_what_a_function_computes() -> None:
    domain = Domain("beaten", group="domain", priority=9)

    @domain.task(key=lambda a: f"k{a}", group=lambda a: f"g{a}", priority=lambda a: a)
    async def work(a: int) -> None: ...

    async with Scheduler(domains=[domain]):
        record = await (await work.options(key="mine", group="ours", priority=7).submit(1)).record()
        assert (record.key, record.group, record.priority) == ("mine", "ours", 7)
        record = await (await work.submit(1)).record()
        assert (record.key, record.group, record.priority) == ("k1", "g1", 1)


async def test_key_true_is_equal_for_equal_arguments_however_they_are_said() -> None:
    domain = Domain("derived")

    @domain.task(key=True)
    async def work(a: int, b: dict[str, int] | None = None, *, c: str = "c") -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        first = await work.submit(1, {"x": 1, "y": 2})
        again = [
            await work.submit(1, {"y": 2, "x": 1}),
            await work.submit(b={"x": 1, "y": 2}, a=1, c="c"),
            await scheduler.submit(Submission("derived::work", {"b": {"x": 1, "y": 2}, "a": 1})),
        ]
        others = [
            await work.submit(1),
            await work.submit(2, {"x": 1, "y": 2}),
            await work.submit(1, {"x": 1, "y": 2}, c="d"),
        ]
        assert [(handle.kind, handle.id) for handle in again] == [("duplicate", first.id)] * 3
        assert [handle.kind for handle in others] == ["inserted"] * 3
        assert [(await handle.record()).key for handle in again] == [(await first.record()).key] * 3


async def test_key_true_of_a_call_counts_for_that_call() -> None:
    domain = Domain("derived")

    @domain.task
    async def work(a: int) -> None: ...

    async with Scheduler(domains=[domain]):
        assert [(await work.submit(1)).kind for _ in range(2)] == ["inserted"] * 2
        keyed = work.options(key=True)
        assert [(await keyed.submit(1)).kind for _ in range(2)] == ["inserted", "duplicate"]


# Submitting by name from elsewhere


def _owner() -> Domain:
    domain = Domain("far", group="of domain", tags={"a": "domain"})

    @domain.task(priority=7, ttl=60, label="l", tags={"b": "type"}, on_duplicate="reject", retry=Retry.none())
    async def work(n: int, factor: int = 2) -> int:
        return n * factor

    @domain.task(key=True)
    async def unique(n: int) -> int:
        return n

    return domain


async def test_a_process_without_the_handler_submits_as_its_owner_would(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    clock = ManualClock()
    async with (
        Scheduler(path, domains=[_owner()], clock=clock) as owner,
        Scheduler(path, clock=clock) as stranger,
    ):
        submission = Submission("far::work", {"n": 3}, key="k")
        handle = await stranger.submit(submission)
        record = await stranger.get(handle.id)
        assert (record.priority, record.group, record.label) == (7, "of domain", "l")
        assert record.tags == {"a": "domain", "b": "type"}
        assert record.expires_at == clock.now() + timedelta(seconds=60)
        with pytest.raises(SubmissionError, match="'k'"):
            await stranger.submit(submission)
        overriding = Submission("far::work", {"n": 4}, priority=9, group=None, ttl=None, tags={"b": "call"})
        record = await (await stranger.submit(overriding)).record()
        assert (record.priority, record.group, record.expires_at) == (9, "", None)
        assert record.tags == {"a": "domain", "b": "call"}
        await owner.run_until_idle()
        assert await handle.result() == 6


async def test_key_true_of_a_type_counts_for_those_who_submit_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with Scheduler(path, domains=[_owner()]) as owner, Scheduler(path) as stranger:
        first = await owner.submit(Submission("far::unique", {"n": 1}))
        again = await stranger.submit(Submission("far::unique", {"n": 1}))
        assert (again.kind, again.id) == ("duplicate", first.id)


async def test_a_type_published_after_this_scheduler_opened_is_found(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with Scheduler(path) as stranger:
        with pytest.raises(UnknownTaskType, match="far::work"):
            await stranger.submit(Submission("far::work", {"n": 1}))
        async with Scheduler(path, domains=[_owner()]):
            handle = await stranger.submit(Submission("far::work", {"n": 1}))
        assert (await stranger.get(handle.id)).priority == 7


async def test_changed_defaults_reach_those_who_submit_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"

    def owner(priority: int) -> Domain:
        domain = Domain("far")
        domain.task(name="work", priority=priority)(_plain)
        return domain

    async with Scheduler(path, domains=[owner(1)]):
        pass
    async with Scheduler(path) as stranger:
        assert (await (await stranger.submit(Submission("far::work"))).record()).priority == 1
        async with Scheduler(path, domains=[owner(2)]):
            pass
        async with Scheduler(path) as another:
            assert (await (await another.submit(Submission("far::work"))).record()).priority == 2


async def _plain() -> None: ...


async def test_a_payload_by_name_that_the_owner_cannot_read_fails_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with Scheduler(path, domains=[_owner()]) as owner, Scheduler(path) as stranger:
        wrong = await stranger.submit(Submission("far::work", {"n": "three"}))
        right = await stranger.submit(Submission("far::work", {"n": 3}))
        await owner.run_until_idle(timeout=10)
        assert await right.result(timeout=1) == 6
        with pytest.raises(TaskFailed, match=r"int.*\bn\b"):
            await wrong.result(timeout=1)


async def test_a_submission_that_says_nothing_has_no_payload() -> None:
    domain = Domain("empty")
    domain.task(name="work")(_plain)
    async with Scheduler(domains=[domain]) as scheduler:
        for submission in (Submission("empty::work"), Submission("empty::work", None), Submission("empty::work", {})):
            assert (await (await scheduler.submit(submission)).record()).payload == {}


# The caller's own transaction


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = tmp_path / "application.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE photo (name TEXT)")
    return path


def _doubling() -> Domain:
    domain = Domain("shared")

    @domain.task(tags={"t": "v"})
    async def double(n: int) -> int:
        return n * 2

    return domain


async def test_a_commit_makes_the_task_visible_and_it_runs(shared: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler, scheduler.running():
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            connection.execute("INSERT INTO photo VALUES ('a.jpg')")
            handle = await scheduler.submit(Submission("shared::double", {"n": 4}), connection=connection)
            assert connection.in_transaction
            assert await scheduler.tasks() == []
            connection.commit()
            assert await handle.result(timeout=10) == 8
            assert connection.execute("SELECT name FROM photo").fetchall() == [("a.jpg",)]
        assert await scheduler.history(tags={"t": "v"}) == [await handle.record()]


async def test_a_rollback_stores_nothing(shared: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler:
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            await scheduler.submit_many(
                [Submission("shared::double", {"n": n}, key=f"k{n}") for n in range(3)], connection=connection
            )
            connection.execute("INSERT INTO photo VALUES ('a.jpg')")
            connection.rollback()
            assert connection.execute("SELECT count(*) FROM photo").fetchone() == (0,)
        assert await scheduler.tasks() == []
        assert await scheduler.tag_values("t") == {}
        await scheduler.run_until_idle(timeout=10)
        assert await scheduler.history() == []


async def test_a_refusal_leaves_the_callers_transaction_as_it_was(shared: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler:
        held = await scheduler.submit(Submission("shared::double", {"n": 1}, key="k"))
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            connection.execute("INSERT INTO photo VALUES ('a.jpg')")
            batch = [
                Submission("shared::double", {"n": 2}),
                Submission("shared::double", {"n": 3}, key="k", on_duplicate="reject"),
            ]
            with pytest.raises(SubmissionError, match="'k'"):
                await scheduler.submit_many(batch, connection=connection)
            connection.commit()
            assert connection.execute("SELECT name FROM photo").fetchall() == [("a.jpg",)]
        assert [record.id for record in await scheduler.tasks()] == [held.id]


async def test_keys_count_inside_the_callers_transaction(shared: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler:
        with contextlib.closing(sqlite3.connect(shared)) as connection:
            submission = Submission("shared::double", {"n": 1}, key="k")
            first = await scheduler.submit(submission, connection=connection)
            again = await scheduler.submit(submission, connection=connection)
            connection.commit()
        assert (first.kind, again.kind, again.id) == ("inserted", "duplicate", first.id)
        assert (await scheduler.submit(submission)).id == first.id


class ConnectionOfAnotherLibrary:
    """Looks like a connection and is none."""

    def execute(self, *_: object) -> list[tuple[int, str, str]]:
        return [(0, "main", "application.db")]


async def test_a_connection_that_is_not_to_the_same_file_is_refused(shared: Path, tmp_path: Path) -> None:
    domain = _doubling()
    async with Scheduler(shared, domains=[domain]) as scheduler:
        submission = Submission("shared::double", {"n": 1})
        other = sqlite3.connect(tmp_path / "other.db")
        memory = sqlite3.connect(":memory:")
        attached = sqlite3.connect(tmp_path / "other.db")
        attached.execute("ATTACH ? AS main2", (str(shared),))
        for connection in (other, memory, attached, ConnectionOfAnotherLibrary(), str(shared), 5):
            with pytest.raises(SubmissionError, match="connection"):
                await scheduler.submit(submission, connection=connection)
        for opened in (other, memory, attached):
            assert opened.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
            opened.close()
        assert await scheduler.tasks() == []


async def test_a_closed_connection_is_refused(shared: Path) -> None:
    async with Scheduler(shared, domains=[_doubling()]) as scheduler:
        closed = sqlite3.connect(shared)
        closed.close()
        with pytest.raises(SubmissionError, match="connection"):
            await scheduler.submit(Submission("shared::double", {"n": 1}), connection=closed)


async def test_a_connection_under_another_name_of_the_file_is_accepted(shared: Path) -> None:
    link = shared.with_name("link.db")
    link.symlink_to(shared)
    async with Scheduler(shared, domains=[_doubling()]) as scheduler:
        with contextlib.closing(sqlite3.connect(link)) as connection, connection:
            await scheduler.submit(Submission("shared::double", {"n": 1}), connection=connection)
        assert await scheduler.count() == 1


async def test_a_scheduler_in_memory_shares_no_transaction(shared: Path) -> None:
    async with Scheduler(domains=[_doubling()]) as scheduler:
        connection = sqlite3.connect(shared)
        with contextlib.closing(connection), pytest.raises(SubmissionError, match="connection"):
            await scheduler.submit(Submission("shared::double", {"n": 1}), connection=connection)


# Several schedulers


def _two_domains() -> tuple[Domain, Any]:
    domain = Domain("several")

    @domain.task
    async def work(n: int) -> int:
        return n

    return domain, work


async def test_a_task_belongs_to_the_only_open_scheduler() -> None:
    domain, work = _two_domains()
    with pytest.raises(ConfigError, match="several"):
        await work.submit(1)
    async with Scheduler(domains=[domain]) as scheduler:

        async def elsewhere() -> int:
            handle = await work.submit(1)
            return int(handle.id)

        assert await scheduler.get(await asyncio.create_task(elsewhere()))
    with pytest.raises(ConfigError, match="several"):
        await work.submit(1)


async def test_of_several_open_schedulers_the_innermost_context_counts() -> None:
    domain, work = _two_domains()
    async with Scheduler(domains=[domain]) as outer:
        async with Scheduler(domains=[domain]) as inner:
            await work.submit(1)
            assert (await outer.count(), await inner.count()) == (0, 1)
            await outer.submit(work.prepare(2))
            assert (await outer.count(), await inner.count()) == (1, 1)
        await work.submit(3)
        assert await outer.count() == 2


async def test_outside_their_contexts_several_schedulers_must_be_told_apart() -> None:
    domain, work = _two_domains()
    first, second = Scheduler(domains=[domain]), Scheduler(domains=[domain])
    await first.open()
    await second.open()
    try:
        with pytest.raises(ConfigError, match=r"2 open schedulers.*prepare"):
            await work.submit(1)
        handle = await second.submit(work.prepare(1))
        assert (await first.count(), await second.count()) == (0, 1)
        assert (await second.get(handle.id)).payload == {"n": 1}
    finally:
        await first.close()
        await second.close()


async def test_a_handler_submits_to_the_scheduler_it_runs_in() -> None:
    domain = Domain("inside")

    @domain.task
    async def leaf() -> None: ...

    @domain.task
    async def parent() -> int:
        return (await leaf.submit()).id

    async with Scheduler(domains=[domain]) as first, Scheduler(domains=[domain]) as second:
        for scheduler, other in ((first, second), (second, first)):
            before = len(await other.history())
            handle = await scheduler.submit(parent.prepare())
            await scheduler.run_until_idle(timeout=10)
            spawned = await scheduler.get(await handle.result())
            assert spawned.type == "inside::leaf"
            assert len(await other.history()) == before


async def test_a_prepared_submission_fits_any_scheduler_that_knows_the_type() -> None:
    domain, work = _two_domains()
    prepared = work.options(priority=3).prepare(5)
    async with Scheduler(domains=[domain]) as one, Scheduler(domains=[domain]) as two, Scheduler() as none:
        for scheduler in (one, two):
            handle = await scheduler.submit(prepared)
            assert (await scheduler.get(handle.id)).priority == 3
            await scheduler.run_until_idle(timeout=10)
            assert await handle.result() == 5
        with pytest.raises(UnknownTaskType, match="several::work"):
            await none.submit(prepared)


async def test_an_instant_is_the_same_instant_in_any_zone() -> None:
    domain, work = _two_domains()
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    at = datetime(2030, 1, 1, 5, 0, 0, 1000, tzinfo=timezone(timedelta(hours=2)))
    async with Scheduler(domains=[domain], clock=clock):
        record = await (await work.options(run_at=at).submit(1)).record()
        assert record.run_at == at
        assert record.status == "scheduled"
