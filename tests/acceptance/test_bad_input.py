"""The front door refuses what it cannot honour: a clear error that names the culprit, and an untouched database.

Run as a script, this file plays the parts that need a process of their own: an unprivileged user, and a process that
may not write large files.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill import (
    ConfigError,
    Context,
    Domain,
    DuplicateTask,
    Handle,
    InvalidState,
    InvalidTag,
    PayloadTooLarge,
    Retention,
    Retry,
    RetryLater,
    Scheduler,
    SchemaTooNew,
    StoreCorrupt,
    StoreError,
    Submission,
    SubmissionError,
    TaskFailed,
    TaskmillError,
    TaskNotFound,
    UnknownTaskType,
)
from taskmill.store.sqlite.connection import sqlite_module
from taskmill.testing import ManualClock

if TYPE_CHECKING:
    import sqlite3
    from decimal import NotThere  # type: ignore[attr-defined]  # pyright: ignore
else:
    # The library the store uses: two of them in one process break each other's locks.
    sqlite3 = importlib.import_module(sqlite_module())

NAN = float("nan")
MIB = 1024 * 1024
SURROGATE = "a\ud800b"
NUL = "a\0b"
NOBODY = 65534

box = Domain("box")


@dataclass
class Size:
    width: int
    height: int


@dataclass
class Parcel:
    label: str
    size: Size


@box.task
async def put(path: str, count: int = 1) -> int:
    return len(path) * count


@box.task
async def weigh(grams: float) -> float:
    return grams


@box.task
async def weigh_all(grams: list[float]) -> int:
    return len(grams)


@box.task
async def weigh_maybe(grams: float | None = None) -> bool:
    return grams is None


@box.task
async def ship(parcel: Parcel) -> str:
    return parcel.label


@box.task
async def anything(value):  # type: ignore[no-untyped-def]
    return value


@box.task
async def explode(path: str) -> None:
    raise RuntimeError(path)


def untyped(task: Any) -> Any:
    """For calls that are wrong on purpose, and that type checkers would find."""
    return task


def dump(path: Path) -> dict[str, list[Any]]:
    """Every row of every table of taskmill."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'taskmill!_%' ESCAPE '!'"
        ).fetchall()
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for (name,) in tables}


@contextlib.contextmanager
def unchanged(path: Path) -> Iterator[None]:
    before = dump(path)
    assert "taskmill_task" in before
    yield
    assert dump(path) == before


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
async def scheduler(path: Path) -> AsyncIterator[Scheduler]:
    async with Scheduler(path, domains=[box], durability="process") as opened:
        await put.options(key="held").submit("already here")
        yield opened


async def refused(
    path: Path, call: Callable[[], Coroutine[Any, Any, Any]], error: type[Exception], names: str
) -> Exception:
    """The call raises exactly this class, says ``names``, and stores nothing."""
    with unchanged(path), pytest.raises(error) as caught:
        await call()
    assert type(caught.value) is error
    assert names in str(caught.value)
    return caught.value


# Payloads


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


# Options of a call

BAD_DURATIONS = [NAN, -1, -0.001, timedelta(seconds=-1), True, "10", b"1", math.inf, 10**400, timedelta.max]

BAD_CALL_OPTIONS: list[tuple[str, object]] = [
    *((name, value) for name in ("run_after", "ttl", "timeout") for value in [*BAD_DURATIONS, datetime(2030, 1, 1)]),
    ("run_after", None),
    ("timeout", 0),
    ("run_at", datetime(2030, 1, 1)),
    ("run_at", date(2030, 1, 1)),
    ("run_at", "2030-01-01T00:00:00Z"),
    ("run_at", 1_900_000_000),
    ("run_at", None),
    *(("priority", value) for value in (-1, 256, 2**70, True, 1.5, NAN, "high", None)),
    *(("on_duplicate", value) for value in ("replace", "SKIP", "", 1, None, True)),
    *(("key", value) for value in ("", 5, False, b"key", ["a"], NUL, SURROGATE)),
    *(("group", value) for value in (5, True, b"g", ["a"], NUL, SURROGATE)),
    *(("label", value) for value in (5, True, b"l", NUL, SURROGATE)),
    *(("retry", value) for value in (3, None, "none", Retry)),
    *((name, "x") for name in ("prioritty", "Key", "run_in", "state", "name", "", "max_concurrency")),
]


def _shown(value: object) -> str:
    return repr(value)[:40].encode("ascii", "backslashreplace").decode().replace("\0", "0")


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(n, v, id=f"{n}-{_shown(v)}-{i}") for i, (n, v) in enumerate(BAD_CALL_OPTIONS)],
)
async def test_a_wrong_option_of_a_call_is_refused_by_name(
    scheduler: Scheduler, path: Path, name: str, value: Any
) -> None:
    options: dict[str, Any] = {name: value}

    async def by_task() -> None:
        await put.options(**options).submit("a")

    async def by_name() -> None:
        await scheduler.submit(Submission("box::put", {"path": "a"}, **options))

    await refused(path, by_task, SubmissionError, name)
    await refused(path, by_name, SubmissionError, name)


