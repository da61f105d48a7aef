"""Processes that set and obey controls: ``python -m tests.crash.controlled '{"role": …}'``.

Roles: ``dispatch`` runs tasks until it is stopped or killed; ``meddle`` does not dispatch, but pauses,
resumes and tunes at random, as fast as it can, until it is killed.

The durations of handlers are part of the load; nothing is awaited with them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from functools import partial

from taskmill import Domain, Group, RateLimit, Scheduler
from tests.crash.orders import Order, Parent, received, say

GROUPS = ("g", "h")
MEDDLINGS_A_WORD = 5

domain = Domain("controlled", max_concurrency=50)


@domain.task
async def work(takes: float = 0.005) -> None:
    await asyncio.sleep(takes)


def opened(file: str) -> Scheduler:
    groups = {"h": Group(weight=2, cap=6)}
    return Scheduler(file, domains=[domain], max_concurrency=8, groups=groups, shutdown_grace=5)


async def dispatch(order: Order) -> None:
    parent = Parent()
    async with opened(order.file) as scheduler, scheduler.running():
        say("open")
        while await parent.heard() != "stop":
            pass


async def meddle(order: Order) -> None:
    chance = random.Random(order.seed)
    async with opened(order.file) as scheduler:
        say("open")
        for number in itertools.count(1):
            group = scheduler.group(chance.choice(GROUPS))
            deeds: list[Callable[[], Awaitable[None]]] = [
                group.pause,
                group.resume,
                partial(group.pause, duration=chance.choice([0.001, 0.02, 60])),
                scheduler.pause,
                scheduler.resume,
                scheduler.domain("controlled").pause,
                scheduler.domain("controlled").resume,
                partial(scheduler.domain("controlled").set_max_concurrency, chance.randrange(1, 9)),
                partial(group.set, weight=chance.randrange(1, 9), cap=chance.randrange(1, 9)),
                partial(group.set, rate=chance.choice([None, RateLimit.per_second(200)])),
                partial(scheduler.set_rate_limit, "controlled::work", chance.choice([None, RateLimit.per_second(300)])),
                scheduler.reset_group_weights,
            ]
            await chance.choice(deeds)()
            if number % MEDDLINGS_A_WORD == 0:
                say("more")


if __name__ == "__main__":
    given = received()
    asyncio.run({"dispatch": dispatch, "meddle": meddle}[given.role](given))
