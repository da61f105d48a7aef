"""A wrong argument of a verb of the scheduler is refused by its name, and nothing changes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from taskmill import ConfigError, InvalidState, Scheduler, TaskmillError, TaskNotFound, blocking
from taskmill.asgi import lifespan
from tests.acceptance.box import BAD_DURATIONS, SURROGATE, box, put, refused, shown, unchanged


async def _call(verb: Callable[..., Coroutine[Any, Any, Any]], *arguments: object) -> None:
    await verb(*arguments)


@pytest.mark.parametrize("id", ["1", 1.0, True, None, b"1"])
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_an_id_is_an_int(scheduler: Scheduler, path: Path, id: Any) -> None:
    for verb in (scheduler.get, scheduler.cancel, scheduler.retry_dead, scheduler.wait):
        await refused(path, functools.partial(_call, verb, id), ConfigError, "id")


@pytest.mark.parametrize("id", [0, -1, 999, 2**63, 2**70, -(2**70)])
async def test_an_unused_id_is_not_found(scheduler: Scheduler, path: Path, id: int) -> None:
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
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_filter_is_refused_by_name(scheduler: Scheduler, path: Path, name: str, value: Any) -> None:
    filters: dict[str, Any] = {name: value}
    for verb in (scheduler.tasks, scheduler.history, scheduler.count, scheduler.cancel_where):
        with unchanged(path), pytest.raises(TaskmillError, match=name):
            await verb(**filters)


async def test_cancelling_everything_must_be_said(scheduler: Scheduler, path: Path) -> None:
    await refused(path, scheduler.cancel_where, ConfigError, "cancel_where")


@pytest.mark.parametrize("value", [5, None, SURROGATE])
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_texts_to_look_up_are_texts(scheduler: Scheduler, path: Path, value: Any) -> None:
    await refused(path, lambda: scheduler.find(value, "held"), ConfigError, "type")
    await refused(path, lambda: scheduler.find("box::put", value), ConfigError, "key")
    await refused(path, lambda: scheduler.stats(value), ConfigError, "type")
    await refused(path, lambda: scheduler.tag_values(value), ConfigError, "key")


@pytest.mark.parametrize("value", BAD_DURATIONS, ids=shown)
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_duration_of_a_verb_is_refused_by_name(scheduler: Scheduler, path: Path, value: Any) -> None:
    handle = await put.submit("a")
    await refused(path, lambda: scheduler.run_until_idle(timeout=value), ConfigError, "timeout")
    await refused(path, lambda: scheduler.stop(grace=value), ConfigError, "grace")
    await refused(path, lambda: handle.wait(timeout=value), ConfigError, "timeout")
    await refused(path, lambda: handle.result(timeout=value), ConfigError, "timeout")


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "8", None, 1_000_000_001])
@pytest.mark.one_engine("it is refused before the store is asked")
async def test_a_wrong_concurrency_is_refused(scheduler: Scheduler, path: Path, n: Any) -> None:
    await refused(path, lambda: scheduler.set_max_concurrency(n), ConfigError, "max_concurrency")
    assert (await scheduler.snapshot()).max_concurrency == 8


async def test_events_takes_kinds_of_events(scheduler: Scheduler) -> None:
    for kind in ("TaskSubmitted", 5, put, int):
        with pytest.raises(ConfigError, match="events"):
            scheduler.events(kind)  # type: ignore[arg-type, type-var]


@pytest.mark.one_engine("it is refused before the store is asked")
@pytest.mark.parametrize("name", ["type", "domain"])
@pytest.mark.parametrize("value", [put, box, 5, b"box", SURROGATE], ids=shown)
async def test_the_filters_of_events_are_texts(scheduler: Scheduler, name: str, value: Any) -> None:
    filters: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=f"^{name}"):
        scheduler.events(**filters)


@pytest.mark.one_engine("it is refused before the store is asked")
@pytest.mark.parametrize("value", ["yes", 1, None])
async def test_standby_is_true_or_false(scheduler: Scheduler, value: Any) -> None:
    with pytest.raises(ConfigError, match="standby must be True or False"):
        await scheduler.run(standby=value)
    with pytest.raises(ConfigError, match="standby must be True or False"):
        async with scheduler.running(standby=value):
            pass
    with pytest.raises(ConfigError, match="standby must be True or False"):
        lifespan(scheduler, standby=value)
    assert not scheduler.is_dispatching


@pytest.mark.one_engine("no store is opened")
def test_a_lifespan_names_the_kind_of_scheduler_that_it_does_not_take() -> None:
    other: Any = blocking.Scheduler()
    with pytest.raises(ConfigError, match=r"must be a taskmill\.Scheduler, not taskmill\.blocking\.Scheduler"):
        lifespan(other)


@pytest.mark.one_engine("no store is opened")
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