async def test_a_naive_run_at_is_refused_and_nothing_is_stored(scheduler: Scheduler, path: Path) -> None:
    with unchanged(path), pytest.raises(SubmissionError, match=r"run_at.*timezone"):
        await scheduler.submit(Submission("box::put", {"path": "a"}, run_at=datetime(2030, 1, 1)))


async def test_run_after_and_run_at_exclude_each_other(scheduler: Scheduler, path: Path) -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)

    async def at_once() -> None:
        await put.options(run_after=5, run_at=at).submit("a")

    async def by_name() -> None:
        await scheduler.submit(Submission("box::put", {"path": "a"}, run_after=5, run_at=at))

    for call in (at_once, by_name):
        wrong = await refused(path, call, SubmissionError, "run_after")
        assert "run_at" in str(wrong)


async def test_of_run_after_and_run_at_said_one_after_the_other_the_last_counts(path: Path) -> None:
    clock = ManualClock()
    at = clock.now() + timedelta(days=1)
    async with Scheduler(path, domains=[box], clock=clock):
        last_is_at = await put.options(run_after=5).options(run_at=at).submit("a")
        last_is_after = await put.options(run_at=at).options(run_after=5).submit("a")
        assert (await last_is_at.record()).run_at == at
        assert (await last_is_after.record()).run_at == clock.now() + timedelta(seconds=5)


BAD_TAGS: list[Any] = [
    {f"t{n}": "x" for n in range(33)},
    {"k" * 65: "v"},
    {"é" * 33: "v"},
    {"k": "v" * 257},
    {"k": "é" * 129},
    {"": "v"},
    {1: "v"},
    {"k": 1},
    {"k": None},
    {"k": True},
    {NUL: "v"},
    {"k": NUL},
    {SURROGATE: "v"},
    {"k": SURROGATE},
    ["a", "b"],
    "k=v",
    None,
    5,
]


@pytest.mark.parametrize("tags", [pytest.param(t, id=f"{i}-{_shown(t)}") for i, t in enumerate(BAD_TAGS)])
async def test_tags_beyond_the_limits_or_not_text_are_refused(scheduler: Scheduler, path: Path, tags: Any) -> None:
    async def by_task() -> None:
        await put.options(tags=tags).submit("a")

    async def by_name() -> None:
        await scheduler.submit(Submission("box::put", {"path": "a"}, tags=tags))

    await refused(path, by_task, InvalidTag, "tags")
    await refused(path, by_name, InvalidTag, "tags")


async def test_tags_at_the_limits_are_kept(scheduler: Scheduler) -> None:
    tags = {f"{n:02}" + "é" * 31: "é" * 128 for n in range(32)}
    handle = await put.options(tags=tags).submit("a")
    assert (await handle.record()).tags == tags
    assert await scheduler.count(tags=tags) == 1


async def test_tags_merged_from_several_levels_keep_to_the_limit(path: Path) -> None:
    domain = Domain("merged", tags={f"domain{n}": "x" for n in range(20)})

    @domain.task
    async def work() -> None: ...

    async with Scheduler(path, domains=[domain]):
        twelve = {f"call{n}": "x" for n in range(12)}
        assert len((await (await work.options(tags=twelve).submit()).record()).tags) == 32
        await refused(path, work.options(tags={**twelve, "more": "x"}).submit, InvalidTag, "tags")


async def test_an_unknown_task_type_is_refused_by_its_name(scheduler: Scheduler, path: Path) -> None:
    for name in ("box::nothing", "nowhere::put", "put", NUL):
        submission = Submission(name, {})
        submit = functools.partial(scheduler.submit, submission)
        wrong = await refused(path, submit, UnknownTaskType, "registered")
        assert repr(name) in str(wrong)


@pytest.mark.parametrize("type", ["", None, 5, put])
def test_a_submission_needs_the_name_of_a_task_type(type: Any) -> None:
    with pytest.raises(SubmissionError, match="type"):
        Submission(type, {})


@pytest.mark.parametrize("payload", [["a"], "a", 5, [("path", "a")], b"{}"])
def test_a_payload_by_name_must_be_a_mapping(payload: Any) -> None:
    with pytest.raises(SubmissionError, match="payload"):
        Submission("box::put", payload)


@pytest.mark.parametrize("given", ["box::put", {"path": "a"}, None, 5, put])
async def test_only_submissions_can_be_submitted(scheduler: Scheduler, path: Path, given: Any) -> None:
    await refused(path, lambda: scheduler.submit(given), SubmissionError, "submission")
    await refused(path, lambda: scheduler.submit_many([put.prepare("a"), given]), SubmissionError, "submission")


@pytest.mark.parametrize("given", [5, None, put])
async def test_submit_many_takes_an_iterable_of_submissions(scheduler: Scheduler, path: Path, given: Any) -> None:
    await refused(path, lambda: scheduler.submit_many(given), SubmissionError, "submissions")


# Batches


async def test_one_bad_submission_in_a_batch_stores_none(scheduler: Scheduler, path: Path) -> None:
    for bad, error in (
        (Submission("box::put", {"path": 7}), SubmissionError),
        (Submission("box::nothing", {}), UnknownTaskType),
        (Submission("box::put", {"path": "a" * MIB}), PayloadTooLarge),
    ):
        batch = [put.prepare("first"), bad, put.prepare("last")]
        with unchanged(path), pytest.raises(error):
            await scheduler.submit_many(batch)


