"""Errors in groups, and reviving the dead letters of a group."""

from __future__ import annotations

import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import ConfigError, Context, Domain, ErrorGroup, GiveUp, Retry, Scheduler, blocking
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from taskmill.verbs import control
from tests.both_engines import name_of
from tests.crash.children import ROOT
from tests.raw_rows import raw
from tests.runtime.errors import failing
from tests.warm_python import run as warm_run

pytestmark = pytest.mark.timeout(60)

shop = Domain("shop", retry=Retry.none())


class Refused(Exception):
    """An exception of the program."""


@shop.task
async def order(number: int) -> None:
    if number % 2:
        raise Refused(f"order {number}")
    raise OSError(f"order {number}")


@shop.task
async def bill(number: int) -> None:
    raise Refused(f"bill {number}")


is_mended = False


@shop.task(retry=Retry.constant(1, delay=0))
async def ship(number: int) -> None:
    if is_mended:
        return
    raise (OSError if number == 1 else GiveUp)(f"order {number}")


async def test_a_group_counts_the_dead_letters_that_are_left(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop])
    await scheduler.submit_many([ship.prepare(number) for number in (1, 1, 2)])
    await scheduler.run_until_idle()

    async def left() -> dict[str, tuple[int, int]]:
        return {group.exception: (group.count, group.dead_letters) for group in await scheduler.error_groups()}

    assert await left() == {"OSError": (4, 2), "GiveUp": (1, 0)}, "a task that gave up is no dead letter"
    monkeypatch.setattr(sys.modules[__name__], "is_mended", True)
    await scheduler.retry_dead(1)
    await scheduler.run_until_idle()
    assert (await left())["OSError"] == (4, 1)
    await scheduler.retry_where(exception="OSError")
    await scheduler.run_until_idle()
    assert (await left())["OSError"] == (4, 0)


async def test_errors_are_grouped_by_type_exception_and_location(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop])
    start = manual_clock.now()
    for number in (1, 2, 3):
        await order.submit(number)
        await scheduler.run_until_idle()
        await manual_clock.advance(60)
    await bill.submit(4)
    await scheduler.run_until_idle()
    first = order.type.function.__code__.co_firstlineno + 3
    assert await scheduler.error_groups() == [
        ErrorGroup(
            type="shop::bill",
            exception="Refused",
            location=f"test_error_groups.py:{bill.type.function.__code__.co_firstlineno + 2} in bill",
            count=1,
            first_at=start + timedelta(minutes=3),
            last_at=start + timedelta(minutes=3),
            sample_ids=(4,),
            dead_letters=1,
        ),
        ErrorGroup(
            type="shop::order",
            exception="Refused",
            location=f"test_error_groups.py:{first} in order",
            count=2,
            first_at=start,
            last_at=start + timedelta(minutes=2),
            sample_ids=(3, 1),
            dead_letters=2,
        ),
        ErrorGroup(
            type="shop::order",
            exception="OSError",
            location=f"test_error_groups.py:{first + 1} in order",
            count=1,
            first_at=start + timedelta(minutes=1),
            last_at=start + timedelta(minutes=1),
            sample_ids=(2,),
            dead_letters=1,
        ),
    ]


