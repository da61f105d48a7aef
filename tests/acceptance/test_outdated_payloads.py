"""Stored tasks of older code: parameters and names may have changed since."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from taskmill import (
    ConfigError,
    Domain,
    HistoryRecord,
    RateLimit,
    Scheduler,
    Submission,
    SubmissionError,
    UnknownTaskType,
)
from taskmill.testing import ManualClock


async def test_a_stored_parameter_that_the_handler_no_longer_has_is_ignored_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = Domain("d"), Domain("d")

    @old.task(name="work")
    async def before(path: str, colour: str, depth: int = 1) -> None: ...

    @new.task(name="work")
    async def after(path: str) -> str:
        return path

    async with Scheduler(tmp_path / "tasks.db", domains=[old]):
        for path in ("a", "b", "c"):
            await before.submit(path, "red")
    with caplog.at_level(logging.WARNING, "taskmill"):
        async with Scheduler(tmp_path / "tasks.db", domains=[new]) as scheduler:
            await scheduler.run_until_idle(timeout=10)
            assert {record.result for record in await scheduler.history(status="completed")} == {"a", "b", "c"}
    warnings = [each.getMessage() for each in caplog.records if "no longer takes" in each.getMessage()]
    assert warnings == ["d::work: stored tasks have 'colour', which the handler no longer takes; ignored"]


async def test_a_missing_parameter_makes_a_dead_letter_that_says_what_to_do(tmp_path: Path) -> None:
    old, new, mended = Domain("d"), Domain("d"), Domain("d")

    @old.task(name="work")
    async def before(path: str, colour: str) -> None: ...

    @new.task(name="work")
    async def after(path: str, depth: int) -> None: ...

    @mended.task(name="work")
    async def with_default(path: str, depth: int = 7) -> int:
        return depth

    async with Scheduler(tmp_path / "tasks.db", domains=[old]):
        handle = await before.submit("a", "red")
    async with Scheduler(tmp_path / "tasks.db", domains=[new]) as scheduler:
        await scheduler.run_until_idle(timeout=10)
        record = await scheduler.get(handle.id)
        assert isinstance(record, HistoryRecord)
        assert record.state == "dead_letter"
        assert record.error is not None
        for word in ("no 'depth'", "default", "retry_dead"):
            assert word in record.error
    async with Scheduler(tmp_path / "tasks.db", domains=[mended]) as scheduler:
        again = await scheduler.retry_dead(handle.id)
        await scheduler.run_until_idle(timeout=10)
        assert await again.result() == 7


async def test_a_stored_value_of_another_type_makes_a_dead_letter_that_says_what_to_do(tmp_path: Path) -> None:
    old, new = Domain("d"), Domain("d")

    @old.task(name="work")
    async def before(size: str, gone: int) -> None: ...

    @new.task(name="work")
    async def after(size: int) -> None: ...

    async with Scheduler(tmp_path / "tasks.db", domains=[old]):
        handle = await before.submit("large", 1)
    async with Scheduler(tmp_path / "tasks.db", domains=[new]) as scheduler:
        await scheduler.run_until_idle(timeout=10)
        record = await scheduler.get(handle.id)
    assert isinstance(record, HistoryRecord)
    assert record.state == "dead_letter"
    assert record.error is not None
    for word in ("argument 'size'", "Expected `int`", "retry_dead"):
        assert word in record.error


async def test_a_submission_with_a_parameter_that_the_handler_has_not_is_still_refused() -> None:
    domain = Domain("d")

    @domain.task
    async def work(path: str) -> None: ...

    async with Scheduler(domains=[domain]) as scheduler:
        with pytest.raises(SubmissionError, match="colour"):
            await scheduler.submit(Submission("d::work", {"path": "a", "colour": "red"}))


# Aliases


def _old_and_new(**options: object) -> tuple[Domain, Domain]:
    old, new = Domain("old"), Domain("new", max_concurrency=1)

    @old.task(name="name")
    async def before(n: int) -> int:
        return -n

    @new.task(aliases=["old::name", "older::name"], **options)  # type: ignore[call-overload, untyped-decorator]
    async def work(n: int) -> int:
        return n * 2

    return old, new


async def test_tasks_that_were_queued_under_an_alias_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = _old_and_new()
    async with Scheduler(tmp_path / "tasks.db", domains=[old]) as scheduler:
        queued = await scheduler.submit(Submission("old::name", {"n": 4}))
    with caplog.at_level(logging.WARNING, "taskmill"):
        async with Scheduler(tmp_path / "tasks.db", domains=[new]) as scheduler, scheduler.running():
            assert (await scheduler.wait(queued.id, 10)).result == 8
            by_old_name = await scheduler.submit(Submission("old::name", {"n": 5}))
            by_new_name = await scheduler.submit(Submission("new::work", {"n": 6}))
            assert [await by_old_name.result(10), await by_new_name.result(10)] == [10, 12]
            assert (await by_old_name.record()).type == "old::name"
    assert "no handler" not in caplog.text


async def test_an_alias_is_handled_for_explain_and_for_other_processes(tmp_path: Path) -> None:
    old, new = _old_and_new()
    async with Scheduler(tmp_path / "tasks.db", domains=[old]) as scheduler:
        queued = await scheduler.submit(Submission("old::name", {"n": 4}, run_after=3600))
    async with Scheduler(tmp_path / "tasks.db", domains=[new]) as scheduler, scheduler.running():
        assert "no_handler" not in {hold.reason for hold in (await scheduler.explain(queued.id)).holds}
        async with Scheduler(tmp_path / "tasks.db") as other:
            assert "no_handler" not in {hold.reason for hold in (await other.explain(queued.id)).holds}
            await other.submit(Submission("older::name", {"n": 4}, run_after=3600))
            with pytest.raises(UnknownTaskType):
                await other.submit(Submission("oldest::name", {"n": 4}))


async def test_an_alias_has_the_options_and_limits_of_its_handler(tmp_path: Path) -> None:
    old, new = _old_and_new(priority=7, rate=RateLimit(1, "1h"))
    async with Scheduler(tmp_path / "tasks.db", domains=[old]) as scheduler:
        for n in range(3):
            await scheduler.submit(Submission("old::name", {"n": n}))
    clock = ManualClock()
    async with Scheduler(tmp_path / "tasks.db", domains=[new], clock=clock) as scheduler, scheduler.running():
        handle = await scheduler.submit(Submission("old::name", {"n": 9}, run_after=5))
        assert (await handle.record()).priority == 7
        await clock.advance(10)
        assert await scheduler.count(status="completed") == 1
        (waiting, *_) = await scheduler.tasks(type="old::name")
        assert "type_rate" in {hold.reason for hold in (await scheduler.explain(waiting.id)).holds}


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    "aliases", ["old::name", ["name"], ["old::"], ["a::b::c"], [5], 5, ["d::work"], ["old::name", "old::name"]]
)
def test_an_alias_must_be_a_full_name_other_than_its_own(aliases: object) -> None:
    domain = Domain("d")

    async def work() -> None: ...

    with pytest.raises(ConfigError, match="aliases"):
        domain.task(aliases=aliases)(work)  # type: ignore[call-overload]
    assert domain.types == {}


@pytest.mark.one_engine("no store is opened")
def test_an_alias_must_belong_to_one_handler_only() -> None:
    domain, other = Domain("d"), Domain("old")

    @domain.task(aliases=["old::name"])
    async def work() -> None: ...

    @other.task
    async def name() -> None: ...

    with pytest.raises(ConfigError, match="old::name is already registered"):

        @domain.task(aliases=["old::name"])
        async def more() -> None: ...

    with pytest.raises(ConfigError, match="d::work is already registered"):

        @domain.task(aliases=["d::work"])
        async def again() -> None: ...

    with pytest.raises(ConfigError, match="both d::work and old::name run tasks named old::name"):
        Scheduler(domains=[domain, other])