async def test_a_rejected_duplicate_in_a_batch_stores_none(scheduler: Scheduler, path: Path) -> None:
    held = await scheduler.find("box::put", "held")
    assert held is not None
    batch = [
        put.options(key="fresh").prepare("first"),
        put.options(key="held", priority=0).prepare("raises the holder"),
        put.options(key="held", on_duplicate="reject").prepare("refused"),
        put.prepare("last"),
    ]
    for chosen in (batch, [batch[0], batch[2]], [batch[2]]):
        with unchanged(path), pytest.raises(DuplicateTask, match="held") as caught:
            await scheduler.submit_many(chosen)
        assert caught.value.existing_id == held.id


async def test_a_refused_batch_does_not_harm_those_who_submit_at_the_same_time(scheduler: Scheduler) -> None:
    rejected = put.options(key="held", on_duplicate="reject")
    answers = await asyncio.gather(
        put.submit("before"),
        scheduler.submit_many([put.prepare("lost"), rejected.prepare("lost")]),
        put.submit("after"),
        return_exceptions=True,
    )
    before, batch, after = answers
    assert isinstance(batch, DuplicateTask)
    assert isinstance(before, Handle)
    assert isinstance(after, Handle)
    waiting = [record.payload["path"] for record in await scheduler.tasks()]
    assert waiting == ["already here", "before", "after"]


# Texts

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)


@settings(max_examples=30, deadline=None)
@given(st.lists(texts, unique=True, min_size=1, max_size=12))
def test_keys_with_any_character_but_nul_and_surrogates_round_trip(keys: list[str]) -> None:
    async def round_trip() -> None:
        async with Scheduler(domains=[box]) as scheduler:
            handles = await scheduler.submit_many([put.options(key=key).prepare(key) for key in keys])
            for key, handle in zip(keys, handles, strict=True):
                record = await scheduler.find("box::put", key)
                assert record is not None
                assert (record.id, record.key, record.payload) == (handle.id, key, {"path": key})
                assert (await put.options(key=key).submit("again")).kind == "duplicate"

    asyncio.run(round_trip())


@settings(max_examples=30, deadline=None)
@given(texts, texts, st.dictionaries(texts.filter(lambda t: len(t.encode()) <= 64), texts, max_size=8))
def test_labels_groups_and_tags_with_any_character_round_trip(label: str, group: str, tags: dict[str, str]) -> None:
    async def round_trip() -> None:
        async with Scheduler(domains=[box]) as scheduler:
            handle = await put.options(label=label, group=group, tags=tags).submit("a")
            record = await scheduler.get(handle.id)
            assert (record.label, record.group, record.tags) == (label, group, tags)
            for name, value in tags.items():
                assert await scheduler.tag_values(name) == {value: 1}

    asyncio.run(round_trip())


async def test_a_payload_may_hold_the_nul_character(scheduler: Scheduler) -> None:
    handle = await anything.submit(NUL)
    await scheduler.run_until_idle(timeout=10)
    assert await handle.result() == NUL


async def test_keys_that_only_look_alike_are_different_keys(scheduler: Scheduler) -> None:
    alike = ["1", "1.0", "01", " 1", "1 ", "é", "e\u0301", "K", "\u212a", "k", "null", "true", '"1"', "%", "_"]
    handles = [await put.options(key=key).submit("a") for key in alike]
    assert [handle.kind for handle in handles] == ["inserted"] * len(alike)
    assert scheduler


# Functions that compute options


@pytest.mark.parametrize(
    ("option", "function", "error"),
    [
        ("key", lambda path: 5, SubmissionError),
        ("key", lambda path: "", SubmissionError),
        ("key", lambda path: NUL, SubmissionError),
        ("key", lambda path: path.missing, SubmissionError),
        ("key", lambda path, other: path, SubmissionError),
        ("group", lambda path: 5, SubmissionError),
        ("label", lambda path: b"x", SubmissionError),
        ("priority", lambda path: 300, SubmissionError),
        ("priority", lambda path: True, SubmissionError),
        ("tags", lambda path: {"n": 1}, InvalidTag),
        ("tags", lambda path: None, InvalidTag),
    ],
)
async def test_what_an_options_function_returns_is_checked_like_the_option(
    path: Path, option: str, function: Callable[..., Any], error: type[Exception]
) -> None:
    domain = Domain("computed")
    options: dict[str, Any] = {option: function}

    @domain.task(**options)
    async def work(path: str) -> None: ...

    async with Scheduler(path, domains=[domain]):
        await refused(path, lambda: work.submit("a"), error, option)


# Definitions

