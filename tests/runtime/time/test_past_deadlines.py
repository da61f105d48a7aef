"""A task past its deadline is expired in every view, whether or not a scheduler dispatches."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, DuplicateTask, InvalidState, OnDuplicate, Retry, RetryLater, Scheduler
from taskmill.events import TaskExpired
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.raw_rows import raw

domain = Domain("d", group="g")
ran: list[int] = []


@domain.task(key="k", tags={"a": "b"})
async def work(n: int) -> int:
    ran.append(n)
    return n


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.fixture
async def scheduler(taskmill_scheduler: SchedulerFactory, any_store: str) -> Scheduler:
    return await taskmill_scheduler(store=any_store, domains=[domain])


@pytest.mark.parametrize("strategy", list(OnDuplicate))
async def test_a_submission_finds_the_key_of_an_expired_task_free(
    scheduler: Scheduler, manual_clock: ManualClock, strategy: OnDuplicate
) -> None:
    listener = scheduler.events(TaskExpired)
    old = await work.options(ttl=10).submit(1)
    await manual_clock.advance(10)
    new = await work.options(on_duplicate=strategy).submit(2)
    assert (new.kind, new.replaced_id) == ("inserted", None)
    event = await anext(listener)
    assert isinstance(event, TaskExpired)
    assert (event.task_id, event.dedup_key) == (old.id, "k")
    assert (await old.wait()).ending == "expired"
    await scheduler.run_until_idle()
    assert (ran, await new.result()) == ([2], 2)


async def test_up_to_its_deadline_the_key_is_held(scheduler: Scheduler, manual_clock: ManualClock) -> None:
    old = await work.options(ttl=10).submit(1)
    await manual_clock.advance(9.999)
    assert (await work.submit(2)).kind == "duplicate"
    with pytest.raises(DuplicateTask):
        await work.options(on_duplicate="reject").submit(2)
    assert (await old.record()).state == "pending"


async def test_every_reader_sees_an_expired_task_as_ended_and_writes_nothing(
    taskmill_scheduler: SchedulerFactory, tmp_path: Path, manual_clock: ManualClock
) -> None:
    path = tmp_path / "tasks.db"
    scheduler = await taskmill_scheduler(store=path, domains=[domain])
    soon = await work.options(ttl=10, key="soon").submit(1)
    delayed = await work.options(ttl=10, key="delayed", run_after=60).submit(2)
    blocked = await work.options(ttl=10, key="blocked", depends_on=soon).submit(3)
    stays = await work.options(key="stays").submit(4)
    await manual_clock.advance(15)
    with raw(path) as connection:
        before = connection.execute("SELECT id, status FROM taskmill_task ORDER BY id").fetchall()
    ids = [soon.id, delayed.id, blocked.id]
    for handle in (soon, delayed, blocked):
        record = await handle.record()
        assert isinstance(record, HistoryRecord)
        assert (record.state, record.ending, record.ended_at) == ("expired", "expired", record.expires_at)
        assert (await handle.explain()).status == "expired"
        assert (await handle.wait()).ending == "expired"
    found = await scheduler.find("d::work", "soon")
    assert found is not None
    assert found.state == "expired"
    record = await stays.record()
    assert isinstance(record, TaskRecord)
    assert record.state == "pending"
    filters: dict[str, Any]
    for filters in ({}, {"status": "pending"}, {"group": "g"}, {"tags": {"a": "b"}}):
        assert [task.id for task in await scheduler.tasks(**filters)] == [stays.id], filters
        assert await scheduler.count(**filters) == 1, filters
    for status in ("scheduled", "blocked"):
        assert await scheduler.tasks(status=status) == []
        assert await scheduler.count(status=status) == 0
    for filters in ({}, {"status": "expired"}, {"tags": {"a": "b"}}, {"status": "expired", "type": "d::work"}):
        assert sorted(task.id for task in await scheduler.history(**filters)) == ids, filters
    assert await scheduler.history(status="completed") == []
    assert await scheduler.count(status="expired") == 3
    assert await scheduler.count(status="expired", tags={"a": "b"}) == 3
    (newest,) = await scheduler.history(limit=1)
    assert [task.id for task in await scheduler.history(before=newest.id)] == ids[1::-1]
    snapshot = await scheduler.snapshot()
    assert (snapshot.counts["pending"], snapshot.counts["expired"], snapshot.groups["g"].pending) == (1, 3, 1)
    with raw(path) as connection:
        assert connection.execute("SELECT id, status FROM taskmill_task ORDER BY id").fetchall() == before
    await scheduler.run_until_idle()
    assert (await scheduler.snapshot()).counts["expired"] == 3
    assert [(await scheduler.get(id)).state for id in ids] == ["expired"] * 3
    assert ran == [4]


async def test_an_expired_task_cannot_be_cancelled(scheduler: Scheduler, manual_clock: ManualClock) -> None:
    old = await work.options(ttl=10).submit(1)
    await manual_clock.advance(11)
    assert await old.cancel() is False
    assert (await old.wait()).ending == "expired"
    assert await scheduler.cancel_where(type="d::work") == []


async def test_the_priority_of_an_expired_task_cannot_be_changed(
    scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    old = await work.options(ttl=10).submit(1)
    await manual_clock.advance(10)
    with pytest.raises(InvalidState, match="expired"):
        await scheduler.set_priority(old.id, 5)
    assert (await old.record()).priority == 128


async def test_expired_tasks_are_not_among_the_values_of_a_tag(scheduler: Scheduler, manual_clock: ManualClock) -> None:
    for n in range(3):
        await work.options(key=None, ttl=10 if n else None, tags={"n": str(n)}).submit(n)
    assert await scheduler.tag_values("a") == {"b": 3}
    await manual_clock.advance(10)
    assert await scheduler.tag_values("a") == {"b": 1}
    assert await scheduler.tag_values("n") == {"0": 1}


@pytest.mark.parametrize("verb", ["pause_recurring", "resume_recurring", "cancel_recurring"])
async def test_an_expired_occurrence_stays_expired_when_its_series_is_changed(
    scheduler: Scheduler, manual_clock: ManualClock, verb: str
) -> None:
    tick = await work.options(ttl=10, every=60).submit(1)
    await manual_clock.advance(10)
    listener = scheduler.events(TaskExpired)
    await getattr(scheduler, verb)(tick.id)
    assert (await anext(listener)).task_id == tick.id
    assert (await tick.record()).state == "expired"
    states = [task.state for task in await scheduler.tasks()]
    assert states == {"pause_recurring": ["paused"], "resume_recurring": ["scheduled"]}.get(verb, [])


async def test_a_series_whose_last_occurrence_has_expired_has_ended(
    scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    tick = await work.options(ttl=10, every=60, max_runs=1).submit(1)
    await manual_clock.advance(10)
    listener = scheduler.events(TaskExpired)
    with pytest.raises(InvalidState):
        await scheduler.pause_recurring(tick.id)
    assert (await anext(listener)).task_id == tick.id


async def test_dependents_and_series_follow_when_a_submission_ends_an_expired_task(
    scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    old = await work.options(ttl=10).submit(1)
    dependent = await work.options(key=None, depends_on=old).submit(2)
    tick = await work.options(key="tick", ttl=10, every=60).submit(3)
    await manual_clock.advance(11)
    assert (await work.submit(4)).kind == "inserted"
    assert (await dependent.wait()).ending == "dependency_failed"
    again = await work.options(key="tick").submit(5)
    assert (again.kind, (await tick.wait()).ending) == ("duplicate", "expired")
    record = await again.record()
    assert (record.state, record.payload) == ("scheduled", {"n": 3})


@pytest.mark.parametrize("scope", ["scheduler", "group", "domain"])
async def test_the_time_of_a_paused_task_stands_still(
    scheduler: Scheduler, manual_clock: ManualClock, scope: str
) -> None:
    scopes: dict[str, Any] = {"scheduler": scheduler, "group": scheduler.group("g"), "domain": scheduler.domain("d")}
    what = scopes[scope]
    old = await work.options(ttl=10).submit(1)
    await manual_clock.advance(5)
    await what.pause()
    await manual_clock.advance(100)
    assert (await old.record()).state == "paused"
    assert (await work.submit(2)).kind == "duplicate"
    assert await scheduler.count(status="paused") == 1
    await what.resume()
    await manual_clock.advance(4.999)
    assert (await work.submit(2)).kind == "duplicate"
    assert (await old.record()).state == "pending"
    await manual_clock.advance(0.001)
    assert (await old.record()).state == "expired"
    assert await scheduler.count() == 0
    assert (await work.submit(2)).kind == "inserted"


async def test_a_task_that_expired_before_the_pause_has_expired(
    scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    old = await work.options(ttl=10).submit(1)
    await manual_clock.advance(11)
    await scheduler.group("g").pause()
    await manual_clock.advance(50)
    assert (await old.record()).state == "expired"
    assert (await scheduler.count(), await scheduler.count(status="expired")) == (0, 1)
    assert (await work.submit(2)).kind == "inserted"


async def test_a_pause_that_has_ended_by_itself_counts_until_then(
    scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    old = await work.options(ttl=10).submit(1)
    await scheduler.group("g").pause(duration=100)
    await manual_clock.advance(109)
    assert (await old.record()).state == "pending"
    assert (await work.submit(2)).kind == "duplicate"
    await manual_clock.advance(1)
    assert (await old.record()).state == "expired"
    assert await scheduler.count() == 0
    assert (await work.submit(2)).kind == "inserted"


async def test_a_task_that_has_started_does_not_expire_while_it_runs(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    own = Domain("own", retry=Retry.constant(3, delay=100))
    started, go = asyncio.Event(), asyncio.Event()

    @own.task(key="k", ttl=10)
    async def slow(ctx: Context) -> None:
        started.set()
        await go.wait()
        raise RetryLater("not yet")

    scheduler = await taskmill_scheduler(store=any_store, domains=[own])
    async with scheduler.running():
        handle = await slow.submit()
        await started.wait()
        await manual_clock.advance(50)
        assert (await handle.record()).state == "running"
        assert (await slow.submit()).kind == "duplicate"
        go.set()
        assert (await handle.wait()).ending == "expired", "it waits for a retry past its deadline"
        assert (await slow.options(ttl=None).submit()).kind == "inserted"


async def test_a_waiter_learns_of_the_deadline_though_nothing_dispatches(
    scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    handle = await work.options(ttl=10).submit(1)
    waiting = asyncio.create_task(handle.wait())
    await manual_clock.advance(timedelta(seconds=9))
    assert not waiting.done()
    await manual_clock.advance(timedelta(seconds=1))
    assert (await waiting).ending == "expired"


async def test_ttl_from_the_first_attempt_does_not_run_before_it(
    scheduler: Scheduler, manual_clock: ManualClock
) -> None:
    handle = await work.options(ttl=10, ttl_from="first_attempt").submit(1)
    await manual_clock.advance(100)
    assert (await handle.record()).state == "pending"
    assert (await work.submit(2)).kind == "duplicate"
