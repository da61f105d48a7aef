"""Parts that the killed programs share: orders, messages to and from the parent, and random requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from taskmill import Handle, Scheduler, Submission
from taskmill.store.sqlite import log
from tests.crash import points
from tests.crash.journal import Journal

Deeds = list[tuple[int, Callable[[], Coroutine[Any, Any, None]]]]
"""Possible actions, each with its relative frequency."""


class Order(msgspec.Struct):
    """The instructions of the parent for a child."""

    role: str
    who: str
    file: str
    journal: str
    seed: int
    actions: int = 20
    point: str | None = None
    nth: int = 1
    poison: bool = False


def received() -> Order:
    """Return the order of this process, and arm the point at which the process shall die."""
    order = msgspec.convert(json.loads(sys.argv[1]), Order)
    # Small logs, so that there are many checkpoints.
    log.CHECKPOINT_BYTES = 128 * 1024
    log.LOOK_EVERY = 2
    if order.point is not None:
        points.arm(order.point, order.nth)
    return order


def say(word: str) -> None:
    print(word, flush=True)


class Parent:
    """Reads the messages of the parent."""

    async def heard(self) -> str:
        if not hasattr(self, "_reader"):
            self._reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(self._reader), sys.stdin
            )
        return (await self._reader.readline()).decode().strip()


class Asker:
    """Makes random requests to a scheduler, and records calls and returns."""

    def __init__(self, scheduler: Scheduler, order: Order, journal: Journal) -> None:
        self._scheduler = scheduler
        self._order = order
        self._journal = journal
        self._random = random.Random(order.seed)
        self._numbers = itertools.count()
        self._known: list[int] = []
        """Ids of the tasks that this process submitted."""

    def _name(self) -> str:
        """Return an unused name."""
        return f"{self._order.who}-{next(self._numbers)}"

    async def _do_one_of(self, deeds: Deeds) -> None:
        (deed,) = self._random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
        await deed()

    async def _submit(self, submissions: Sequence[Submission]) -> list[Handle[Any]]:
        if len(submissions) == 1:
            return [await self._scheduler.submit(submissions[0])]
        return await self._scheduler.submit_many(submissions)

    async def _cancel(self, id: int) -> bool:
        """Cancel a task, and record the call and the return."""
        self._journal.write("cancelling", id=id)
        answer = await self._scheduler.cancel(id)
        self._journal.write("cancelled", id=id, answer=answer)
        return answer


async def all_ended(scheduler: Scheduler) -> None:
    while active := await scheduler.tasks():
        for record in active:
            await scheduler.wait(record.id, timeout=40)