BAD_DEFINITION_OPTIONS: list[tuple[str, object]] = [
    *((name, value) for name in ("ttl", "timeout") for value in BAD_DURATIONS),
    ("timeout", 0),
    *(("priority", value) for value in (-1, 256, True, 1.5, "high", None)),
    *(("group", value) for value in (5, True, NUL, SURROGATE)),
    *(("retry", value) for value in (3, None, "none")),
    *(("tags", value) for value in ({"k": 1}, {"k" * 65: "v"}, None, ["a"])),
    ("prioritty", 1),
    ("run_at", datetime(2030, 1, 1, tzinfo=UTC)),
    ("run_after", 1),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(n, v, id=f"{n}-{_shown(v)}-{i}") for i, (n, v) in enumerate(BAD_DEFINITION_OPTIONS)],
)
def test_a_wrong_option_of_a_domain_or_a_task_type_is_refused_by_name(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        Domain("wrong", **options)
    domain = Domain("right")
    with pytest.raises(ConfigError, match=name):
        domain.task(**options)
    assert domain.types == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [("key", ""), ("key", 5), ("key", NUL), ("on_duplicate", "replace"), ("run_in", "thread"), ("run_in", True)],
)
def test_a_wrong_option_of_a_task_type_is_refused_by_name(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        Domain("right").task(**options)


@pytest.mark.parametrize("name", ["", "a::b", "::", None, 5, b"a", NUL, SURROGATE])
def test_names_of_domains_and_tasks_are_text_without_the_separator(name: Any) -> None:
    with pytest.raises(ConfigError, match="name"):
        Domain(name)
    if name is not None:
        with pytest.raises(ConfigError, match="name"):
            Domain("right").task(name=name)(len)


@pytest.mark.parametrize("state", [5, None])
def test_the_state_of_a_domain_and_a_scheduler_is_an_iterable(state: Any) -> None:
    with pytest.raises(ConfigError, match="state"):
        Domain("wrong", state=state)
    with pytest.raises(ConfigError, match="state"):
        Scheduler(state=state)


def test_two_domains_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="'twin'"):
        Scheduler(domains=[Domain("twin"), Domain("other"), Domain("twin")])


def test_two_tasks_of_one_name_are_refused() -> None:
    domain = Domain("twins")

    @domain.task
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="twins::work"):
        domain.task(name="work")(len)
    assert list(domain.types) == ["twins::work"]


def test_decorating_a_task_again_is_refused() -> None:
    with pytest.raises(ConfigError, match="box::put"):
        Domain("again").task(put)
    with pytest.raises(ConfigError, match="box::put"):
        Domain("again").task(name="put")(put)


@pytest.mark.parametrize("what", [5, "put", functools.partial(len, "a")])
def test_only_functions_can_be_tasks(what: Any) -> None:
    with pytest.raises(ConfigError, match="function"):
        Domain("wrong").task(what)
    with pytest.raises(ConfigError, match="function"):
        Domain("wrong").task(name="named")(what)


def test_a_second_hook_is_refused() -> None:
    domain = Domain("hooked")

    @domain.task
    async def work() -> None: ...

    @work.on_cancel
    async def first() -> None: ...

    with pytest.raises(ConfigError, match="on_cancel"):
        work.on_cancel(first)


def test_a_context_that_is_not_the_first_parameter_is_refused() -> None:
    domain = Domain("late")
    with pytest.raises(ConfigError, match="ctx"):

        @domain.task
        async def second(path: str, ctx: Context) -> None: ...

    with pytest.raises(ConfigError, match="ctx"):

        @domain.task
        async def keyword(path: str, *, ctx: Context) -> None: ...

    assert domain.types == {}


def test_an_annotation_that_exists_only_for_type_checkers_is_refused() -> None:
    with pytest.raises(ConfigError, match="NotThere"):

        @Domain("checked").task
        async def work(value: NotThere) -> None: ...


class Opaque:
    """Nothing JSON could say."""


async def _an_opaque_object(value: Opaque) -> None: ...
async def _a_nested_one(value: list[Opaque]) -> None: ...
async def _a_lock(value: threading.Event) -> None: ...
async def _a_function(value: Callable[[], int]) -> None: ...
async def _two_that_look_alike(value: Size | Parcel) -> None: ...
async def _objects_as_keys(value: dict[Size, int]) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [_an_opaque_object, _a_nested_one, _a_lock, _a_function, _two_that_look_alike, _objects_as_keys],
)
def test_annotations_that_cannot_be_stored_are_refused_when_the_task_is_defined(
    handler: Callable[..., Any],
) -> None:
    domain = Domain("unstorable")
    with pytest.raises(ConfigError, match=handler.__name__):
        domain.task(handler)
    assert domain.types == {}


def test_a_handler_for_a_process_must_be_importable_there() -> None:
    domain = Domain("local")

    @domain.task(run_in="process")
    def work() -> None: ...

    with pytest.raises(ConfigError, match="local::work"):
        Scheduler(domains=[domain])


# Settings

BAD_SETTINGS: list[tuple[str, object]] = [
    *(("max_concurrency", value) for value in (0, -1, 1.5, "8", True, None)),
    *(("retry", value) for value in (3, "none")),
    *(("default_ttl", value) for value in BAD_DURATIONS),
    *(("retention", value) for value in (5, "all", 10_000)),
    *(("cancel_timeout", value) for value in [*BAD_DURATIONS, None]),
    *(("shutdown_grace", value) for value in [*BAD_DURATIONS, None]),
    *(("durability", value) for value in ("none", "FULL", None, True)),
    *(("domains", value) for value in (["box"], "box", 5, None, box)),
    *(("clock", value) for value in (5, "now", datetime(2030, 1, 1, tzinfo=UTC))),
    *(("store", value) for value in (5, None, b"tasks.db", ["tasks.db"])),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(n, v, id=f"{n}-{_shown(v)}-{i}") for i, (n, v) in enumerate(BAD_SETTINGS)],
)
def test_a_wrong_setting_of_a_scheduler_is_refused_by_name(name: str, value: Any) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        Scheduler(**settings)


