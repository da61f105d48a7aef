"""Random load: each request is recorded before it is made, and each answer after it arrived."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from typing import Any

from taskmill import OnDuplicate, Scheduler, Submission
from taskmill.errors import StoreError
from tests.cluster.pace import SPEED
from tests.cluster.work import crunch, family, keyed, plain, scarce, threaded
from tests.crash.journal import Journal

KEYS = 6
STRATEGIES = (OnDuplicate.SKIP, OnDuplicate.REQUEUE, OnDuplicate.SUPERSEDE)
PRIORITIES = (0, 64, 128, 128, 128, 200)


class Producer:
    """Submits tasks through one scheduler."""

    def __init__(self, scheduler: Scheduler, journal: Journal, seed: int, numbers: Iterator[int]) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._random = random.Random(seed)
        self._numbers = numbers
        """Numbers of markers; a producer that is restarted in the same process uses none twice."""
        self._stored: list[int] = []
        self._own_group = f"group of {journal.who}"
        """A group that this producer alone pauses and resumes."""
        self._is_paused = False

    async def work(self, pause: float) -> None:
        """Submit until cancelled."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / pause))
            try:
                await self._act()
            except StoreError as wrong:
                # Unknown whether it was done; the audit checks that it was not done in part.
                self._journal.write("in doubt", error=repr(wrong))

    async def _act(self) -> None:
        if self._stored and self._random.random() < 0.06:
            id = self._random.choice(self._stored[-30:])
            self._journal.write("cancelling", id=id)
            self._journal.write("cancelled", id=id, answer=await self._scheduler.cancel(id))
            return
        if self._random.random() < 0.08:
            await self._pause_or_resume()
            return
        batch = [one for _ in range(self._random.choice((1, 1, 2, 5))) for one in self._kind()]
        await self.submit(batch)

    async def _pause_or_resume(self) -> None:
        group = self._scheduler.group(self._own_group)
        verb, act = ("resume", group.resume) if self._is_paused else ("pause", group.pause)
        self._is_paused = not self._is_paused
        self._journal.write("controlling", verb=verb, group=self._own_group)
        await act()
        self._journal.write("controlled", verb=verb, group=self._own_group)

    async def submit(self, batch: Sequence[tuple[Submission, dict[str, Any]]]) -> None:
        asked = [told for _, told in batch]
        self._journal.write("ask", batch=asked)
        handles = await self._scheduler.submit_many([submission for submission, _ in batch])
        answers = [{"id": one.id, "kind": one.kind, "replaced": one.replaced_id} for one in handles]
        self._journal.write("ack", first=asked[0]["marker"], answers=answers)
        self._stored += [one.id for one in handles]

    def _marker(self) -> str:
        return f"{self._journal.who}-{next(self._numbers)}"

    def _kind(self) -> list[tuple[Submission, dict[str, Any]]]:
        chance = self._random
        marker, seconds = self._marker(), chance.choice((0.01, 0.05, 0.1, 0.3, 1.0))
        told: dict[str, Any] = {"marker": marker}
        priority = chance.choice(PRIORITIES)
        match chance.randrange(11):
            case 0 | 1:
                return [(plain.options(priority=priority).prepare(marker, seconds), told)]
            case 2:
                return [(threaded.options(priority=priority).prepare(marker, seconds), told)]
            case 3 | 4:
                name, strategy = f"k{chance.randrange(KEYS)}", chance.choice(STRATEGIES)
                told |= {"key": name, "strategy": strategy}
                return [(keyed.options(on_duplicate=strategy).prepare(marker, name, min(seconds, 0.3)), told)]
            case 5:
                return [(family.prepare(marker, chance.randint(1, 3)), told)]
            case 6:
                other = self._marker()
                first = plain.options(ref=marker).prepare(marker, seconds)
                return [(first, told), (plain.options(depends_on=marker).prepare(other, 0.01), {"marker": other})]
            case 7:
                group = chance.choice(("capped", "rated"))
                return [(plain.options(group=group).prepare(marker, min(seconds, 0.3)), told)]
            case 8:
                if chance.random() < 0.2:
                    return [(crunch.prepare(marker, min(seconds, 0.3)), told)]
                return [(plain.options(group=self._own_group).prepare(marker, min(seconds, 0.3)), told)]
            case 9:
                return [(scarce.prepare(marker, min(seconds, 0.3)), told)]
            case _:
                if chance.random() < 0.3:
                    runs = chance.randint(2, 4)
                    told |= {"runs": runs}
                    series = plain.options(every=SPEED * chance.uniform(0.3, 0.8), max_runs=runs)
                    return [(series.prepare(marker, 0.05), told)]
                told |= {"ttl": True}
                return [(plain.options(ttl=SPEED * chance.uniform(0.05, 3)).prepare(marker, seconds), told)]
