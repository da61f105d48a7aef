"""Names of groups come and go; the dispatcher forgets those that are gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from taskmill import Aging, Domain, Group, RateLimit, Scheduler
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

pytestmark = pytest.mark.one_engine("what a dispatcher remembers is looked at")

GONE = "gone-"
FEW = 100
"""A fixed number of names may be remembered; it does not grow with the number of groups."""

ROOMS = ("taskmill.runtime", "taskmill.dispatch", "taskmill.policy", "taskmill.model", "taskmill.core.ports")
"""The packages whose objects are searched for names."""


def remembered(scheduler: Scheduler) -> Counter[str]:
    """Return how many names of groups the dispatcher still holds, by the attribute that holds them."""
    found: Counter[str] = Counter()
    for where, text in _texts("dispatcher", scheduler._session.loop, set()):
        if text.startswith(GONE):
            found[where] += 1
    return found


def _texts(where: str, it: Any, seen: set[int]) -> Iterator[tuple[str, str]]:
    if isinstance(it, str):
        yield where, it
        return
    if id(it) in seen:
        return
    seen.add(id(it))
    if isinstance(it, Mapping):
        for key, value in list(it.items()):
            yield from _texts(where, key, seen)
            yield from _texts(where, value, seen)
    elif isinstance(it, list | tuple | set | frozenset):
        for each in list(it):
            yield from _texts(where, each, seen)
    elif type(it).__module__.startswith(ROOMS):
        names = [*getattr(it, "__dict__", {}), *(n for c in type(it).__mro__ for n in getattr(c, "__slots__", ()))]
        for name in names:
            yield from _texts(f"{type(it).__name__}.{name}", getattr(it, name, None), seen)


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "shared": {"groups": {"stays": Group(weight=3)}},
    "aging": {"aging": Aging(grace=5, interval=1, step=8, ceiling=0, urgent=8)},
    "capped": {"default_group": Group(cap=1)},
    "rated": {"default_group": Group(rate=RateLimit(5, 1))},
    "all": {
        "groups": {"stays": Group(weight=3)},
        "default_group": Group(cap=2, rate=RateLimit(5, 1)),
        "aging": Aging(grace=5, interval=1, step=8, ceiling=0, urgent=8),
    },
}


@pytest.mark.parametrize("settings", SETTINGS)
async def test_names_of_groups_that_came_and_went_are_not_kept(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, settings: str
) -> None:
    domain = Domain("d", max_concurrency=40)

    @domain.task
    async def work() -> None:
        await manual_clock.sleep(1)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=50, **SETTINGS[settings])
    async with scheduler.running():
        await scheduler.submit(work.options(group="stays").prepare())
        for wave in range(5):
            names = [f"{GONE}{wave}-{n}" for n in range(100)]
            # Some of them may preempt, some become urgent while they wait.
            many = [work.options(group=name, priority=n % 3 * 60).prepare() for n, name in enumerate(names * 2)]
            await scheduler.submit_many(many)
            await manual_clock.advance(15)
        await manual_clock.advance(60)
        left = remembered(scheduler)
    assert {where: n for where, n in left.items() if n > FEW} == {}