@pytest.mark.parametrize("value", BAD_DURATIONS, ids=_shown)
def test_a_wrong_duration_in_a_value_is_refused_by_name(value: Any) -> None:
    makers: Mapping[str, Callable[[], object]] = {
        "delay": lambda: Retry.constant(1, value),
        "initial": lambda: Retry.linear(1, value, 1, 1),
        "increment": lambda: Retry.linear(1, 1, value, 1),
        "maximum": lambda: Retry.exponential(1, 1, value),
        "after": lambda: RetryLater("later", after=value),
        "max_age": lambda: Retention(max_age=value),
    }
    for name, make in makers.items():
        with pytest.raises(ConfigError, match=rf"\b{name}\b"):
            make()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("n", lambda: Retry.constant(-1, 1)),
        ("n", lambda: Retry.constant(True, 1)),
        ("n", lambda: Retry.exponential(1.5, 1, 1)),  # type: ignore[arg-type]
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=NAN)),
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=math.inf)),
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=True)),
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=-2)),
        ("jitter", lambda: Retry.exponential(1, 1, 1, jitter=1)),  # type: ignore[arg-type]
        ("max_count", lambda: Retention(max_count=-1)),
        ("max_count", lambda: Retention(max_count=True)),
        ("max_count", lambda: Retention(max_count=1.5)),  # type: ignore[arg-type]
        ("per_status", lambda: Retention(per_status={"done": Retention()})),
        ("per_status", lambda: Retention(per_status={"completed": -5})),
        ("per_status", lambda: Retention(per_status={"completed": "5"})),  # type: ignore[dict-item]
        ("per_status", lambda: Retention(per_status=5)),  # type: ignore[arg-type]
        ("start", lambda: ManualClock(datetime(2030, 1, 1))),
    ],
)
def test_a_wrong_part_of_a_value_is_refused_by_name(name: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=rf"\b{name}\b"):
        make()


# Verbs


async def _call(verb: Callable[..., Coroutine[Any, Any, Any]], *arguments: object) -> None:
    await verb(*arguments)


@pytest.mark.parametrize("id", ["1", 1.0, True, None, b"1"])
async def test_an_id_is_an_int(scheduler: Scheduler, path: Path, id: Any) -> None:
    for verb in (scheduler.get, scheduler.cancel, scheduler.retry_dead, scheduler.wait):
        await refused(path, functools.partial(_call, verb, id), ConfigError, "id")


@pytest.mark.parametrize("id", [0, -1, 999, 2**63, 2**70, -(2**70)])
async def test_an_id_that_nobody_has_is_not_found(scheduler: Scheduler, path: Path, id: int) -> None:
    for verb in (scheduler.get, scheduler.cancel, scheduler.retry_dead, scheduler.wait):
        await refused(path, functools.partial(_call, verb, id), TaskNotFound, str(id))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colour", "red"),
        ("status", "done"),
        ("status", 5),
        *((name, 5) for name in ("type", "domain", "key", "group", "tag_prefix", "tags")),
        *((name, SURROGATE) for name in ("type", "domain", "key", "group", "tag_prefix")),
        *((name, value) for name in ("limit", "before", "parent") for value in (-1, True, 1.5, "5", 2**70)),
    ],
)
async def test_a_wrong_filter_is_refused_by_name(scheduler: Scheduler, path: Path, name: str, value: Any) -> None:
    filters: dict[str, Any] = {name: value}
    for verb in (scheduler.tasks, scheduler.history, scheduler.count, scheduler.cancel_where):
        with unchanged(path), pytest.raises(TaskmillError, match=name):
            await verb(**filters)


async def test_cancelling_everything_must_be_said(scheduler: Scheduler, path: Path) -> None:
    await refused(path, scheduler.cancel_where, ConfigError, "cancel_where")


@pytest.mark.parametrize("value", [5, None, SURROGATE])
async def test_texts_to_look_up_are_texts(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.find(value, "held"), ConfigError, "type")
    await refused(path, lambda: scheduler.find("box::put", value), ConfigError, "key")
    await refused(path, lambda: scheduler.stats(value), ConfigError, "type")
    await refused(path, lambda: scheduler.tag_values(value), ConfigError, "key")


@pytest.mark.parametrize("value", BAD_DURATIONS, ids=_shown)
async def test_a_wrong_duration_of_a_verb_is_refused_by_name(scheduler: Scheduler, path: Path, value: Any) -> None:
    handle = await put.submit("a")
    await refused(path, lambda: scheduler.run_until_idle(timeout=value), ConfigError, "timeout")
    await refused(path, lambda: scheduler.stop(grace=value), ConfigError, "grace")
    await refused(path, lambda: handle.wait(timeout=value), ConfigError, "timeout")
    await refused(path, lambda: handle.result(timeout=value), ConfigError, "timeout")


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "8", None])
async def test_a_wrong_concurrency_is_refused(scheduler: Scheduler, path: Path, n: Any) -> None:
    await refused(path, lambda: scheduler.set_max_concurrency(n), ConfigError, "max_concurrency")
    assert (await scheduler.snapshot()).max_concurrency == 8


