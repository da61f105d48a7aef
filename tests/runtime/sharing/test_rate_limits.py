"""Rate limits of groups and task types, on the clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, Group, RateLimit, Retry, Scheduler
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.both_engines import Engine
from tests.raw_rows import raw


def _domain(clock: ManualClock, rate: RateLimit | None = None) -> tuple[Domain, Any, list[tuple[str, float]]]:
    domain = Domain("d")
    starts: list[tuple[str, float]] = []

    @domain.task(rate=rate)
    async def work(name: str = "it") -> None:
        starts.append((name, clock.monotonic()))

    return domain, work, starts


def _times(starts: list[tuple[str, float]]) -> list[float]:
    return [at for _, at in starts]


@pytest.mark.parametrize("scope", ["type", "group", "default group"])
async def test_a_burst_then_evenly_spaced(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, scope: str
) -> None:
    limit = RateLimit(2, 1, burst=3)
    domain, work, starts = _domain(manual_clock, limit if scope == "type" else None)
    settings: dict[str, Any] = {}
    if scope == "group":
        settings["groups"] = {"g": Group(rate=limit)}
    elif scope == "default group":
        settings["default_group"] = Group(rate=limit)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], **settings)
    for _ in range(7):
        await work.options(group="g").submit()
    async with scheduler.running():
        await manual_clock.advance(10)
    assert _times(starts) == [0, 0, 0, 0.5, 1, 1.5, 2]


async def test_a_burst_of_one_spaces_all_starts_and_an_idle_bucket_fills_to_its_burst(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(4, 1, burst=1))
    scheduler = await taskmill_scheduler(domains=[domain])
    async with scheduler.running():
        for _ in range(4):
            await work.submit()
        await manual_clock.advance(100)
        for _ in range(2):
            await work.submit()
        await manual_clock.advance(1)
    assert _times(starts) == [0, 0.25, 0.5, 0.75, 100, 100.25]


async def test_group_and_type_limits_both_hold(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 2, burst=4))
    scheduler = await taskmill_scheduler(domains=[domain], groups={"g": Group(rate=RateLimit(1, 1, burst=1))})
    for _ in range(6):
        await work.options(group="g").submit("g")
    async with scheduler.running():
        await manual_clock.advance(20)
    # The group allows one per second; the type has 4 at once and one more each 2 s.
    assert _times(starts) == [0, 1, 2, 3, 4, 5]


async def test_a_closed_rate_delays_no_other_type_of_the_group_and_no_other_group(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, limited, starts = _domain(manual_clock, RateLimit(1, 100))

    @domain.task
    async def free(name: str) -> None:
        starts.append((name, manual_clock.monotonic()))

    scheduler = await taskmill_scheduler(
        domains=[domain], max_concurrency=1, groups={"slow": Group(rate=RateLimit(1, 100))}
    )
    for number in range(3):
        await limited.options(group="g", priority=0).submit(f"limited {number}")
        await free.options(group="slow", priority=0).submit(f"slow {number}")
    for number in range(3):
        await free.options(group="g", priority=200).submit(f"free {number}")
    async with scheduler.running():
        await manual_clock.advance(1)
    assert sorted(name for name, _ in starts) == ["free 0", "free 1", "free 2", "limited 0", "slow 0"]
    assert set(_times(starts)) == {0}


async def test_groups_that_share_a_limited_type_take_turns(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 1, burst=1))
    scheduler = await taskmill_scheduler(domains=[domain])
    for group, count in (("a", 30), ("b", 30), ("c", 30)):
        for _ in range(count):
            await work.options(group=group).submit(group)
    async with scheduler.running():
        await manual_clock.advance(29)
    names = [name for name, _ in starts]
    assert len(names) == 30
    assert {name: names.count(name) for name in "abc"} == {"a": 10, "b": 10, "c": 10}
    assert all(set(names[at : at + 3]) == {"a", "b", "c"} for at in range(0, 30, 3))


async def test_groups_with_weights_share_a_limited_type_by_weight(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 1, burst=1))
    scheduler = await taskmill_scheduler(
        domains=[domain], max_concurrency=4, groups={"heavy": Group(weight=3), "light": Group(weight=1)}
    )
    for group in ("heavy", "light"):
        for _ in range(60):
            await work.options(group=group).submit(group)
    async with scheduler.running():
        await manual_clock.advance(39)
    names = [name for name, _ in starts]
    assert len(names) == 40
    assert 27 <= names.count("heavy") <= 33, names.count("heavy")


# Changed at run time


@pytest.mark.parametrize("scope", ["type", "group"])
async def test_a_change_is_no_new_burst(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, scope: str
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])

    async def limit(rate: RateLimit | None) -> None:
        if scope == "type":
            await scheduler.set_rate_limit("d::work", rate)
        else:
            await scheduler.group("g").set(rate=rate)

    await limit(RateLimit(1, 10, burst=2))
    for _ in range(30):
        await work.options(group="g").submit()
    async with scheduler.running():
        await manual_clock.advance(5)
        assert _times(starts) == [0, 0]
        await limit(RateLimit(1, 1, burst=20))
        await manual_clock.advance(2)
        assert _times(starts[2:]) == [5.5, 6.5], "half a permit was left"
        await limit(RateLimit(1, 1000))
        await manual_clock.advance(400)
        assert len(starts) == 4
        await limit(None)
        await manual_clock.advance(0)
    assert len(starts) == 30, "lifted"


async def test_a_limit_that_was_lifted_and_set_again_is_no_new_burst(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock)
    scheduler = await taskmill_scheduler(domains=[domain])
    limit = RateLimit(1, 100, burst=5)
    await scheduler.group("g").set(rate=limit)
    for _ in range(5):
        await work.options(group="g").submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.group("g").set(rate=None)
        await manual_clock.advance(1)
        await scheduler.group("g").set(rate=limit)
        for _ in range(5):
            await work.options(group="g").submit()
        await manual_clock.advance(1)
    assert len(starts) == 5


async def test_a_bucket_is_durable(manual_clock: ManualClock, tmp_path: Path) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 10, burst=3))
    file = tmp_path / "tasks.db"
    for _ in range(5):
        async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler:
            for _ in range(4):
                await work.submit()
            await scheduler.run_until_idle(timeout=10)
            (rate,) = (await scheduler.snapshot()).rates
            assert (rate.kind, rate.name, rate.permits) == ("type", "d::work", 0)
        await manual_clock.advance(10)
    assert _times(starts) == [0, 0, 0, 10, 20, 30, 40], "one burst, despite the restarts"


@pytest.mark.parametrize("step", [3600, -3600, 3])
@pytest.mark.parametrize("by", ["type", "group"])
async def test_a_step_of_the_wall_clock_adds_no_burst_and_delays_nothing(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, step: int, by: str
) -> None:
    limit = RateLimit(1, 10, burst=3)
    domain, work, starts = _domain(manual_clock, limit if by == "type" else None)
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], groups={"g": Group(rate=limit)})
    async with scheduler.running():
        for _ in range(8):
            await work.options(group="g" if by == "group" else None).submit()
        await manual_clock.advance(4)
        await manual_clock.jump(step)
        await manual_clock.advance(100)
    assert _times(starts) == [0, 0, 0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize("step", [3600, -3600])
async def test_a_bucket_that_a_step_has_shifted_is_durable(
    manual_clock: ManualClock, tmp_path: Path, step: int
) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 10, burst=3))
    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        for _ in range(5):
            await work.submit()
        await manual_clock.advance(4)
        await manual_clock.jump(step)
        await manual_clock.advance(1)
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        await manual_clock.advance(20)
    assert _times(starts) == [0, 0, 0, 10, 20]


async def test_a_limit_set_at_run_time_is_durable(manual_clock: ManualClock, tmp_path: Path) -> None:
    domain, work, starts = _domain(manual_clock)
    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler:
        await scheduler.set_rate_limit("d::work", RateLimit(1, 10))
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler:
        for _ in range(3):
            await work.submit()
        await scheduler.run_until_idle(timeout=10)
        assert len(starts) == 1
        await scheduler.set_rate_limit("d::work", None)
        await scheduler.run_until_idle(timeout=10)
    assert len(starts) == 3


# Which starts take a permit


async def test_tasks_that_end_before_they_start_cost_no_permit(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 10, burst=1))
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        await work.submit("first")
        stale = [await work.options(ttl=5).submit("stale") for _ in range(3)]
        cancelled = [await work.submit("cancelled") for _ in range(3)]
        await work.submit("second")
        await manual_clock.advance(1)
        for handle in cancelled:
            await handle.cancel()
        await manual_clock.advance(20)
        statuses = [getattr(await scheduler.get(handle.id), "ending", None) for handle in stale]
    assert statuses == ["expired"] * 3
    assert starts == [("first", 0), ("second", 10)]


async def test_every_attempt_takes_a_permit_and_so_do_children_and_finalize(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    starts: list[tuple[str, float]] = []

    @domain.task(retry=Retry.constant(2, 0))
    async def flaky() -> None:
        starts.append(("flaky", manual_clock.monotonic()))
        if len(starts) < 2:
            raise ValueError

    @domain.task
    async def child() -> None:
        starts.append(("child", manual_clock.monotonic()))

    @domain.task
    async def parent(ctx: Context) -> None:
        starts.append(("parent", manual_clock.monotonic()))
        await ctx.spawn_many([child.prepare(), child.prepare()])

    @parent.finalize
    async def done(ctx: Context) -> None:
        starts.append(("finalize", manual_clock.monotonic()))

    scheduler = await taskmill_scheduler(domains=[domain], default_group=Group(rate=RateLimit(1, 10)))
    await flaky.submit()
    async with scheduler.running():
        await manual_clock.advance(11)
        await parent.submit()
        await manual_clock.advance(100)
    assert starts == [
        ("flaky", 0),
        ("flaky", 10),
        ("parent", 20),
        ("child", 30),
        ("child", 40),
        ("finalize", 50),
    ]


async def test_hooks_take_no_permit_and_wait_for_none(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    starts: list[tuple[str, float]] = []

    @domain.task(rate=RateLimit(1, 10))
    async def work(name: str) -> None:
        starts.append((name, manual_clock.monotonic()))
        await asyncio.Event().wait()

    @work.on_cancel
    async def undo(name: str) -> None:
        starts.append((f"undo {name}", manual_clock.monotonic()))

    scheduler = await taskmill_scheduler(domains=[domain])
    first = await work.submit("first")
    await work.submit("second")
    async with scheduler.running():
        await manual_clock.advance(5)
        await first.cancel()
        await manual_clock.advance(6)
        seen = list(starts)
        await scheduler.stop(0)
    assert seen == [("first", 0), ("undo first", 5), ("second", 10)]


async def test_waiting_for_a_permit_costs_no_writes(manual_clock: ManualClock, tmp_path: Path, engine: Engine) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 10))
    file = tmp_path / "tasks.db"
    # A value that changes with each commit of another connection.
    commits = "SELECT last_value FROM taskmill_change" if engine.is_postgres else "PRAGMA data_version"
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler:
        await scheduler.submit_many([work.options(group=f"g{n % 7}").prepare() for n in range(500)])
        with raw(file) as watching:
            async with scheduler.running():
                await manual_clock.advance(1)
                (before,) = watching.execute(commits).fetchone()
                for _ in range(8):
                    await manual_clock.advance(1)
                (idle,) = watching.execute(commits).fetchone()
                rows_before = watching.execute("SELECT id, status, queued_at FROM taskmill_task").fetchall()
                await manual_clock.advance(1)
                rows_after = watching.execute("SELECT id, status, queued_at FROM taskmill_task").fetchall()
    assert idle == before, "nothing was written while nothing could start"
    assert len(starts) == 2
    assert len(set(rows_before) - set(rows_after)) == 1, "one start changes one row"


async def test_run_until_idle_does_not_wait_for_permits(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 10))
    scheduler = await taskmill_scheduler(domains=[domain])
    for _ in range(3):
        await work.submit()
    await asyncio.wait_for(scheduler.run_until_idle(), 10)
    assert len(starts) == 1


async def test_the_permits_of_a_bucket_are_shown_at_every_moment(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain, work, _ = _domain(manual_clock, RateLimit(1, 10, burst=2))
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    held = await work.options(run_after=1).submit()
    seen: list[int] = []
    reasons: list[list[str]] = []
    async with scheduler.running():
        for _ in range(3):
            seen.append((await scheduler.snapshot()).rates[0].permits)
            await work.submit()
            await manual_clock.advance(0)
        await manual_clock.advance(5)
        reasons.append([hold.reason for hold in (await held.explain()).holds])
        seen.append((await scheduler.snapshot()).rates[0].permits)
        await manual_clock.advance(25)
        seen.append((await scheduler.snapshot()).rates[0].permits)
    assert seen == [2, 1, 0, 0, 1]
    assert reasons == [["type_rate", "ahead"]]


async def test_a_bucket_from_the_future_does_not_stop_a_restarted_scheduler(
    manual_clock: ManualClock, tmp_path: Path, engine: Engine
) -> None:
    domain, work, starts = _domain(manual_clock, RateLimit(1, 10))
    file = tmp_path / "tasks.db"
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler:
        await scheduler.submit_many([work.prepare() for _ in range(3)])
        await scheduler.run_until_idle(timeout=10)
    await manual_clock.jump(-3600)
    async with Scheduler(file, domains=[domain], clock=manual_clock) as scheduler, scheduler.running():
        await manual_clock.advance(20)
    # If nodes share a bucket, none considers it to be from the future until it was refused a permit.
    assert _times(starts) == ([0, 20] if engine.is_postgres else [0, 10, 20])


@pytest.mark.parametrize("limit", [{"rate": RateLimit.per_minute(1)}, {"cap": 1}], ids=["rate", "cap"])
async def test_the_share_of_a_group_at_a_limit_of_its_own_holds_no_task_back(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, limit: dict[str, Any]
) -> None:
    domain, going_on = Domain("d"), asyncio.Event()

    @domain.task(group="limited")
    async def work() -> None:
        await going_on.wait()

    groups = {"heavy": Group(weight=3), "limited": Group(**limit)}
    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=4, groups=groups)
    await work.submit()
    second = await work.submit()
    async with scheduler.running():
        await manual_clock.advance(0)
        explanation = await second.explain()
        going_on.set()
    assert [hold.reason for hold in explanation.holds] == ["group_rate" if "rate" in limit else "group_cap"]
    assert "share" not in explanation.summary
