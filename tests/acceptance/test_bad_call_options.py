"""A wrong option of a call, given or computed, is refused by its name, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import Domain, InvalidTag, Retry, Scheduler, Submission, SubmissionError
from taskmill.testing import ManualClock
from tests.acceptance.box import BAD_DURATIONS, NAN, NUL, SURROGATE, box, put, refused, shown, unchanged

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


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(n, v, id=f"{n}-{shown(v)}-{i}") for i, (n, v) in enumerate(BAD_CALL_OPTIONS)],
)
@pytest.mark.one_engine("it is refused before the store is asked")
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


async def test_the_last_of_run_after_and_run_at_counts(path: Path) -> None:
    clock = ManualClock()
    at = clock.now() + timedelta(days=1)
    async with Scheduler(path, domains=[box], clock=clock):
        last_is_at = await put.options(run_after=5).options(run_at=at).submit("a")
        last_is_after = await put.options(run_at=at).options(run_after=5).submit("a")
        assert (await last_is_at.record()).run_at == at
        assert (await last_is_after.record()).run_at == clock.now() + timedelta(seconds=5)


# Tags

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


@pytest.mark.parametrize("tags", [pytest.param(t, id=f"{i}-{shown(t)}") for i, t in enumerate(BAD_TAGS)])
@pytest.mark.one_engine("it is refused before the store is asked")
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
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_the_result_of_an_options_function_is_checked_like_the_option(
    path: Path, option: str, function: Callable[..., Any], error: type[Exception]
) -> None:
    domain = Domain("computed")
    options: dict[str, Any] = {option: function}

    @domain.task(**options)
    async def work(path: str) -> None: ...

    async with Scheduler(path, domains=[domain]):
        await refused(path, lambda: work.submit("a"), error, option)