async def test_events_takes_kinds_of_events(scheduler: Scheduler) -> None:
    for kind in ("TaskSubmitted", 5, put, int):
        with pytest.raises(ConfigError, match="events"):
            scheduler.events(kind)  # type: ignore[arg-type]


async def test_a_scheduler_that_is_not_open_says_so(path: Path) -> None:
    closed = Scheduler(path, domains=[box])
    calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: closed.submit(put.prepare("a")),
        lambda: closed.submit_many([]),
        lambda: closed.get(1),
        closed.tasks,
        closed.run,
        closed.run_until_idle,
    ]
    for call in calls:
        with pytest.raises(InvalidState, match="open"):
            await call()
    with pytest.raises(ConfigError, match="box"):
        await put.submit("a")
    assert not path.exists()


# Files


async def _open_and_close(path: Path) -> None:
    async with Scheduler(path, domains=[box]):
        pass


async def _refuses_to_open(path: Path, error: type[Exception], *says: str) -> None:
    """Opening raises exactly this class, and nobody can submit."""
    with pytest.raises(error) as caught:
        await _open_and_close(path)
    assert type(caught.value) is error
    for text in (str(path), *says):
        assert text in str(caught.value)
    with pytest.raises(ConfigError, match="box"):
        await put.submit("a")


@pytest.mark.parametrize("content", [b"hello\n", b"name,size\n" * 1000, os.urandom(8192)], ids=len)
async def test_a_file_that_is_not_a_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    await _refuses_to_open(path, StoreCorrupt, "not an SQLite database")
    assert path.read_bytes() == content
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["", NUL, SURROGATE, "x" * 5000])
async def test_a_name_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises((ConfigError, StoreError)):
        async with Scheduler(name):
            pass


async def test_a_failed_open_leaves_no_thread_behind(path: Path) -> None:
    path.write_bytes(b"hello\n")
    before = set(threading.enumerate())
    with pytest.raises(StoreError):
        await _open_and_close(path)
    assert set(threading.enumerate()) <= before


async def test_a_folder_is_refused(path: Path) -> None:
    path.mkdir()
    await _refuses_to_open(path, StoreError, "folder")


async def test_a_missing_folder_is_named_and_not_created(tmp_path: Path) -> None:
    await _refuses_to_open(tmp_path / "missing" / "tasks.db", StoreError, str(tmp_path / "missing"))
    assert list(tmp_path.iterdir()) == []


async def test_a_damaged_database_is_called_so(path: Path) -> None:
    async with Scheduler(path, domains=[box]):
        for n in range(50):
            await put.submit("a" * 2000, n)
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    await _refuses_to_open(path, StoreCorrupt, "damaged")


