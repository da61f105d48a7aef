"""A listener continues after the event it saw last, or is informed first that events were missed."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from taskmill import ConfigError, Domain, Scheduler
from taskmill.events import Event, EventsMissed, TaskCompleted, TaskDispatched, TaskSubmitted
from taskmill.observe import bus
from taskmill.testing import ManualClock

work = Domain("work")


@work.task
async def double(n: int) -> int:
    return 2 * n


async def run(scheduler: Scheduler, *numbers: int) -> None:
    for n in numbers:
        await scheduler.submit(double.prepare(n))
    await scheduler.run_until_idle()


async def heard_so_far(events: Any) -> list[Any]:
    """Return the events that wait in a listener, and close it."""
    await events.aclose()
    return [event async for event in events]


async def test_a_listener_continues_after_the_event_it_has_seen_last() -> None:
    async with Scheduler(domains=[work]) as scheduler:
        first = scheduler.events()
        await run(scheduler, 1, 2)
        whole = await heard_so_far(first)
        await run(scheduler, 3)
        again = await heard_so_far(scheduler.events(since=whole[1].seq))
        completed = await heard_so_far(scheduler.events(TaskCompleted, since=whole[1].seq))
        none = await heard_so_far(scheduler.events(since=again[-1].seq))
    assert again[: len(whole) - 2] == whole[2:]
    assert {event.task_id for event in again[len(whole) - 2 :]} == {3}, "the events while no listener was open"
    assert [event.result for event in completed] == [2, 4, 6]
    assert none == []


async def test_events_that_are_not_known_any_longer_are_reported_as_missed_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bus, "RECENT", 4)
    async with Scheduler(domains=[work]) as scheduler:
        events = scheduler.events()
        await run(scheduler, 1, 2, 3)
        whole = await heard_so_far(events)
        late = scheduler.events(since=whole[0].seq)
        await run(scheduler, 4)
        heard = await heard_so_far(late)
        recent = await heard_so_far(scheduler.events(since=heard[-4].seq))
    assert isinstance(heard[0], EventsMissed)
    assert heard[0].count == len(whole) - 1
    assert {event.task_id for event in heard[1:]} == {4}
    assert recent == heard[-3:]


async def test_a_number_of_another_scheduler_is_recognised() -> None:
    async with Scheduler(domains=[work]) as one, Scheduler(domains=[work]) as other:
        there, here = one.events(TaskSubmitted), other.events(TaskSubmitted)
        for _ in range(3):
            await one.submit(double.prepare(1))
            await other.submit(double.prepare(1))
        foreign = (await heard_so_far(there))[0].seq
        own = (await heard_so_far(here))[0].seq
        heard = await heard_so_far(other.events(TaskSubmitted, since=foreign))
        assert [type(event) for event in heard] == [EventsMissed]
        assert heard[0].count == 0, "how many is unknown"
        assert len(await heard_so_far(other.events(TaskSubmitted, since=own))) == 2


async def test_events_are_kept_for_a_minute_after_the_last_listener_has_left(manual_clock: ManualClock) -> None:
    async with Scheduler(domains=[work], clock=manual_clock) as scheduler:
        events = scheduler.events(TaskSubmitted)
        await scheduler.submit(double.prepare(1))
        (seen,) = await heard_so_far(events)
        await scheduler.submit(double.prepare(2))
        await manual_clock.advance(59)
        await scheduler.submit(double.prepare(3))
        kept = await heard_so_far(scheduler.events(since=seen.seq))
        await scheduler.submit(double.prepare(4))
        await manual_clock.advance(61)
        await scheduler.submit(double.prepare(5))
        missed = await heard_so_far(scheduler.events(since=seen.seq))
    assert [event.task_id for event in kept] == [2, 3]
    assert [type(event) for event in missed] == [EventsMissed]


@pytest.mark.one_engine("the bus numbers events, whatever the store")
async def test_numbers_are_exact_in_javascript() -> None:
    for _ in range(100):
        assert 0 <= bus.EventBus(ManualClock())._seq < 2**52


async def test_a_dropped_listener_needs_no_closing() -> None:
    async with Scheduler(domains=[work]) as scheduler:
        scheduler.events(TaskDispatched)
        kept = scheduler.events()
        gc.collect()
        assert list(scheduler._bus._listeners) == [kept]


@pytest.mark.parametrize("since", ["1", 1.5, True])
@pytest.mark.one_engine("the argument is checked before the store is asked")
async def test_since_must_be_a_number(since: Any) -> None:
    async with Scheduler(domains=[work]) as scheduler:
        with pytest.raises(ConfigError, match="since must be the seq of an event"):
            scheduler.events(since=since)


async def test_after_the_shutdown_has_begun_every_stream_ends() -> None:
    async with Scheduler(domains=[work]) as scheduler:
        events = scheduler.events()
        await scheduler.submit(double.prepare(1))
        waiting = asyncio.create_task(_all(events))
        scheduler._end_events()
        assert [type(event) for event in await waiting] == [TaskSubmitted]
        assert await _all(scheduler.events()) == []


async def _all(events: Any) -> list[Event]:
    return [event async for event in events]
