"""A wrong argument of a call that pauses, limits or tunes is refused by its name, and nothing is stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import (
    Aging,
    ConfigError,
    Domain,
    Group,
    InvalidState,
    RateLimit,
    Scheduler,
    TaskNotFound,
    UnknownTaskType,
)
from tests.acceptance.box import BAD_DURATIONS, NAN, NUL, SURROGATE, box, refused, shown

PAST = datetime(2001, 1, 1, tzinfo=UTC)
NAIVE = datetime(2100, 1, 1)
BAD_PRIORITIES = [-1, 256, 1.5, "high", True, None, NAN]
BAD_RATES = [5, "1/s", 1.5, True, (1, 1), {"permits": 1}]
BAD_WEIGHTS = [0, -1, NAN, math.inf, "3", True, 1e-9, 1e9, 10**400, None]
BAD_CAPS = [0, -1, 1.5, "3", True]
BAD_MINIMUMS = [-1, 1.5, "3", True, None]

Call = Callable[[], Coroutine[Any, Any, Any]]


# Values


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *(("weight", lambda value=value: Group(weight=value)) for value in BAD_WEIGHTS),
        *(("cap", lambda value=value: Group(cap=value)) for value in BAD_CAPS),
        *(("min_slots", lambda value=value: Group(min_slots=value)) for value in BAD_MINIMUMS),
        *(("rate", lambda value=value: Group(rate=value)) for value in BAD_RATES),
        *(("permits", lambda value=value: RateLimit(value, 1)) for value in (0, -1, 1.5, "3", True, None, 10**7)),
        *(("burst", lambda value=value: RateLimit(1, 1, value)) for value in (0, -1, 1.5, "3", True, 10**7)),
        *(("interval", lambda value=value: RateLimit(1, value)) for value in [*BAD_DURATIONS, 0, None]),
        *(("n", lambda value=value: RateLimit.per_second(value)) for value in (0, -1, 0.5, "3", True, None)),
        *(("n", lambda value=value: RateLimit.per_minute(value)) for value in (0, -1, 0.5, "3", True, None)),
        *(("grace", lambda value=value: Aging(grace=value)) for value in [*BAD_DURATIONS, None]),
        *(("interval", lambda value=value: Aging(interval=value)) for value in [*BAD_DURATIONS, 0, None]),
        *(("step", lambda value=value: Aging(step=value)) for value in (0, -1, 256, 1.5, "1", True, None)),
        *(("ceiling", lambda value=value: Aging(ceiling=value)) for value in BAD_PRIORITIES),
        *(("urgent", lambda value=value: Aging(urgent=value)) for value in (-1, 256, 1.5, "high", True)),
        ("urgent", lambda: Aging(ceiling=64, urgent=63)),
    ],
)
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_wrong_part_of_a_value_is_refused_by_name(name: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=rf"\b{name}\b"):
        make()


# Settings and options


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("groups", value) for value in (5, "g", [Group()], None)),
        *(("groups", {"g": value}) for value in (5, None, {"weight": 1})),
        *(("name", {key: Group()}) for key in (5, None, SURROGATE, NUL)),
        *(("default_group", value) for value in (5, None, "g")),
        *(("aging", value) for value in (5, True, "on")),
        *(("preempt_at", value) for value in (-1, 256, 1.5, "high", True)),
    ],
    ids=shown,
)
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_wrong_setting_is_refused_by_name(name: str, value: Any) -> None:
    settings: dict[str, Any] = {"groups" if name == "name" else name: value}
    with pytest.raises(ConfigError, match=rf"\b{name}\b"):
        Scheduler(**settings)


@pytest.mark.parametrize("value", BAD_RATES, ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_wrong_rate_of_a_task_type_is_refused(value: Any) -> None:
    domain = Domain("d")
    with pytest.raises(ConfigError, match=r"\brate\b"):

        @domain.task(rate=value)
        async def work() -> None: ...


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, 1_000_000_001], ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
def test_a_wrong_cap_of_a_domain_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"\bmax_concurrency\b"):
        Domain("d", max_concurrency=value)


# Verbs


@pytest.mark.parametrize("value", BAD_WEIGHTS, ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_weight_is_refused(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.group("g").set(weight=value), ConfigError, "weight")


@pytest.mark.parametrize("value", BAD_CAPS, ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_cap_is_refused(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.group("g").set(cap=value), ConfigError, "cap")


@pytest.mark.parametrize("value", BAD_MINIMUMS, ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_minimum_is_refused(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.group("g").set(min_slots=value), ConfigError, "min_slots")


@pytest.mark.parametrize("value", BAD_RATES, ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_rate_is_refused(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.group("g").set(rate=value), ConfigError, "rate")
    await refused(path, lambda: scheduler.set_rate_limit("box::put", value), ConfigError, "rate")


async def test_a_group_is_set_to_something_that_makes_sense(scheduler: Scheduler, path: Path) -> None:
    group = scheduler.group("g")
    await refused(path, group.set, ConfigError, "weight")
    await refused(path, lambda: group.set(weight=2, cap=0), ConfigError, "cap")
    wrong: Any = group
    await refused(path, lambda: wrong.set(colour="red"), ConfigError, "colour")
    await refused(path, lambda: wrong.pause(colour="red"), ConfigError, "colour")


@pytest.mark.parametrize("value", [5, b"g", True, SURROGATE, NUL], ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_name_is_a_text(scheduler: Scheduler, path: Path, value: Any) -> None:
    for call in (
        lambda: scheduler.group(value).pause(),
        lambda: scheduler.domain(value).pause(),
    ):

        async def attempt(call: Callable[[], Coroutine[Any, Any, Any]] = call) -> None:
            await call()

        await refused(path, attempt, ConfigError, "name")
    await refused(path, lambda: scheduler.set_rate_limit(value, None), ConfigError, "type")


async def test_a_named_domain_or_type_must_exist(scheduler: Scheduler, path: Path) -> None:
    nothing = scheduler.domain("nothing")
    await refused(path, nothing.pause, ConfigError, "nothing")
    await refused(path, nothing.resume, ConfigError, "nothing")
    await refused(path, lambda: nothing.set_max_concurrency(3), ConfigError, "nothing")
    await refused(path, lambda: scheduler.set_rate_limit("put", None), UnknownTaskType, "put")
    await refused(path, lambda: scheduler.set_rate_limit("box::none", None), UnknownTaskType, "box::none")
    for name in ("", "a::b"):
        with pytest.raises(ConfigError, match="name"):
            scheduler.domain(name)


@pytest.mark.parametrize("value", [*BAD_DURATIONS, 0], ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_duration_of_a_pause_is_refused(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.group("g").pause(duration=value), ConfigError, "duration")


@pytest.mark.parametrize("value", [5, "2100-01-01", NAIVE, PAST, timedelta(1), True], ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_end_of_a_pause_is_refused(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.group("g").pause(until=value), ConfigError, "until")


async def test_a_pause_has_one_end(scheduler: Scheduler, path: Path) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    await refused(path, lambda: scheduler.group("g").pause(until=later, duration=5), ConfigError, "until and duration")


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, 1_000_000_001], ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_concurrency_of_a_domain_is_refused(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.domain("box").set_max_concurrency(value), ConfigError, "max_concurrency")


@pytest.mark.parametrize("value", BAD_PRIORITIES, ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_priority_is_refused(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.set_priority(1, value), ConfigError, "priority")
    with pytest.raises(ConfigError, match="priority"):
        scheduler.max_wait(value)


@pytest.mark.parametrize("id", ["1", 1.0, True, None])
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_an_id_is_an_int(scheduler: Scheduler, path: Path, id: Any) -> None:
    await refused(path, lambda: scheduler.set_priority(id, 5), ConfigError, "id")
    await refused(path, lambda: scheduler.explain(id), ConfigError, "id")


@pytest.mark.parametrize("id", [0, -1, 999, 2**70])
async def test_an_unused_id_is_not_found(scheduler: Scheduler, path: Path, id: int) -> None:
    await refused(path, lambda: scheduler.set_priority(id, 5), TaskNotFound, str(id))
    await refused(path, lambda: scheduler.explain(id), TaskNotFound, str(id))


@pytest.mark.one_engine("no store is opened")
async def test_a_scheduler_that_is_not_open_says_so(path: Path) -> None:
    closed = Scheduler(path, domains=[box])
    calls: list[Call] = [
        closed.pause,
        closed.resume,
        closed.group("g").pause,
        closed.group("g").resume,
        lambda: closed.group("g").set(weight=2),
        closed.domain("box").pause,
        closed.domain("box").resume,
        lambda: closed.domain("box").set_max_concurrency(2),
        closed.reset_group_weights,
        lambda: closed.set_rate_limit("box::put", None),
        lambda: closed.set_priority(1, 5),
        lambda: closed.explain(1),
        closed.snapshot,
    ]
    for call in calls:
        with pytest.raises(InvalidState, match="open"):
            await call()
    assert not path.exists()