async def test_a_schema_from_the_future_is_refused_and_left_alone(path: Path) -> None:
    await _open_and_close(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO taskmill_schema (version, name) VALUES (999, 'from the future')")
    with unchanged(path):
        await _refuses_to_open(path, SchemaTooNew, "999", "upgrade taskmill")


async def test_a_database_of_the_application_is_shared_not_refused(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
        connection.execute("CREATE TABLE photo (name TEXT)")
        connection.execute("INSERT INTO photo VALUES ('a.jpg')")
    async with Scheduler(path, domains=[box]) as scheduler:
        handle = await put.submit("a")
        await scheduler.run_until_idle(timeout=10)
        assert await handle.result() == 1
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM photo").fetchall() == [("a.jpg",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an unprivileged user can reach; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="taskmill-"))
    folder.chmod(0o755)
    yield folder
    for entry in (folder, *folder.rglob("*")):
        entry.chmod(0o755)
    shutil.rmtree(folder)


def _as_script(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def _try_to_use(path: str) -> None:
    """Part of a child process: be nobody, then use the file."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        async with Scheduler(path, domains=[box]) as scheduler:
            handle = await put.submit("written")
            await scheduler.run_until_idle(timeout=10)
            print("result", await handle.result())
    except Exception as wrong:
        print(type(wrong).__name__, wrong)


async def test_a_read_only_file_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await _open_and_close(path)
    open_folder.chmod(0o777)
    path.chmod(0o444)
    with unchanged(path):
        said = _as_script("use", str(path))
    assert said.startswith("StoreError")
    assert str(path) in said
    assert "read-only" in said


async def test_a_read_only_folder_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    said = _as_script("use", str(open_folder / "tasks.db"))
    assert said.startswith("StoreError")
    assert str(open_folder) in said
    assert list(open_folder.iterdir()) == []


async def test_a_database_in_a_read_only_folder_is_refused(open_folder: Path) -> None:
    path = open_folder / "tasks.db"
    await _open_and_close(path)
    for entry in open_folder.iterdir():
        entry.chmod(0o666)
    open_folder.chmod(0o555)
    with unchanged(path):
        said = _as_script("use", str(path))
    assert said.startswith("StoreError")
    assert str(path) in said


def test_an_unprivileged_user_can_use_a_file_of_its_own(open_folder: Path) -> None:
    open_folder.chmod(0o777)
    assert _as_script("use", str(open_folder / "tasks.db")) == "result 7"


# A full disk


class Disk(Protocol):
    folder: Path

    def fill(self) -> None: ...
    def free(self) -> None: ...


class SmallDisk:
    """A file system in memory with little room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as filler:
            while filler.write(b"\0" * 4096):
                continue

    def free(self) -> None:
        self._filler.unlink()


class LimitedFiles:
    """A process whose files may not grow; for a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        largest = max(entry.stat().st_size for entry in self.folder.iterdir())
        self._limit(largest)

    def free(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def _active_ids(path: Path) -> set[int]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {id for (id,) in connection.execute("SELECT id FROM taskmill_task")}


async def submitting(disk: Disk) -> None:
    """Refused submissions raise StoreError and are not stored; after there is room again all is well."""
    path = disk.folder / "tasks.db"
    async with Scheduler(path, domains=[box]) as scheduler:
        acknowledged = {(await put.submit("before")).id}
        disk.fill()
        refusals: list[str] = []
        for size in (200_000, 20_000, 1, 1):
            try:
                acknowledged.add((await put.submit("a" * size)).id)
            except StoreError as wrong:
                refusals.append(str(wrong))
        try:
            batch = await scheduler.submit_many([put.prepare("a" * 50_000) for _ in range(4)])
            acknowledged.update(handle.id for handle in batch)
        except StoreError as wrong:
            refusals.append(str(wrong))
        assert refusals
        assert all(str(path) in said for said in refusals)
        assert {record.id for record in await scheduler.tasks()} == acknowledged
        disk.free()
        assert _active_ids(path) == acknowledged
        handle = await put.submit("after")
        await scheduler.run_until_idle(timeout=10)
        assert await handle.result() == 5
        ended = await scheduler.history(status="completed")
        assert {record.id for record in ended} == {*acknowledged, handle.id}


async def dispatching(disk: Disk) -> None:
    """A handler that ends while nothing can be written has run once and is recorded once there is room."""
    path = disk.folder / "tasks.db"
    domain = Domain("busy")
    release = asyncio.Event()
    calls: list[int] = []

    @domain.task
    async def work(n: int) -> str:
        calls.append(n)
        await release.wait()
        return "done " + "!" * 5000

    clock = ManualClock()
    async with Scheduler(path, domains=[domain], clock=clock) as scheduler, scheduler.running():
        handles = [await work.submit(n) for n in range(3)]
        await clock.advance(0)
        assert calls == [0, 1, 2]
        disk.fill()
        release.set()
        await clock.advance(5)
        assert [record.status for record in await scheduler.tasks()] == ["running"] * 3
        disk.free()
        await clock.advance(5)
        for handle in handles:
            assert (await handle.result(timeout=1)).startswith("done")
        assert calls == [0, 1, 2]
        later = await work.submit(3)
        await clock.advance(5)
        assert (await later.wait(timeout=1)).attempt == 1


async def checkpointing(disk: Disk) -> None:
    """The log has room and the database has none: everyone is answered, and nothing acknowledged is lost."""
    path = disk.folder / "tasks.db"
    async with Scheduler(path, domains=[box]) as scheduler:
        acknowledged: set[int] = set()

        async def submit(size: int, times: int) -> None:
            for _ in range(times):
                try:
                    acknowledged.add((await put.submit("a" * size)).id)
                except StoreError:
                    await asyncio.sleep(0)

        async with asyncio.timeout(5):
            await asyncio.gather(submit(MIB - 100, 12), submit(10, 100), submit(10, 100))
        assert {record.id for record in await scheduler.tasks()} == acknowledged
    assert _active_ids(path) == acknowledged


async def opening(disk: Disk) -> None:
    """A full disk at the start is an error of the store, and the file can be opened later."""
    path = disk.folder / "tasks.db"
    disk.fill()
    with pytest.raises(StoreError, match=re.escape(str(path))):
        await _open_and_close(path)
    disk.free()
    await _open_and_close(path)


SCENARIOS = {scenario.__name__: scenario for scenario in (submitting, dispatching, checkpointing, opening)}


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    size = "12m" if request.node.callspec.params["scenario"] == "checkpointing" else "2m"
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False, timeout=10).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system is not allowed here")
    yield SmallDisk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True, timeout=10)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_full_disk_loses_nothing_and_leaves_nothing_behind(scenario: str, small_disk: Disk) -> None:
    await SCENARIOS[scenario](small_disk)


@pytest.mark.parametrize("scenario", ["submitting", "dispatching"])
def test_files_that_cannot_grow_lose_nothing_and_leave_nothing_behind(scenario: str, tmp_path: Path) -> None:
    assert _as_script(scenario, str(tmp_path)) == "survived"


# Corrupt rows


def damage(path: Path, column: str, value: object, id: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        changed = connection.execute(f"UPDATE taskmill_task SET {column} = CAST(? AS TEXT) WHERE id = ?", (value, id))
        assert changed.rowcount == 1


READABLE_DAMAGE = [
    ("payload", "not JSON"),
    ("payload", '{"path":'),
    ("tags", "not JSON"),
    ("tags", '["a"]'),
    ("tags", '{"a":1}'),
    ("progress", "not JSON"),
    ("progress", '{"fraction":"half"}'),
    ("payload", b"\xff\xfe"),
    ("tags", b"\xff\xfe"),
    ("label", b"\xff\xfe"),
]


@pytest.mark.parametrize(("column", "value"), READABLE_DAMAGE)
async def test_reading_a_corrupt_row_says_which_task_it_is(path: Path, column: str, value: object) -> None:
    async with Scheduler(path, domains=[box]) as scheduler:
        healthy = await put.submit("a")
        ids = [(await put.options(key="k").submit("a")).id for _ in range(1)]
        damage(path, column, value, ids[0])
        reads: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: scheduler.get(ids[0]),
            lambda: scheduler.find("box::put", "k"),
            scheduler.tasks,
        ]
        for read in reads:
            with pytest.raises(StoreCorrupt, match=rf"\b{ids[0]}\b"):
                await read()
        assert (await scheduler.get(healthy.id)).payload == {"path": "a"}


RUNNABLE_DAMAGE = [
    ("payload", "not JSON"),
    ("payload", '{"path":7}'),
    ("payload", "[]"),
    ("payload", b"\xff\xfe"),
    ("overrides", "not JSON"),
    ("overrides", '{"timeout_ms":"long"}'),
    ("overrides", '{"retry":{"retries":-5}}'),
    ("overrides", b"\xff\xfe"),
]
HARMLESS_DAMAGE = [("tags", "not JSON"), ("tags", b"\xff\xfe"), ("progress", "not JSON"), ("saved", "not JSON")]


def _history(path: Path, id: int) -> tuple[str, str | None] | None:
    """Ending and error of a row that may be unreadable through the front door."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        row: tuple[str, str | None] | None = connection.execute(
            "SELECT ending, error FROM taskmill_history WHERE id = ?", (id,)
        ).fetchone()
        return row


def _impatient(path: Path, clock: ManualClock | None = None) -> Scheduler:
    return Scheduler(path, domains=[box], shutdown_grace=0, cancel_timeout=0.1, clock=clock)


@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "heard"])
@pytest.mark.parametrize(("column", "value"), [*RUNNABLE_DAMAGE, *HARMLESS_DAMAGE])
async def test_a_corrupt_row_ends_with_an_error_and_the_others_run(
    path: Path, column: str, value: object, heard: bool
) -> None:
    async with _impatient(path) as scheduler:
        before, corrupt, after = [await put.options(retry=Retry.none()).submit("a") for _ in range(3)]
        damage(path, column, value, corrupt.id)
        listener = scheduler.events() if heard else None
        await scheduler.run_until_idle(timeout=1)
        assert await before.result(timeout=1) == 1
        assert await after.result(timeout=1) == 1
        ended = _history(path, corrupt.id)
        assert ended is not None
        ending, error = ended
        if (column, value) in RUNNABLE_DAMAGE:
            assert ending in ("failed", "dead_letter")
        if ending != "completed":
            assert error
        if listener is not None:
            await listener.aclose()


