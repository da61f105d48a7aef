"""A dry run predicts the result of a submission, and changes nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import taskmill.blocking
from taskmill import (
    CyclicDependency,
    Domain,
    DuplicateTask,
    Group,
    InvalidDependency,
    IoBudget,
    RateLimit,
    Reading,
    Resources,
    Scheduler,
    Submission,
    SubmissionError,
    UnknownTaskType,
)
from taskmill.events import Event
from taskmill.testing import ManualClock
from tests.both_engines import Engine
from tests.raw_rows import raw

TABLES = ["task", "history", "dependency", "series", "control", "setting", "task_tag", "tally", "type", "cron"]

work = Domain("work")


@work.task
async def step(n: int = 0) -> int:
    return n


@work.task(key=lambda n: f"key {n}")
async def keyed(n: int) -> int:
    return n


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncIterator[Scheduler]:
    async with Scheduler(tmp_path / "tasks.db", domains=[work], clock=ManualClock(), max_concurrency=2) as opened:
        yield opened


def contents(store: Path, engine: Engine) -> object:
    """Return everything that a store holds: the bytes of its files, or the rows of its tables and the last id."""
    if not engine.is_postgres:
        return [path.read_bytes() for path in (store, Path(f"{store}-wal")) if path.exists()]
    with raw(store) as connection:
        rows = [connection.execute(f"SELECT * FROM taskmill_{table} ORDER BY 1, 2").fetchall() for table in TABLES]
        return rows, connection.execute("SELECT last_value, is_called FROM taskmill_task_id").fetchall()


async def test_each_submission_has_its_outcome(scheduler: Scheduler) -> None:
    await keyed.submit(1)
    await keyed.submit(2)
    await keyed.submit(3)
    projection = await scheduler.dry_run(
        [
            keyed.prepare(1),
            keyed.options(priority=0).prepare(2),
            keyed.options(on_duplicate="supersede").prepare(3),
            keyed.options(on_duplicate="reject").prepare(4),
            step.prepare(),
        ]
    )
    assert projection.outcomes == ["duplicate", "upgraded", "superseded", "inserted", "inserted"]
    assert projection.errors == {}


async def test_a_rejected_submission_has_the_exception_that_submit_would_raise(scheduler: Scheduler) -> None:
    first = await keyed.submit(1)
    projection = await scheduler.dry_run(
        [
            step.prepare(),
            keyed.options(on_duplicate="reject").prepare(1),
            step.options(depends_on=[999]).prepare(),
            Submission("work::unknown", {}),
            step.options(depends_on=["a"], ref="b").prepare(),
            step.options(depends_on=["b"], ref="a").prepare(),
        ]
    )
    assert projection.outcomes == ["inserted", *["rejected"] * 5]
    kinds = [DuplicateTask, InvalidDependency, UnknownTaskType, CyclicDependency, CyclicDependency]
    assert [type(projection.errors[index]) for index in range(1, 6)] == kinds
    duplicate = projection.errors[1]
    assert isinstance(duplicate, DuplicateTask)
    assert duplicate.existing_id == first.id


async def test_an_earlier_submission_of_a_key_is_not_rejected_for_a_later_one(scheduler: Scheduler) -> None:
    await keyed.submit(1)
    projection = await scheduler.dry_run([keyed.prepare(1), keyed.options(on_duplicate="reject").prepare(1)])
    assert projection.outcomes == ["duplicate", "rejected"]


async def test_a_dependent_of_a_rejected_submission_is_rejected(scheduler: Scheduler) -> None:
    await keyed.submit(1)
    reject = keyed.options(on_duplicate="reject", ref="first").prepare(1)
    projection = await scheduler.dry_run([reject, step.options(depends_on=["first"]).prepare()])
    assert projection.outcomes == ["rejected", "rejected"]
    assert [type(wrong) for wrong in projection.errors.values()] == [DuplicateTask, InvalidDependency]


async def test_the_key_of_an_expired_task_is_free_and_its_end_is_not_stored(
    scheduler: Scheduler, engine: Engine, tmp_path: Path
) -> None:
    """The next occurrence of the series takes the key again, in the dry run and then in the store."""
    clock = scheduler._clock
    assert isinstance(clock, ManualClock)
    await keyed.options(ttl=5).submit(1)
    await keyed.options(ttl=5, every=3600).submit(2)
    await clock.advance(10)
    before = contents(tmp_path / "tasks.db", engine)
    batch = [keyed.prepare(1), keyed.prepare(2)]
    assert (await scheduler.dry_run(batch)).outcomes == ["inserted", "duplicate"]
    assert contents(tmp_path / "tasks.db", engine) == before
    assert [handle.kind for handle in await scheduler.submit_many(batch)] == ["inserted", "duplicate"]


async def test_no_event_is_sent_and_no_id_is_used(scheduler: Scheduler) -> None:
    first = await step.submit()
    heard = scheduler.events(Event)
    await scheduler.dry_run([step.prepare(), keyed.prepare(1)])
    second = await step.submit()
    assert second.id == first.id + 1
    event: Any = await anext(heard)
    assert event.task_id == second.id


# Any batch on any store


def random_submission(chance: random.Random, ids: list[int], refs: list[str]) -> Submission:
    options: dict[str, Any] = {"priority": chance.choice([0, 64, 128, 192])}
    if chance.random() < 0.3:
        options["depends_on"] = [
            chance.choice([*ids, 10_000]) if chance.random() < 0.7 else chance.choice(["a", "b", "c"]) for _ in range(2)
        ]
        options["on_dependency_failure"] = chance.choice(["cancel", "ignore", "fail"])
    if chance.random() < 0.2 and refs:
        options["ref"] = refs.pop()
    if chance.random() < 0.2:
        options["ttl"] = chance.choice([1, 5, 60])
    if chance.random() < 0.2:
        options["run_after"] = chance.choice([0, 3, 60])
    if chance.random() < 0.1:
        options["every"] = 7
    if chance.random() < 0.3:
        return step.options(**options).prepare()
    options["on_duplicate"] = chance.choice(["skip", "supersede", "reject", "requeue"])
    return keyed.options(**options).prepare(chance.randrange(4))


@pytest.mark.parametrize("seed", range(8))
async def test_a_dry_run_foretells_the_real_submission_and_changes_nothing(
    seed: int, engine: Engine, tmp_path: Path
) -> None:
    chance, clock, store = random.Random(seed), ManualClock(), tmp_path / "tasks.db"
    async with Scheduler(store, domains=[work], clock=clock, max_concurrency=2) as scheduler:
        ids: list[int] = []
        rejected = accepted = 0
        for _ in range(engine.fewer(60)):
            batch = [
                random_submission(chance, ids or [1], refs)
                for refs in [["a", "b", "c"]]
                for _ in range(chance.choice([1, 2, 3, 6]))
            ]
            before = contents(store, engine)
            projection = await scheduler.dry_run(batch)
            assert contents(store, engine) == before
            if projection.errors:
                rejected += 1
                with pytest.raises(SubmissionError) as raised:
                    await scheduler.submit_many(batch)
                told = {(type(wrong), str(wrong)) for wrong in projection.errors.values()}
                assert (type(raised.value), str(raised.value)) in told
            left = [one for index, one in enumerate(batch) if index not in projection.errors]
            handles = await scheduler.submit_many(left)
            accepted += len(handles)
            kinds = [kind for kind in projection.outcomes if kind != "rejected"]
            assert [handle.kind for handle in handles] == kinds
            ids += [handle.id for handle in handles]
            if chance.random() < 0.3:
                await clock.advance(chance.choice([1, 10]))
            if chance.random() < 0.3:
                await scheduler.cancel(chance.choice(ids)) if ids else None
            if chance.random() < 0.1:
                await scheduler.run_until_idle()
        assert rejected
        assert accepted


# Phases


class QuietMachine:
    """A sampler of a machine that does nothing."""

    def sample(self) -> Reading:
        return Reading(0.0, 0, 0, 0, 0)


async def planned(submissions: list[Submission], **settings: Any) -> list[tuple[list[int], str]]:
    async with Scheduler(domains=[work], clock=ManualClock(), **settings) as scheduler:
        projection = await scheduler.dry_run(submissions)
        return [(list(phase.submissions), phase.ends) for phase in projection.phases]


async def test_slots_end_a_phase() -> None:
    phases = await planned([step.prepare()] * 5, max_concurrency=2)
    assert phases == [([0, 1], "slots"), ([2, 3], "slots"), ([4], "done")]


async def test_a_cap_ends_a_phase() -> None:
    batch = [step.options(group="photos").prepare()] * 3
    assert await planned(batch, groups={"photos": Group(cap=2)}) == [([0, 1], "cap"), ([2], "done")]


async def test_a_dependency_ends_a_phase() -> None:
    batch = [step.options(depends_on=["first"]).prepare(), step.options(ref="first").prepare()]
    assert await planned(batch) == [([1], "dependency"), ([0], "done")]


async def test_a_rate_ends_a_phase() -> None:
    batch = [step.options(group="api").prepare()] * 3
    rate = RateLimit.per_minute(2)
    assert await planned(batch, groups={"api": Group(rate=rate)}) == [([0, 1], "rate"), ([2], "done")]


async def test_a_due_time_ends_a_phase() -> None:
    batch = [step.prepare(), step.options(run_after="1h").prepare()]
    assert await planned(batch) == [([0], "due"), ([1], "done")]


async def test_the_bytes_of_a_batch_are_summed_and_io_room_ends_a_phase() -> None:
    batch = [step.options(io=IoBudget(disk_read="100MB")).prepare()] * 3
    resources = Resources(sampler=QuietMachine(), capacity=IoBudget(disk_read="100MB"))
    clock = ManualClock()
    async with (
        Scheduler(domains=[work], clock=clock, resources=resources) as scheduler,
        scheduler.running(),
    ):
        await clock.advance(5)
        projection = await scheduler.dry_run(batch)
        assert [(list(phase.submissions), phase.ends) for phase in projection.phases] == [
            ([0], "io"),
            ([1], "io"),
            ([2], "done"),
        ]
        assert projection.total_io == IoBudget(disk_read="300MB")


async def test_the_estimated_duration_comes_from_past_runs_of_the_type(scheduler: Scheduler) -> None:
    clock = scheduler._clock
    assert isinstance(clock, ManualClock)
    slow = Domain("slow")

    @slow.task
    async def sleep() -> None:
        await clock.sleep(30)

    async with Scheduler(domains=[slow], clock=clock, max_concurrency=2) as own, own.running():
        await own.submit_many([sleep.prepare()] * 4)
        for _ in range(2):
            await clock.advance(30)
        assert await own.count() == 0
        projection = await own.dry_run([sleep.prepare()] * 5)
        assert projection.estimated_duration is not None
        assert projection.estimated_duration.total_seconds() == 90


@pytest.mark.one_engine("the blocking door leads to the same method")
def test_a_blocking_scheduler_has_dry_runs() -> None:
    with taskmill.blocking.Scheduler(domains=[work]) as scheduler:
        assert scheduler.dry_run([step.prepare()]).outcomes == ["inserted"]
        assert scheduler.count() == 0
