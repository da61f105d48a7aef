"""If an option is set at several levels, the most specific one counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from taskmill import Domain, Handle, HistoryRecord, Retry, Scheduler, Submission, SubmissionError
from taskmill.testing import ManualClock

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
    """Submit a task that fails or hangs, with ``option`` given at some levels, and return what happened."""
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
