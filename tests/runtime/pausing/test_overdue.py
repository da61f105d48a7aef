"""Pauses and the time of verbs: one that finds an overdue pause announces its end, and one that waits begins later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from taskmill import Domain, Handle, Scheduler, Submission
from taskmill.events import Event, GroupPaused, GroupResumed
from taskmill.model.controls import Scope
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

Verb = Callable[[Scheduler, Handle[None]], Awaitable[None]]
VERBS: dict[str, Verb] = {
    "pause": lambda scheduler, _: scheduler.pause(),
    "resume": lambda scheduler, _: scheduler.resume(),
    "pause its domain": lambda scheduler, _: scheduler.domain("d").pause(),
    "resume its domain": lambda scheduler, _: scheduler.domain("d").resume(),
    "pause another group": lambda scheduler, _: scheduler.group("h").pause(),
    "resume another group": lambda scheduler, _: scheduler.group("h").resume(),
    "pause the group again": lambda scheduler, _: scheduler.group("g").pause(),
    "resume the group": lambda scheduler, _: scheduler.group("g").resume(),
    "pause a series": lambda scheduler, series: scheduler.pause_recurring(series.id),
    "resume a series": lambda scheduler, series: scheduler.resume_recurring(series.id),
}


def _domain() -> tuple[Domain, Callable[[Scheduler], Awaitable[Handle[None]]]]:
    domain = Domain("d")

    @domain.task
    async def work() -> None: ...

    async def recurring(scheduler: Scheduler) -> Handle[None]:
        return await scheduler.submit(work.options(group="g", every=3600, run_after=3600).prepare())

    return domain, recurring


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_that_ends_an_overdue_pause_announces_the_resume_once_and_first(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, verb: str
) -> None:
    domain, recurring = _domain()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    series = await recurring(scheduler)
    await scheduler.group("g").pause(duration=10)
    await manual_clock.advance(20)  # no scheduler dispatches
    events = scheduler.events(GroupPaused, GroupResumed)
    await VERBS[verb](scheduler, series)
    async with scheduler.running():
        await manual_clock.advance(1)
    await scheduler.group("end").pause()
    heard: list[Event] = []
    while not heard or getattr(heard[-1], "group", None) != "end":
        heard.append(await anext(events))
    told = [(type(event).__name__, getattr(event, "group", None)) for event in heard[:-1]]
    assert told[0] == ("GroupResumed", "g")
    paused = {"pause another group": [("GroupPaused", "h")], "pause the group again": [("GroupPaused", "g")]}
    assert told[1:] == paused.get(verb, [])


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_announces_no_end_of_a_pause_that_lasts(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, verb: str
) -> None:
    domain, recurring = _domain()
    scheduler = await taskmill_scheduler(domains=[domain])
    series = await recurring(scheduler)
    await scheduler.group("other").pause(duration=10)
    await manual_clock.advance(9.999)
    events = scheduler.events(GroupPaused, GroupResumed)
    await VERBS[verb](scheduler, series)
    await scheduler.group("end").pause()
    heard = [await anext(events)]
    while getattr(heard[-1], "group", None) != "end":
        heard.append(await anext(events))
    assert ("GroupResumed", "other") not in [(type(event).__name__, getattr(event, "group", None)) for event in heard]


# A verb that has to wait for the write lock


@pytest.fixture
async def waiting(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Scheduler:
    """A scheduler that waits for two seconds whenever it ends pauses, as if another process had the write lock."""
    domain, _ = _domain()
    scheduler = await taskmill_scheduler(domains=[domain])
    end_pauses = scheduler._store.end_pauses

    async def wait(now: int) -> list[Scope]:
        ended = await end_pauses(now)
        await manual_clock.advance(2)
        return ended

    monkeypatch.setattr(scheduler._store, "end_pauses", wait)
    return scheduler


async def test_a_task_that_expires_before_its_pause_begins_stays_expired(waiting: Scheduler) -> None:
    handle = await waiting.submit(Submission("d::work", ttl=1))
    await waiting.pause()
    assert (await waiting.get(handle.id)).state == "expired"
    await waiting.resume()
    assert (await waiting.get(handle.id)).state == "expired"


async def test_a_task_has_its_time_until_its_pause_has_ended(waiting: Scheduler) -> None:
    await waiting.pause()
    handle = await waiting.submit(Submission("d::work", ttl=1))
    await waiting.resume()
    assert (await waiting.get(handle.id)).state == "pending"


async def test_a_pause_for_a_duration_lasts_as_long_as_asked(waiting: Scheduler, manual_clock: ManualClock) -> None:
    await waiting.group("g").pause(duration=10)
    await manual_clock.advance(9.9)
    handle = await waiting.submit(Submission("d::work", group="g"))
    assert (await waiting.get(handle.id)).state == "paused"
    await manual_clock.advance(0.1)
    assert (await waiting.get(handle.id)).state == "pending"
