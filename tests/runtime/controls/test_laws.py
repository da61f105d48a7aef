"""Random controls on a running scheduler: forbidden starts never happen, and nothing is left behind."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from taskmill import Aging, Context, Domain, Group, RateLimit, Scheduler, Submission
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.repetition import seeds

GROUPS = ["", "a", "b"]
DOMAINS = ["d", "e"]
STEPS = 80
TTL_MS = 4000


class Trial:
    """Knows what is allowed at each moment, and records starts that are not."""

    def __init__(self, clock: ManualClock, seed: int) -> None:
        self.clock = clock
        self.chance = random.Random(seed)
        self.wrong: list[str] = []
        self.suspects: list[tuple[int, str]] = []
        """Tasks that started when they should not, unless they were claimed before."""
        self.running: Counter[tuple[str, str]] = Counter()
        self.paused: dict[tuple[str, str], float | None] = {}
        self.caps: dict[tuple[str, str], int | None] = {}
        self.rates: dict[tuple[str, str], tuple[RateLimit, float] | None] = {}
        self.starts: dict[tuple[str, str], list[float]] = {}
        self.slots = 3
        self.born: dict[int, int] = {}
        self.still: dict[int, list[tuple[int, int]]] = {}
        """Milliseconds in which each task was paused and not running."""
        self.at_work: set[int] = set()
        self.claimed: set[int] = set()
        """Tasks that were already claimed when a control returned; their handlers may begin a moment later."""
        self.known: dict[int, tuple[str, str]] = {}
        self.domains = [self._domain(name) for name in DOMAINS]

    def _domain(self, name: str) -> Domain:
        domain = Domain(name)

        @domain.task
        async def work(ctx: Context, takes: float) -> None:
            self._started(ctx)
            try:
                await self.clock.sleep(takes)
            finally:
                self._ended(ctx)

        return domain

    def now_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def is_paused(self, group: str, domain: str) -> bool:
        now = self.clock.monotonic()
        scopes = (("scheduler", ""), ("group", group), ("domain", domain))
        return any(scope in self.paused and ((until := self.paused[scope]) is None or until > now) for scope in scopes)

    def judge_suspects(self) -> None:
        self.wrong += [text for id, text in self.suspects if id not in self.claimed]
        self.suspects.clear()

    def _started(self, ctx: Context) -> None:
        task = ctx.task
        scopes = (("scheduler", ""), ("group", task.group or ""), ("domain", task.domain))
        if self.is_paused(task.group or "", task.domain) and task.id not in self.claimed:
            self.suspects.append((task.id, f"{self.clock.monotonic()}: {task.id} started though paused"))
        self.at_work.add(task.id)
        for scope in scopes:
            self.running[scope] += 1
            cap = self.slots if scope[0] == "scheduler" else self.caps.get(scope)
            if cap is not None and self.running[scope] > cap and task.id not in self.claimed:
                text = f"{self.clock.monotonic()}: {task.id} started beyond the cap of {scope}"
                self.suspects.append((task.id, text))
            self.starts.setdefault(scope, []).append(self.clock.monotonic())
            self._check_rate(scope)

    def _check_rate(self, scope: tuple[str, str]) -> None:
        limit = self.rates.get(scope)
        if limit is None:
            return
        rate, since = limit
        counted = [at for at in self.starts[scope] if at >= since]
        for number, at in enumerate(reversed(counted), 1):
            allowed = rate.capacity + rate.permits * (counted[-1] - at) / (rate.interval_ms / 1000)
            if number > allowed + 1e-6:
                self.wrong.append(f"{counted[-1]}: {number} starts of {scope} since {at}, allowed are {allowed}")
                return

    def _ended(self, ctx: Context) -> None:
        task = ctx.task
        self.at_work.discard(task.id)
        for scope in (("scheduler", ""), ("group", task.group or ""), ("domain", task.domain)):
            self.running[scope] -= 1

    async def let_pass(self, ms: int) -> None:
        """Advance the clock, from one end of a pause to the next: the model does not change in between."""
        left = ms
        while left:
            ends = [round(until * 1000) for until in self.paused.values() if until is not None]
            step = min([left, *(end - self.now_ms() for end in ends if end > self.now_ms())])
            still = [id for id, where in self.known.items() if self.is_paused(*where) and id not in self.at_work]
            for id in still:
                self.still.setdefault(id, []).append((self.now_ms(), self.now_ms() + step))
            await self.clock.advance(step / 1000)
            left -= step


async def _do_something(trial: Trial, scheduler: Scheduler) -> None:
    chance = trial.chance
    group, domain = chance.choice(GROUPS), chance.choice(DOMAINS)
    match chance.choice(["submit", "submit", "pause", "pause", "resume", "resume", "cap", "rate", "slots", "urgent"]):
        case "submit":
            options: dict[str, Any] = {"group": group or None, "priority": chance.choice([0, 64, 128, 192, 255])}
            if chance.random() < 0.5:
                options["ttl"] = TTL_MS / 1000
            if chance.random() < 0.3:
                options["run_after"] = chance.randrange(3000) / 1000
            handle = await scheduler.submit(
                Submission(f"{domain}::work", {"takes": chance.randrange(1, 2000) / 1000}, **options)
            )
            trial.born[handle.id] = trial.now_ms()
            trial.known[handle.id] = (group, domain)
        case "pause":
            kind = chance.choice(["scheduler", "domain", "group", "group"])
            until: float | None = None
            if kind == "scheduler":
                await scheduler.pause()
                trial.paused["scheduler", ""] = None
            elif kind == "domain":
                await scheduler.domain(domain).pause()
                trial.paused["domain", domain] = None
            else:
                duration = chance.choice([None, chance.randrange(1, 3000) / 1000])
                await scheduler.group(group or None).pause(duration=duration)
                until = None if duration is None else (trial.now_ms() + round(duration * 1000)) / 1000
                trial.paused["group", group] = until
        case "resume":
            if trial.paused:
                scope = chance.choice(sorted(trial.paused))
                await _control(scheduler, scope).resume()
                del trial.paused[scope]
        case "cap":
            cap = chance.choice([None, 1, 2])
            await scheduler.group(group or None).set(cap=cap)
            await scheduler.domain(domain).set_max_concurrency(cap)
            trial.caps["group", group] = trial.caps["domain", domain] = cap
        case "rate":
            rate = chance.choice([None, RateLimit(2, 1, burst=1), RateLimit(5, 1, burst=3)])
            await scheduler.group(group or None).set(rate=rate)
            trial.rates["group", group] = None if rate is None else (rate, trial.clock.monotonic())
        case "slots":
            slots = chance.randrange(1, 6)
            await scheduler.set_max_concurrency(slots)
            trial.slots = slots
        case _:
            waiting = await scheduler.tasks(limit=20)
            if waiting:
                record = chance.choice(waiting)
                if chance.random() < 0.3:
                    await scheduler.cancel(record.id)
                else:
                    await scheduler.set_priority(record.id, chance.randrange(256))


def _control(scheduler: Scheduler, scope: tuple[str, str]) -> Any:
    kind, name = scope
    if kind == "scheduler":
        return scheduler
    return scheduler.domain(name) if kind == "domain" else scheduler.group(name or None)


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("shared", [False, True])
async def test_no_task_starts_that_controls_forbid(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, seed: int, shared: bool
) -> None:
    trial = Trial(manual_clock, seed)
    scheduler = await taskmill_scheduler(
        domains=trial.domains,
        max_concurrency=trial.slots,
        groups={"a": Group(weight=2)} if shared else {},
        aging=Aging(grace=1, interval=0.5, step=8) if seed % 2 else None,
        shutdown_grace=0,
    )
    async with scheduler.running():
        for _ in range(STEPS):
            trial.judge_suspects()
            await _do_something(trial, scheduler)
            # On a server a claim that was committed before the verb may begin after it.
            trial.claimed = {record.id for record in await scheduler.tasks(status="running")}
            trial.judge_suspects()
            await trial.let_pass(trial.chance.choice([0, 1, trial.chance.randrange(1500)]))
        trial.judge_suspects()
        for scope in list(trial.paused):
            await _control(scheduler, scope).resume()
            del trial.paused[scope]
        for group in GROUPS:
            await scheduler.group(group or None).set(cap=None, rate=None)
            trial.caps.pop(("group", group), None)
            trial.rates.pop(("group", group), None)
        for domain in DOMAINS:
            await scheduler.domain(domain).set_max_concurrency(None)
            trial.caps.pop(("domain", domain), None)
        await trial.let_pass(120_000)
        left = await scheduler.tasks()
        history = await scheduler.history()
    trial.judge_suspects()
    assert trial.wrong == []
    assert left == []
    assert {record.id for record in history} == set(trial.born)
    for record in history:
        if record.ending == "expired":
            age = round((record.ended_at - record.created_at).total_seconds() * 1000)
            ended = trial.born[record.id] + age
            stood_still = sum(max(min(end, ended) - begin, 0) for begin, end in trial.still.get(record.id, []))
            assert age - stood_still == TTL_MS, f"task {record.id} did not expire on time"
        else:
            assert record.ending in ("completed", "cancelled")
        assert record.retries == 0