async def test_a_group_counts_attempts_and_samples_at_most_five_tasks(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task(retry=Retry.constant(2, 0))
    async def fail() -> None:
        raise ValueError("no")

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    for _ in range(7):
        await fail.submit()
    await scheduler.run_until_idle()
    (group,) = await scheduler.error_groups()
    assert (group.count, group.sample_ids) == (21, (7, 6, 5, 4, 3))


async def test_groups_since_an_instant_or_a_duration(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    scheduler = await taskmill_scheduler(domains=[shop])
    for number in (1, 2):
        await bill.submit(number)
        await scheduler.run_until_idle()
        await manual_clock.advance(3600)
    for since, count in [
        (None, 2),
        ("2h", 2),
        ("1h", 1),
        (3600, 1),
        (timedelta(hours=1, milliseconds=-1), 0),
        (manual_clock.now() - timedelta(hours=2), 2),
        (manual_clock.now(), 0),
    ]:
        groups = await scheduler.error_groups(since)
        assert sum(group.count for group in groups) == count, since


@pytest.mark.parametrize("since", [datetime(2030, 1, 1), "yesterday", -1, float("nan"), True, object()])
async def test_since_that_is_no_time_is_refused_by_name(taskmill_scheduler: SchedulerFactory, since: Any) -> None:
    scheduler = await taskmill_scheduler()
    with pytest.raises(ConfigError, match="since"):
        await scheduler.error_groups(since)


async def test_a_crash_and_an_error_without_an_exception_are_groups_of_their_own(tmp_path: Path) -> None:
    domain = Domain("d")

    @domain.task
    async def large() -> str:
        return "x" * 2_000_000

    async with Scheduler(tmp_path / "tasks.db", domains=[failing.work, domain]) as scheduler:
        await failing.kill_own_process.submit()
        await large.submit()
        await scheduler.run_until_idle()
        found = {group.type: (group.exception, group.location) for group in await scheduler.error_groups()}
        assert found == {"work::kill_own_process": ("crashed", None), "d::large": ("gave_up", None)}
        assert {record.id for record in await scheduler.history(location=None)} == {1, 2}
        assert {record.id for record in await scheduler.history(exception="crashed", location=None)} == {1}


async def test_tasks_and_history_are_found_by_their_last_error(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task(retry=Retry.constant(1, 0))
    async def fail(ctx: Context, last: str) -> None:
        if ctx.attempt == 1:
            raise OSError("first")
        raise {"value": ValueError, "key": KeyError}[last]("second")

    @domain.task(retry=Retry.constant(1, 3600))
    async def wait() -> None:
        raise OSError("waits")

    scheduler = await taskmill_scheduler(domains=[domain])
    for last in ("value", "key"):
        await fail.submit(last)
    await wait.submit()
    await scheduler.run_until_idle()
    assert [record.id for record in await scheduler.history(exception="ValueError")] == [1]
    assert await scheduler.history(exception="OSError") == []
    assert [record.id for record in await scheduler.tasks(exception="OSError")] == [3]
    assert await scheduler.count(exception="OSError") == 1
    assert await scheduler.count(exception="KeyError", status="dead_letter") == 1
    group = next(group for group in await scheduler.error_groups() if group.exception == "KeyError")
    assert group.location is not None
    assert [record.id for record in await scheduler.history(location=group.location, limit=5)] == [2, 1]
    assert [record.id for record in await scheduler.dead_letters(exception="KeyError", location=group.location)] == [2]


async def test_the_dead_letters_of_a_group_return_to_the_queue(taskmill_scheduler: SchedulerFactory) -> None:
    scheduler = await taskmill_scheduler(domains=[shop])
    for number in range(6):
        await order.submit(number)
        await bill.submit(number)
    await scheduler.run_until_idle()
    group = next(group for group in await scheduler.error_groups() if group.exception == "OSError")
    ids = await scheduler.retry_where(type=group.type, exception=group.exception, location=group.location)
    assert ids == [1, 5, 9]
    assert [record.id for record in await scheduler.tasks(status="pending")] == ids
    assert await scheduler.count(status="dead_letter") == 9
    assert await scheduler.retry_where(type=group.type, exception=group.exception, location=group.location) == []


async def test_retried_tasks_run_at_once_in_the_scheduler_that_dispatches(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "REVIVE_BITE", 2)
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def second_time(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    scheduler = await taskmill_scheduler(domains=[domain])
    handles = [await second_time.submit() for _ in range(5)]
    async with scheduler.running():
        for handle in handles:
            await handle.wait()
        assert await scheduler.retry_where(domain="d") == [handle.id for handle in handles]
        assert [await handle.result() for handle in handles] == [2] * 5


async def test_a_task_that_fails_again_meanwhile_does_not_return_twice(
    taskmill_scheduler: SchedulerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "REVIVE_BITE", 1)
    scheduler = await taskmill_scheduler(domains=[shop])
    handles = [await bill.submit(number) for number in range(3)]
    await scheduler.run_until_idle()
    whole = scheduler._store.revive_all

    async def revive_all(ids: list[int], now: int) -> Any:
        revived = await whole(ids, now)
        await scheduler.run_until_idle()
        return revived

    monkeypatch.setattr(scheduler._store, "revive_all", revive_all)
    assert len(await scheduler.retry_where(type="shop::bill")) == 3
    assert [(await handle.record()).attempt for handle in handles] == [2, 2, 2]


async def test_a_dead_letter_whose_key_is_held_stays(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task(key=lambda name: name)
    async def fail(name: str) -> None:
        raise ValueError(name)

    scheduler = await taskmill_scheduler(domains=[domain])
    for name in ("a", "a", "b", "c"):
        await fail.submit(name)
        await scheduler.run_until_idle()
    await scheduler.pause()
    holder = await fail.submit("c")
    # Of two dead letters with one key the later one returns.
    assert await scheduler.retry_where(domain="d") == [2, 3]
    assert [record.id for record in await scheduler.dead_letters()] == [4, 1]
    assert {record.id for record in await scheduler.tasks()} == {2, 3, holder.id}


async def test_only_dead_letters_are_retried_and_a_filter_is_needed(taskmill_scheduler: SchedulerFactory) -> None:
    scheduler = await taskmill_scheduler(domains=[shop, failing.work])
    await failing.give_up.submit()
    await bill.submit(1)
    await scheduler.run_until_idle()
    with pytest.raises(ConfigError, match="at least one filter"):
        await scheduler.retry_where()
    with pytest.raises(ConfigError, match="at least one filter"):
        await scheduler.retry_where(limit=5)
    with pytest.raises(ConfigError, match="status cannot be failed"):
        await scheduler.retry_where(status="failed")
    with pytest.raises(ConfigError, match="unknown filter 'colour'"):
        await scheduler.retry_where(colour="red")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="exception"):
        await scheduler.retry_where(exception=ValueError)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="location"):
        await scheduler.history(location=5)  # type: ignore[arg-type]
    assert await scheduler.retry_where(domain="work") == []
    assert await scheduler.retry_where(status="dead_letter") == [2]


async def test_a_killed_retry_leaves_whole_batches_and_a_second_one_does_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with Scheduler(path, domains=[shop]) as scheduler:
        await scheduler.submit_many([bill.prepare(number) for number in range(25)])
        await scheduler.run_until_idle()
        errors = [record.errors for record in await scheduler.history()]
    done = warm_run(
        [sys.executable, "-m", "tests.runtime.errors.killed_retry", name_of(path)], check=False, cwd=ROOT, timeout=50
    )
    assert done.returncode == -signal.SIGKILL
    async with Scheduler(path, domains=[shop]) as scheduler:
        assert await scheduler.count(status="pending") == 10
        assert await scheduler.count(status="dead_letter") == 15
        assert len(await scheduler.retry_where(status="dead_letter")) == 15
        assert await scheduler.count(status="pending") == 25
        assert await scheduler.count(status="dead_letter") == 0
        assert len(errors) == 25
        assert all(len(record.errors) == 1 for record in await scheduler.tasks())
    with raw(path) as rows:
        assert rows.execute("SELECT count(*) FROM taskmill_history").fetchone()[0] == 0


def test_the_blocking_scheduler_has_both_verbs(tmp_path: Path) -> None:
    with blocking.Scheduler(tmp_path / "tasks.db", domains=[shop]) as scheduler:
        scheduler.submit(bill.prepare(1))
        scheduler.run_until_idle()
        (group,) = scheduler.error_groups(since="1h")
        assert group.sample_ids == (1,)
        assert scheduler.retry_where(exception="Refused") == [1]


async def test_the_exception_of_a_giveup_is_its_own_class(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    class Hopeless(GiveUp):
        """A reason of the program to give up."""

    @domain.task
    async def fail() -> None:
        raise Hopeless("never")

    scheduler = await taskmill_scheduler(domains=[domain])
    await fail.submit()
    await scheduler.run_until_idle()
    (group,) = await scheduler.error_groups()
    assert group.exception == "Hopeless"


async def test_names_that_an_index_refuses_stop_nothing(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d" * 1200, retry=Retry.none())
    odd = type("Ä" * 5000, (Exception,), {})

    @domain.task(name="t" * 1200)
    async def fail() -> None:
        raise odd("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await fail.submit()
    await scheduler.run_until_idle()
    record = await handle.record()
    assert record.state == "dead_letter"
    assert len(record.errors) == 1
    (group,) = await scheduler.error_groups()
    assert group.exception == "Ä" * 100
    assert record.type.startswith(group.type)
