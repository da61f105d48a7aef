"""Timed pauses whose end has passed without a dispatcher: the next verb that notices it announces it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from taskmill import Domain, Handle, Scheduler
from taskmill.events import Event, GroupPaused, GroupResumed
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
