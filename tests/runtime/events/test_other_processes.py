"""A scheduler that does not run a task announces its start, progress and ending, derived from the store, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, GiveUp, HistoryRecord, Retry, Scheduler, Submission
from taskmill.events import (
    Event,
    EventsMissed,
    TaskCancelled,
    TaskCompleted,
    TaskDeadLettered,
    TaskDispatched,
    TaskEvent,
    TaskFailed,
    TaskProgressed,
    TaskSubmitted,
)
from taskmill.runtime import remote_events
from taskmill.testing import ManualClock
from tests.both_engines import Engine

SOON = 10.0
"""Longest wait, in seconds, for an event on a loaded machine; another test checks the delay on an idle one."""

work = Domain("work")


class Gate:
    """Holds back ``report`` until a test opens it."""

    opened: asyncio.Event


@work.task
async def double(n: int) -> int:
    return 2 * n


@work.task
async def report(ctx: Context) -> str:
    ctx.progress(0.25, "begun")
    await Gate.opened.wait()
    ctx.progress(0.75, "almost")
    return "done"


@work.task(retry=Retry.none())
async def fail() -> None:
    raise ValueError("broken")


@work.task(retry=Retry.constant(2, 0))
async def fail_twice(ctx: Context) -> int:
    if ctx.attempt < 3:
        raise ValueError(f"attempt {ctx.attempt}")
    return ctx.attempt


@work.task
async def give_up() -> None:
    raise GiveUp("no use")


@pytest.fixture(autouse=True)
def _close_gate() -> None:
    Gate.opened = asyncio.Event()


@asynccontextmanager
async def pair(path: Path) -> AsyncIterator[tuple[Scheduler, Scheduler]]:
    """Open a scheduler that dispatches and one that does not, on one store, as in two processes."""
    async with Scheduler(path, domains=[work]) as worker, Scheduler(path) as web, worker.running():
        yield worker, web


async def until(events: AsyncIterator[Event], *last: type[Event]) -> list[Any]:
    """Return the events up to the first of one of the kinds ``last``."""
    heard: list[Any] = []
    async with asyncio.timeout(SOON):
        async for event in events:
            heard.append(event)
            if isinstance(event, last):
                break
    return heard


def kinds(events: list[Any]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_start_progress_and_ending_in_another_process_are_announced_in_order(tmp_path: Path) -> None:
    async with pair(tmp_path / "q.db") as (_, web):
        events = web.events(TaskEvent, type="work::report")
        handle = await web.submit(Submission("work::report", tags={"user": "ada"}, label="a report"))
        heard = await until(events, TaskProgressed)
        Gate.opened.set()
        heard += await until(events, TaskCompleted)
        record = await handle.wait(SOON)
    assert kinds(heard) == ["TaskSubmitted", "TaskDispatched", "TaskProgressed", "TaskProgressed", "TaskCompleted"]
    assert {event.task_id for event in heard} == {handle.id}
    assert heard[1].attempt == 1
    assert [(event.progress.fraction, event.progress.message) for event in heard[2:4]] == [
        (0.25, "begun"),
        (0.75, "almost"),
    ]
    assert (heard[4].result, heard[4].duration) == ("done", record.duration)
    for event in heard:
        assert (event.domain, event.label, dict(event.tags)) == ("work", "a report", {"user": "ada"})
    assert [event.seq for event in heard] == sorted({event.seq for event in heard})


async def test_an_attempt_between_two_looks_is_announced_with_its_start(tmp_path: Path) -> None:
    async with pair(tmp_path / "q.db") as (_, web):
        events = web.events(TaskDispatched, TaskCompleted)
        for n in range(5):
            handle = await web.submit(Submission("work::double", {"n": n}))
            assert await handle.result(SOON) == 2 * n
        heard: list[Any] = []
        while kinds(heard).count("TaskCompleted") < 5:
            heard += await until(events, TaskCompleted)
    assert kinds(heard) == ["TaskDispatched", "TaskCompleted"] * 5
    assert [event.result for event in heard[1::2]] == [0, 2, 4, 6, 8]


async def test_every_way_to_end_is_announced_as_in_the_process_that_ran_it(tmp_path: Path) -> None:
    async with pair(tmp_path / "q.db") as (worker, web):
        there, here = worker.events(TaskEvent), web.events(TaskEvent)
        await worker.submit(Submission("work::fail"))
        seen = await until(here, TaskDeadLettered), await until(there, TaskDeadLettered)
        await worker.submit(Submission("work::give_up"))
        seen[0].extend(await until(here, TaskFailed))
        seen[1].extend(await until(there, TaskFailed))
        waiting = await worker.submit(Submission("work::double", {"n": 1}, run_after=1000))
        await waiting.cancel()
        seen[0].extend(await until(here, TaskCancelled))
        seen[1].extend(await until(there, TaskCancelled))
    derived, own = ([event for event in each if not isinstance(event, TaskSubmitted)] for each in seen)
    assert kinds(derived) == kinds(own)
    assert [getattr(event, "error", None) for event in derived] == [getattr(event, "error", None) for event in own]


async def test_failures_that_are_retried_are_announced_as_in_the_process_that_ran_them(tmp_path: Path) -> None:
    async with pair(tmp_path / "q.db") as (worker, web):
        listeners = worker.events(TaskEvent), web.events(TaskEvent)
        await worker.submit(Submission("work::fail_twice"))
        own, derived = [await until(listener, TaskCompleted) for listener in listeners]
    assert kinds(derived) == ["TaskDispatched", "TaskFailed"] * 2 + ["TaskDispatched", "TaskCompleted"]
    # In the process itself a start may be announced before the failure that it follows is durable.
    for kind in (TaskDispatched, TaskFailed):
        mine, theirs = ([event for event in each if isinstance(event, kind)] for each in (own, derived))
        for name in ("attempt", "error", "will_retry", "retry_after"):
            assert [getattr(event, name, None) for event in mine] == [getattr(event, name, None) for event in theirs]


async def test_a_failure_of_this_process_is_announced_once(tmp_path: Path, engine: Engine) -> None:
    """Also on PostgreSQL, where both schedulers dispatch and read the store at the same time."""
    path, count = tmp_path / "q.db", engine.fewer(25)
    async with (
        Scheduler(path, domains=[work]) as one,
        Scheduler(path, domains=[work]) as other,
        one.running(standby=True),
        other.running(standby=True),
    ):
        listeners = one.events(TaskEvent), other.events(TaskEvent)
        ran = {(await one.submit(fail_twice.prepare())).id for _ in range(count)}
        heard = [await until_completed(listener, ran) for listener in listeners]
        for mine, listener in zip(heard, listeners, strict=True):
            # The process that completes a task announces it at once, and may still have to read an earlier failure.
            while sum(isinstance(event, TaskFailed) for event in mine) < 2 * count:
                mine.extend(await until(listener, TaskFailed))
    for mine in heard:
        failed = [(event.task_id, event.error) for event in mine if isinstance(event, TaskFailed)]
        assert sorted(failed) == sorted((id, f"ValueError: attempt {n}") for id in ran for n in (1, 2))
        assert all(event.will_retry for event in mine if isinstance(event, TaskFailed))


async def test_failures_before_listening_began_are_not_announced(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        Scheduler(tmp_path / "q.db", domains=[work], clock=clock) as worker,
        Scheduler(tmp_path / "q.db", clock=clock) as web,
    ):
        await worker.submit(Submission("work::fail_twice", retry=Retry.constant(2, 60)))
        await worker.run_until_idle()
        await clock.advance(1)
        events = web.events(TaskFailed)
        async with worker.running():
            await clock.advance(60)
            heard = await until(events, TaskFailed)
    assert [event.error for event in heard] == ["ValueError: attempt 2"]
    assert heard[0].retry_after == timedelta(seconds=60)


async def test_changes_of_this_process_are_announced_once(tmp_path: Path, engine: Engine) -> None:
    """Also on PostgreSQL, where both schedulers dispatch and read the store at the same time."""
    path, count = tmp_path / "q.db", engine.fewer(100)
    async with (
        Scheduler(path, domains=[work]) as one,
        Scheduler(path, domains=[work]) as other,
        one.running(standby=True),
        other.running(standby=True),
    ):
        listeners = one.events(TaskEvent), other.events(TaskEvent)
        submitted = [await one.submit(double.prepare(n)) for n in range(count)]
        waiting = await other.submit(Submission("work::double", {"n": 0}, run_after=1000))
        await waiting.cancel()
        for handle in submitted:
            await handle.result(SOON)
        # The last ending of all: if it was read from the store, so were the others. The process that runs it announces
        # it at once, and may still have to read endings of the other process.
        last = await one.submit(double.prepare(-1))
        ran = {handle.id for handle in (*submitted, last)}
        heard = [await until_completed(listener, ran) for listener in listeners]
    for mine in heard:
        about = [(type(event), event.task_id) for event in mine]
        assert len(about) == len(set(about))
        assert {id for kind, id in about if kind is TaskDispatched} == ran
        assert {id for kind, id in about if kind is TaskCompleted} == ran
    assert (TaskCancelled, waiting.id) in [(type(event), event.task_id) for event in heard[1]]


async def until_completed(events: AsyncIterator[Event], ids: set[int]) -> list[Any]:
    """Return the events up to the last completion of these tasks."""
    heard = await until(events, TaskCompleted)
    while not ids <= {event.task_id for event in heard if isinstance(event, TaskCompleted)}:
        heard += await until(events, TaskCompleted)
    return heard


async def test_events_from_before_the_listener_are_not_announced(tmp_path: Path) -> None:
    async with pair(tmp_path / "q.db") as (worker, web):
        there = worker.events(TaskProgressed)
        before = await worker.submit(report.prepare())
        await until(there, TaskProgressed)
        await (await worker.submit(double.prepare(1))).result(SOON)
        await asyncio.sleep(0.01)  # into the next millisecond of the wall clock
        events = web.events()
        Gate.opened.set()
        heard = await until(events, TaskCompleted)
    assert kinds(heard) == ["TaskProgressed", "TaskCompleted"]
    assert {event.task_id for event in heard} == {before.id}


async def test_an_ending_in_the_millisecond_in_which_listening_begins_is_heard(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        Scheduler(tmp_path / "q.db", domains=[work], clock=clock) as worker,
        Scheduler(tmp_path / "q.db", clock=clock) as web,
        worker.running(),
    ):
        events = web.events(TaskCompleted)
        handle = await worker.submit(double.prepare(1))
        while not isinstance(await worker.get(handle.id), HistoryRecord):
            await clock.advance(0)
        await clock.advance(1)
        assert [event.task_id for event in await until(events, TaskCompleted)] == [handle.id]


async def test_too_many_endings_are_counted_as_missed(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = engine.fewer(300)
    monkeypatch.setattr(remote_events, "MOST_ANNOUNCED", 10)
    monkeypatch.setattr(remote_events, "LOOK_INTERVAL", 0.4)
    async with pair(tmp_path / "q.db") as (worker, web):
        events = web.events(TaskCompleted)
        handles = await worker.submit_many([double.prepare(n) for n in range(count)])
        for handle in handles:
            await handle.result(SOON)
        total, heard = 0, list[Any]()
        async with asyncio.timeout(SOON):
            while total < count:
                heard.append(await anext(events))
                total += heard[-1].count if isinstance(heard[-1], EventsMissed) else 1
    assert total == count
    assert any(isinstance(event, EventsMissed) for event in heard)


async def test_a_scheduler_hears_the_others_again_after_it_has_stopped_dispatching(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    async with Scheduler(path, domains=[work]) as first, Scheduler(path, domains=[work]) as second:
        events = first.events(TaskCompleted)
        async with first.running():
            mine = await first.submit(double.prepare(1))
            assert [event.task_id for event in await until(events, TaskCompleted)] == [mine.id]
        async with second.running():
            theirs = await second.submit(double.prepare(2))
            assert [event.task_id for event in await until(events, TaskCompleted)] == [theirs.id]


async def test_nothing_is_read_while_nothing_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    really_look = remote_events.RemoteEvents._look

    async def look(self: remote_events.RemoteEvents) -> None:
        nonlocal looks
        looks += 1
        await really_look(self)

    monkeypatch.setattr(remote_events.RemoteEvents, "_look", look)
    async with pair(tmp_path / "q.db") as (worker, web):
        await (await web.submit(Submission("work::double", {"n": 1}))).result(SOON)
        assert looks == 0
        events = web.events(TaskCompleted)
        await worker.submit(double.prepare(1))
        await until(events, TaskCompleted)
        assert looks > 0


@pytest.mark.parametrize("kind", [TaskDispatched, TaskProgressed, TaskCompleted])
async def test_an_event_of_another_process_arrives_within_half_a_second(tmp_path: Path, kind: type[TaskEvent]) -> None:
    """The best of several tries, because the machine may be busy; each starts when the other process was idle."""
    async with pair(tmp_path / "q.db") as (worker, web):
        events, there = web.events(kind, TaskCompleted), worker.events(kind, TaskCompleted)
        delays: list[float] = []
        for _ in range(5):
            Gate.opened = asyncio.Event()
            await worker.submit(report.prepare())
            if kind is TaskCompleted:
                Gate.opened.set()
            # A start and progress arrive while the task is still running.
            own = (await until(there, kind))[-1]
            derived = (await until(events, kind))[-1]
            assert derived.task_id == own.task_id
            delays.append((derived.at - own.at).total_seconds())
            Gate.opened.set()
            if kind is not TaskCompleted:
                await until(there, TaskCompleted)
                await until(events, TaskCompleted)
    assert min(delays) < 0.5, delays
