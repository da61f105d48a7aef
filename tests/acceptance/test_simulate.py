"""Changes of settings can be simulated before they are applied, and then applied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import taskmill.blocking
from taskmill import Aging, ConfigError, Domain, Group, InvalidState, IoBudget, RateLimit, Scheduler, UnknownTaskType
from taskmill.simulation import runs
from taskmill.testing import ManualClock
from tests.acceptance.test_dry_run import contents
from tests.both_engines import Engine

work = Domain("work")
clock = ManualClock()


@work.task
async def step(seconds: float = 10) -> None:
    await clock.sleep(seconds)


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[Scheduler]:
    """A scheduler with two slots, in whose history a step takes 10 s."""
    settings: dict[str, Any] = {"domains": [work], "clock": clock, "max_concurrency": 2}
    async with Scheduler(tmp_path / "tasks.db", **settings) as opened:
        async with opened.running():
            await step.submit()
            await clock.advance(10)
        assert await opened.count() == 0
        yield opened


async def test_more_slots_start_tasks_sooner(scheduler: Scheduler) -> None:
    handles = await scheduler.submit_many([step.prepare()] * 8)
    now = clock.now()
    comparison = await scheduler.simulate({"max_concurrency": 4})
    waits = [(at - now) / timedelta(seconds=1) for at in comparison.before.starts.values()]
    assert waits == [0, 0, 10, 10, 20, 20, 30, 30]
    assert list(comparison.before.starts) == [handle.id for handle in handles]
    waits = [(at - now) / timedelta(seconds=1) for at in comparison.after.starts.values()]
    assert waits == [0, 0, 0, 0, 10, 10, 10, 10]
    assert comparison.before.slots_used == 2
    assert comparison.after.slots_used == 4
    assert comparison.after.waits.groups[""].p90 == timedelta(seconds=10)
    assert comparison.before.waits.priorities[128].p50 == timedelta(seconds=20)


async def test_a_simulation_changes_nothing(scheduler: Scheduler, engine: Engine, tmp_path: Path) -> None:
    await scheduler.submit_many([step.options(group="a", ttl=60).prepare()] * 5)
    before = contents(tmp_path / "tasks.db", engine)
    await scheduler.simulate({"groups": {"a": Group(cap=1)}, "max_concurrency": 1})
    assert contents(tmp_path / "tasks.db", engine) == before


async def test_a_cap_makes_tasks_miss_their_deadlines(scheduler: Scheduler) -> None:
    await scheduler.submit_many([step.options(group="a", ttl=15, io=IoBudget(disk_read=10)).prepare()] * 4)
    comparison = await scheduler.simulate({"groups": {"a": {"cap": 1}}})
    assert (comparison.before.deadlines_missed, comparison.after.deadlines_missed) == (0, 2)
    assert (comparison.before.io.disk_read, comparison.after.io.disk_read) == (40, 20)


async def test_a_cancelled_simulation_stops_its_thread(scheduler: Scheduler) -> None:
    await step.options(run_after="299 days").submit()  # so the run lasts until the limit of occurrences
    await step.options(every=1, key="often").submit()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await scheduler.simulate({}, horizon="300 days")
    async with asyncio.timeout(20):
        assert await asyncio.to_thread(lambda: "the only thread is free")


async def test_a_run_ends_when_only_paused_and_recurring_tasks_are_left(scheduler: Scheduler) -> None:
    await scheduler.group("beta").pause()
    paused = await step.options(group="beta", ttl="1d").submit()
    recurring = await step.options(every=1, key="often").submit()
    comparison = await scheduler.simulate({"resume": ["beta"], "max_concurrency": 1}, horizon="300 days")
    ends = [run.ends_at - clock.now() for run in (comparison.before, comparison.after)]
    assert ends == [timedelta(seconds=10), timedelta(seconds=20)]
    assert [*comparison.before.starts] == [recurring.id]
    assert {*comparison.after.starts} == {recurring.id, paused.id}
    assert (comparison.before.unstarted, comparison.after.unstarted) == (1, 0)
    assert not any("recurring" in note for note in comparison.notes)


async def test_two_runs_with_many_occurrences_end_at_the_same_instant_and_say_so(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_OCCURRENCES", 20)
    await step.options(every=10, key="1").submit()
    await step.options(every=10, key="2", group="beta").submit()
    await step.options(run_after="1h").submit()
    await scheduler.group("beta").pause()
    comparison = await scheduler.simulate({"resume": ["beta"]})
    ends = [run.ends_at - clock.now() for run in (comparison.before, comparison.after)]
    assert ends == [timedelta(seconds=100)] * 2, "with both series there are 20 occurrences after that time"
    assert (comparison.before.slots_used, comparison.after.slots_used) == (1, 2)
    assert comparison.before.unstarted == 2
    assert "recurring tasks run so often that only the time until" in comparison.notes[-1]


async def test_a_paused_group_starts_when_it_is_resumed(scheduler: Scheduler) -> None:
    await scheduler.group("beta").pause()
    await step.options(group="beta").submit()
    comparison = await scheduler.simulate({"resume": ["beta"]})
    assert (comparison.before.unstarted, comparison.after.unstarted) == (1, 0)
    assert not comparison.is_exact
    assert "estimated" in comparison.notes[0]


async def test_a_timed_pause_ends_in_a_simulation(scheduler: Scheduler) -> None:
    await scheduler.group("beta").pause(duration=30)
    handle = await step.options(group="beta").submit()
    comparison = await scheduler.simulate({})
    assert comparison.before.starts[handle.id] == clock.now() + timedelta(seconds=30)


async def test_rates_aging_and_the_default_group_can_be_tried(scheduler: Scheduler) -> None:
    await scheduler.submit_many([step.options(group="a").prepare()] * 3)
    after = (await scheduler.simulate({"rates": {"work::step": RateLimit(1, 100)}})).after
    starts = [(at - clock.now()) / timedelta(seconds=1) for at in after.starts.values()]
    assert starts == [0, 100, 200]
    after = (await scheduler.simulate({"default_group": {"cap": 1}, "aging": {"grace": 60}})).after
    assert [(at - clock.now()) / timedelta(seconds=1) for at in after.starts.values()] == [0, 10, 20]


async def test_the_past_can_be_replayed(scheduler: Scheduler) -> None:
    async with scheduler.running():
        handles = await scheduler.submit_many([step.prepare(20)] * 4)
        await clock.advance(60)
    comparison = await scheduler.simulate({"max_concurrency": 1}, replay="1m")
    assert list(comparison.before.starts) == [handle.id for handle in handles]
    ends = [
        (run.ends_at - min(run.starts.values())) / timedelta(seconds=1) for run in (comparison.before, comparison.after)
    ]
    assert ends == [40, 80]


async def test_the_same_seed_gives_the_same_run(scheduler: Scheduler) -> None:
    async with scheduler.running():
        await scheduler.submit_many([step.prepare(seconds) for seconds in (1, 2, 5, 30)])
        await clock.advance(60)
    await scheduler.submit_many([step.prepare()] * 20)
    first, second, other = [await scheduler.simulate({}, seed=seed) for seed in (1, 1, 2)]
    assert first == second
    assert first.before.starts != other.before.starts


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([], "changes must be a mapping"),
        ({"slots": 3}, "'slots' cannot be changed"),
        ({"max_concurrency": 0}, "max_concurrency must be a whole number"),
        ({"max_concurrency": 2**63}, "max_concurrency must be a whole number from 1 to 1,000,000,000"),
        ({"groups": ["a"]}, "groups must be a mapping"),
        ({"groups": {"a": {"size": 1}}}, r"groups\['a'\] has no field 'size'"),
        ({"groups": {"a": {"cap": 0}}}, r"groups\['a'\]: cap must be at least 1"),
        ({"groups": {"a": 3}}, r"groups\['a'\] must be Group"),
        ({"aging": {"grace": -1}}, "aging: grace must not be negative"),
        ({"rates": {"work::step": 3}}, r"rates\['work::step'\] must be a RateLimit"),
        ({"resume": "beta"}, "resume must be a list"),
        ({"resume": {"groups": [1]}}, "a group in resume must be a string"),
        ({"resume": {"scheduler": "no"}}, r"resume\['scheduler'\] must be True or False"),
        ({"resume": {"domains": ["wrok"]}}, "no domain is named 'wrok'"),
        ({"groups": {"a\0b": {"cap": 1}}}, "a name in groups must not contain the NUL character"),
    ],
)
async def test_a_wrong_change_is_named(scheduler: Scheduler, changes: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        await scheduler.simulate(changes)
    with pytest.raises(ConfigError, match=told):
        await scheduler.apply(changes)


async def test_a_change_of_an_unknown_type_is_refused_before_anything_is_changed(scheduler: Scheduler) -> None:
    await scheduler.group("a").pause()
    changes = {"resume": ["a"], "rates": {"work::stpe": RateLimit(1, 1)}}
    with pytest.raises(UnknownTaskType, match="work::stpe"):
        await scheduler.simulate(changes)
    with pytest.raises(UnknownTaskType, match="work::stpe"):
        await scheduler.apply(changes)
    assert (await scheduler.snapshot()).paused_groups == ["a"]


async def test_wrong_arguments_are_named(scheduler: Scheduler) -> None:
    with pytest.raises(ConfigError, match="horizon"):
        await scheduler.simulate({}, horizon=-1)
    with pytest.raises(ConfigError, match="replay"):
        await scheduler.simulate({}, replay="soon")
    with pytest.raises(ConfigError, match="seed"):
        await scheduler.simulate({}, seed="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_applied_changes_are_durable(scheduler: Scheduler, tmp_path: Path) -> None:
    await scheduler.group("beta").pause()
    changes = {"groups": {"a": {"weight": 3}}, "rates": {"work::step": RateLimit.per_second(5)}, "resume": ["beta"]}
    await scheduler.apply(changes)
    async with Scheduler(tmp_path / "tasks.db") as other:
        snapshot = await other.snapshot()
        assert snapshot.paused_groups == []
        assert [rate.name for rate in snapshot.rates] == ["work::step"]
        await step.options(group="a").submit()
        assert (await other.snapshot()).groups["a"].weight == 3


async def test_declared_settings_are_changed_where_they_are_declared(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidState, match="max_concurrency can be changed only by the scheduler that dispatches"):
        await scheduler.apply({"max_concurrency": 5})
    async with scheduler.running():
        await scheduler.apply({"max_concurrency": 5, "aging": Aging(grace=1)})
        assert (await scheduler.snapshot()).max_concurrency == 5


@pytest.mark.one_engine("the blocking door leads to the same methods")
def test_a_blocking_scheduler_looks_ahead() -> None:
    with taskmill.blocking.Scheduler(domains=[work]) as blocking:
        handle = blocking.submit(step.prepare())
        assert list(blocking.simulate({"max_concurrency": 1}).after.starts) == [handle.id]
        assert blocking.forecast(samples=2).of(handle.id).start is not None
        blocking.apply({"groups": {"a": {"cap": 1}}})