@pytest.mark.parametrize(("column", "value"), HARMLESS_DAMAGE)
async def test_a_corrupt_row_whose_handler_raises_still_ends(path: Path, column: str, value: object) -> None:
    async with _impatient(path) as scheduler:
        corrupt = await explode.options(retry=Retry.none()).submit("bang")
        damage(path, column, value, corrupt.id)
        await scheduler.run_until_idle(timeout=1)
        ended = _history(path, corrupt.id)
        assert ended is not None
        assert ended[0] in ("failed", "dead_letter")


@pytest.mark.parametrize(("column", "value"), [*RUNNABLE_DAMAGE, *HARMLESS_DAMAGE])
async def test_a_corrupt_task_can_be_cancelled(path: Path, column: str, value: object) -> None:
    async with _impatient(path) as scheduler:
        corrupt = await put.submit("a")
        damage(path, column, value, corrupt.id)
        listener = scheduler.events()
        assert await corrupt.cancel() is True
        assert _history(path, corrupt.id) == ("cancelled", None)
        await listener.aclose()


@pytest.mark.parametrize(("column", "value"), [*RUNNABLE_DAMAGE, *HARMLESS_DAMAGE])
async def test_a_corrupt_task_can_expire(path: Path, column: str, value: object) -> None:
    clock = ManualClock()
    async with _impatient(path, clock) as scheduler:
        corrupt = await put.options(ttl=10, run_after=60).submit("a")
        healthy = await put.options(run_after=30).submit("a")
        damage(path, column, value, corrupt.id)
        listener = scheduler.events()
        async with scheduler.running():
            await clock.advance(40)
            ended = _history(path, corrupt.id), _history(path, healthy.id)
            stopping = asyncio.create_task(scheduler.stop())
            await clock.advance(10)
            await stopping
        await listener.aclose()
        assert ended == (("expired", None), ("completed", None))


async def _play(part: str, where: str) -> None:
    if part == "use":
        await _try_to_use(where)
    else:
        await SCENARIOS[part](LimitedFiles(Path(where)))
        print("survived")


if __name__ == "__main__":
    asyncio.run(_play(*sys.argv[1:]))
