"""A simulated day of a scheduler: everything is set, paused, limited and killed at random, while an auditor checks.

``TASKMILL_SEEDS`` lists the seeds of the days (``TASKMILL_SEEDS=1,2,3``), ``TASKMILL_HOURS`` is the length of each. A
normal run simulates six hours, in which every verb and every law has its turn.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from taskmill import Aging, Context, Domain, Group, InvalidState, Priority, RateLimit, Retry, RetryLater, Scheduler
from taskmill.events import TaskPreempted, TaskResumed
from taskmill.observe.bus import Listener
from taskmill.testing import ManualClock
from tests.both_engines import Engine, copied_as_killed
from tests.repetition import often
from tests.runtime.auditor import SCHEDULER, Auditor, Job, Scope

SEEDS = [int(seed) for seed in os.environ.get("TASKMILL_SEEDS", "1").split(",")]
HOURS = int(os.environ.get("TASKMILL_HOURS", often(6)))
LOUD = 6
"""Hours after which every check must have been made."""
GROUPS = ["", "prod", "backup", "spare"]
AGING = Aging(grace=120, interval=10, step=8, ceiling=Priority.HIGH, urgent=Priority.HIGH)
RATES = [RateLimit(1, 30), RateLimit(3, 60, burst=1), RateLimit(2, 10, burst=5)]


class Day:
    """One simulated day on one file after another: after a kill it continues with a copy of the file."""

    def __init__(self, seed: int, folder: Path, hours: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.folder = folder
        self.files = 0
        self.hours = hours
        self.file = folder / "0.db"
        self.auditor = Auditor(slots=6)
        self.declared = {"prod": Group(weight=3), "spare": Group(min_slots=1)} if seed % 2 else {}
        self.domains = self._domains()
        self.series: int | None = None
        self.scheduler: Scheduler
        self.runner: asyncio.Task[None]
        self.events: Listener[Any]
        self.done = dict.fromkeys(self.verbs(), 0)

    def _domains(self) -> list[Domain]:
        one, two = Domain("one"), Domain("two")
        auditor, clock, chance = self.auditor, self.clock, self.chance

        async def work(ctx: Context, seconds: float) -> None:
            generation = auditor.generation
            auditor.started(ctx.task, clock.now_ms())
            try:
                await clock.sleep(seconds)
                if ctx.task.type == "one::flaky" and chance.random() < 0.4:
                    raise RetryLater("not yet")
            finally:
                if generation == auditor.generation:
                    auditor.ended(ctx.task.id)

        self.types = [
            one.task(name="work")(work),
            one.task(name="flaky", retry=Retry.constant(2, delay=20))(work),
            two.task(name="work")(work),
        ]
        self.tick = two.task(name="tick")(work)
        return [one, two]

    # Opening and closing

    async def open(self) -> None:
        self.scheduler = Scheduler(
            self.file,
            domains=self.domains,
            max_concurrency=self.auditor.slots,
            groups=self.declared,
            aging=AGING,
            retention=None,
            durability="process",
            clock=self.clock,
        )
        await self.scheduler.open()
        self.events = self.scheduler.events(TaskPreempted, TaskResumed)
        self.runner = asyncio.create_task(self.scheduler.run())
        await self.settle()

    async def close(self) -> None:
        stopping = asyncio.create_task(self.scheduler.stop(grace=0))
        await self.settle()
        await stopping
        await self.runner
        self.hear()
        await self.scheduler.close()

    async def settle(self, seconds: float = 0) -> None:
        await self.clock.advance(seconds)
        self.hear()

    def hear(self) -> None:
        if not hasattr(self, "events"):
            return
        while self.events._events:
            event = self.events._events.popleft()
            if isinstance(event, TaskPreempted):
                self.auditor.preempted.add(event.task_id)
            elif isinstance(event, TaskResumed):
                self.auditor.preempted.discard(event.task_id)
                self.auditor.checks["return"] += 1

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    async def live(self) -> None:
        await self.open()
        try:
            handle = await self.tick.options(every=300).submit(5)
            self.series = handle.id
            ends = self.now + self.hours * 3_600_000
            while self.now < ends and not self.auditor.wrong:
                verbs = self.verbs()
                (name,) = self.chance.choices(list(verbs), [weight for _, weight in verbs.values()])
                self.done[name] += 1
                await verbs[name][0]()
                await self.settle(self.chance.choice([0, 1, 5, 30, 120, 300]))
                await self.auditor.look(self.scheduler, self.now)
        finally:
            await self.close()

    def verbs(self) -> dict[str, tuple[Any, int]]:
        """Return the possible actions with their relative frequencies."""
        return {
            "submit": (self.submit, 6),
            "preempt": (self.preempt, 4),
            "pause": (self.pause, 2),
            "resume": (self.resume, 5),
            "tune": (self.tune, 3),
            "limit": (self.limit, 2),
            "slots": (self.set_slots, 1),
            "reprioritize": (self.set_priority, 1),
            "cancel": (self.cancel, 1),
            "series": (self.pause_series, 1),
            "restart": (self.restart, 1),
            "kill": (self.kill, 1),
        }

    # Actions

    async def submit(self) -> None:
        chance = self.chance
        for _ in range(chance.choice([1, 3, 10, 25])):
            ttl = chance.choice([None, None, 60, 600, 3600])
            await self._submit(
                chance.choice(self.types),
                chance.choice([1, 5, 20, 60, 200]),
                group=chance.choice(GROUPS),
                priority=chance.choice([Priority.HIGH, Priority.NORMAL, Priority.LOW, Priority.IDLE]),
                ttl=ttl,
            )

    async def preempt(self) -> None:
        for _ in range(self.chance.choice([1, 1, 3])):
            group = self.chance.choice(GROUPS)
            await self._submit(self.types[0], self.chance.choice([1, 30, 90]), group=group, priority=0, ttl=None)

    async def _submit(self, task: Any, seconds: float, *, group: str, priority: int, ttl: int | None) -> None:
        options = {"group": group} if group else {}
        handle = await self.scheduler.submit(task.options(priority=priority, ttl=ttl, **options).prepare(seconds))
        ttl_ms = None if ttl is None else ttl * 1000
        self.auditor.jobs[handle.id] = Job(group, task.name, priority, self.now, ttl_ms)

    async def pause(self) -> None:
        kind = self.chance.choice(["scheduler", "domain", "group", "group"])
        seconds = None
        await self.settle()
        if kind == "scheduler":
            scope: Scope = SCHEDULER
            await self.scheduler.pause()
        elif kind == "domain":
            scope = (kind, self.chance.choice(["one", "two"]))
            await self.scheduler.domain(scope[1]).pause()
        else:
            scope = (kind, self.chance.choice(GROUPS))
            seconds = self.chance.choice([None, 7.5, 60, 600])
            await self.scheduler.group(scope[1]).pause(duration=seconds)
        self.auditor.pause(scope, self.now, None if seconds is None else self.now + round(seconds * 1000))

    async def resume(self) -> None:
        scopes = [SCHEDULER, *(("domain", name) for name in ("one", "two")), *(("group", name) for name in GROUPS)]
        paused = [scope for scope in scopes if self.auditor.is_paused(scope, self.now)]
        for scope in self.chance.sample(paused, k=min(len(paused), self.chance.choice([1, 2, 9]))):
            self.auditor.resume(scope, self.now)
            kind, name = scope
            control: Any = {"scheduler": lambda _: self.scheduler, "domain": self.scheduler.domain}.get(
                kind, self.scheduler.group
            )
            await control(name).resume()

    async def tune(self) -> None:
        chance, name = self.chance, self.chance.choice(GROUPS)
        scope = ("group", name)
        if chance.random() < 0.25:
            await self.scheduler.reset_group_weights()
        elif chance.random() < 0.4:
            cap = chance.choice([None, 1, 2, 4])
            await self._cap(scope, cap, self.scheduler.group(name).set(cap=cap, min_slots=0))
        elif chance.random() < 0.3:
            domain = chance.choice(["one", "two"])
            cap = chance.choice([None, 1, 3])
            await self._cap(("domain", domain), cap, self.scheduler.domain(domain).set_max_concurrency(cap))
        elif scope in self.auditor.caps:
            await self.scheduler.group(name).set(weight=chance.choice([1, 1, 2, 50]))
        else:
            await self.scheduler.group(name).set(weight=chance.choice([1, 2, 5]), min_slots=chance.choice([0, 0, 1, 3]))

    async def _cap(self, scope: Scope, cap: int | None, verb: Any) -> None:
        before = self.auditor.caps.get(scope)
        self.auditor.caps.pop(scope, None)
        if before is not None and cap is not None:
            self.auditor.caps[scope] = max(before, cap)
        await verb
        if cap is not None:
            self.auditor.caps[scope] = cap

    async def limit(self) -> None:
        rate = self.chance.choice([None, None, *RATES])
        await self.settle()
        # No time passes here: nothing starts between the change in the scheduler and the change in the auditor.
        await self.scheduler.pause()
        if self.chance.random() < 0.5:
            scope = ("group", self.chance.choice(GROUPS))
            await self.scheduler.group(scope[1]).set(rate=rate)
        else:
            scope = ("type", self.chance.choice(self.types).name)
            await self.scheduler.set_rate_limit(scope[1], rate)
        await self.settle()
        self.auditor.limit(scope, rate, self.now)
        if not self.auditor.is_paused(SCHEDULER, self.now):
            await self.scheduler.resume()

    async def set_slots(self) -> None:
        slots = self.chance.choice([1, 3, 6, 10])
        self.auditor.slots = max(slots, self.auditor.slots)
        await self.scheduler.set_max_concurrency(slots)
        self.auditor.slots = slots

    async def set_priority(self) -> None:
        for id in self._some_jobs():
            if self.auditor.jobs[id].priority == 0:
                continue  # a preemptor stays one; otherwise the tasks it preempted would return
            try:
                await self.scheduler.set_priority(id, self.chance.choice([1, 64, 128, 192]))
            except InvalidState:
                continue

    async def cancel(self) -> None:
        for id in self._some_jobs():
            await self.scheduler.cancel(id)

    def _some_jobs(self) -> list[int]:
        return self.chance.sample(list(self.auditor.jobs), k=min(3, len(self.auditor.jobs)))

    async def pause_series(self) -> None:
        assert self.series is not None
        await self.settle()
        if self.auditor.paused_series:
            self.auditor.paused_series.clear()
            await self.scheduler.resume_recurring(self.series)
        else:
            await self.scheduler.pause_recurring(self.series)
            self.auditor.paused_series.add(self.tick.name)

    async def restart(self) -> None:
        await self.close()
        await self.clock.advance(self.chance.choice([0, 0, 20, 900]))
        await self.open()

    async def kill(self) -> None:
        """Continue with the file as it is now, which equals that of a killed process."""
        await self.settle()
        self.files += 1
        left = self.file
        self.file = self.folder / f"{self.files}.db"
        if not copied_as_killed(left, self.file):
            for part in self.folder.glob(f"{left.name}*"):
                shutil.copy(part, str(part).replace(left.name, self.file.name))
        self.auditor.killed()
        await self.close()
        for part in self.folder.glob(f"{left.name}*"):
            part.unlink()
        await self.clock.advance(self.chance.choice([0, 45]))
        await self.open()


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_that_is_promised_is_broken_in_a_day(seed: int, tmp_path: Path, engine: Engine) -> None:
    day = Day(seed, tmp_path, engine.fewer(HOURS))
    await day.live()
    assert day.auditor.wrong == [], f"after {day.auditor.starts} starts and {day.done}"
    if day.hours >= LOUD:
        assert day.auditor.starts > 42 * day.hours
        unseen = {"deadline", "expired", "free slot", "preempted", "return"} - {*day.auditor.checks}
        assert not unseen, "this day was too quiet to prove anything"
