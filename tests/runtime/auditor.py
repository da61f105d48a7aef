"""An auditor that observes a running scheduler and keeps its own record of all limits, pauses, rates and deadlines.

Handlers report every start and ending to it, and the test reports every change of the rules: a stricter rule counts
once the verb has returned, a looser one from before the call. Violations are recorded and not raised, so that the clock
and the scheduler continue.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

from taskmill import RateLimit, Scheduler, TaskRecord
from taskmill.model.records import HistoryRecord

Scope = tuple[str, str]
"""``("group", name)``, ``("domain", name)``, ``("type", name)`` or ``("scheduler", "")``."""
SCHEDULER: Scope = ("scheduler", "")


class Job(NamedTuple):
    """The known properties of a submitted task."""

    group: str
    type: str
    priority: int
    created_at: int
    ttl: int | None


class Live(NamedTuple):
    """A running handler."""

    attempt: int
    group: str
    type: str
    effective: int


class Bucket:
    """A token bucket with exact fractions, and every start since its limit was set."""

    def __init__(self, limit: RateLimit, level: Fraction, now: int) -> None:
        self.limit = limit
        self._level = level
        self._at = now
        self.starts: list[int] = []

    def level(self, now: int) -> Fraction:
        gained = Fraction((now - self._at) * self.limit.permits, self.limit.interval_ms)
        return min(self._level + gained, Fraction(self.limit.capacity))

    def take(self, now: int) -> None:
        self._level, self._at = self.level(now) - 1, now
        self.starts.append(now)

    def is_kept(self) -> bool:
        """True if no window that ends with the last start has more starts than the burst and the rate allow."""
        last = len(self.starts) - 1
        return all(
            last - first + 1
            <= self.limit.capacity
            + Fraction((self.starts[last] - self.starts[first]) * self.limit.permits, self.limit.interval_ms)
            for first in range(max(0, last - 60), last + 1)
        )


class Auditor:
    """Knows the rules, observes the running tasks, and records violations."""

    def __init__(self, slots: int) -> None:
        self.wrong: list[str] = []
        self.slots = slots
        self.caps: dict[Scope, int] = {}
        self.rates: dict[Scope, Bucket] = {}
        self.jobs: dict[int, Job] = {}
        self.live: dict[int, Live] = {}
        self.generation = 0
        """Number of kills; handlers of an earlier generation are ignored."""
        self.preempted: set[int] = set()
        self.paused_series: set[str] = set()
        """Task types whose only series is paused."""
        self.starts = 0
        self.checks: Counter[str] = Counter()
        """How often each rule was checked."""
        self._pauses: dict[Scope, list[tuple[int, int | None]]] = {}
        self._attempts: dict[int, int] = {}

    def note(self, now: int, what: str) -> None:
        self.wrong.append(f"at {now / 1000:.3f}: {what}")

    # Rules

    def pause(self, scope: Scope, now: int, until: int | None) -> None:
        spans = self._pauses.setdefault(scope, [])
        if spans and self._lasts(spans[-1], now):
            spans[-1] = (spans[-1][0], until)
        else:
            spans.append((now, until))

    def resume(self, scope: Scope, now: int) -> None:
        spans = self._pauses.get(scope)
        if spans and self._lasts(spans[-1], now):
            spans[-1] = (spans[-1][0], now)

    def is_paused(self, scope: Scope, now: int) -> bool:
        return bool(self._pauses.get(scope)) and self._lasts(self._pauses[scope][-1], now)

    @staticmethod
    def _lasts(span: tuple[int, int | None], now: int) -> bool:
        return span[1] is None or span[1] > now

    def limit(self, scope: Scope, limit: RateLimit | None, now: int) -> None:
        """Set a limit; the bucket keeps its permits, as far as they fit."""
        before = self.rates.pop(scope, None)
        if limit is not None:
            level = Fraction(limit.capacity) if before is None else min(before.level(now), Fraction(limit.capacity))
            self.rates[scope] = Bucket(limit, level, now)

    def killed(self) -> None:
        self.generation += 1
        self.live.clear()

    # Reports of handlers

    def started(self, record: TaskRecord, now: int) -> None:
        self.starts += 1
        id, group, type = record.id, record.group, record.type
        if id in self.live:
            self.note(now, f"task {id} runs twice at once")
        if record.attempt <= self._attempts.get(id, 0):
            self.note(now, f"task {id} runs attempt {record.attempt} again")
        self._attempts[id] = record.attempt
        if len(self.live) >= self.slots:
            self.note(now, f"task {id} took slot {len(self.live) + 1} of {self.slots}")
        for scope in scopes_of(group, type):
            if scope in self.caps and self._running_in(scope) >= self.caps[scope]:
                self.note(now, f"task {id} passed over the cap {self.caps[scope]} of {scope}")
            if self.is_paused(scope, now):
                self.note(now, f"task {id} started while {scope} was paused")
            if (bucket := self.rates.get(scope)) is not None:
                if bucket.level(now) < 1:
                    self.note(now, f"task {id} started with {float(bucket.level(now)):.3f} permits of {scope}")
                bucket.take(now)
                if not bucket.is_kept():
                    self.note(now, f"{scope} started more than its rate allows: {bucket.starts[-5:]}")
        if type in self.paused_series:
            self.note(now, f"occurrence {id} started while its series was paused")
        if record.attempt == 1 and id in self.jobs and (deadline := self.deadline(id, now)) is not None:
            self.checks["deadline"] += 1
            if now >= deadline:
                self.note(now, f"task {id} started after its deadline {deadline / 1000:.3f}")
        if id in self.preempted:
            self.checks["return"] += 1
            if any(live.effective == 0 for live in self.live.values()):
                self.note(now, f"task {id} returned while a preemptor runs")
            self.preempted.discard(id)
        self.live[id] = Live(record.attempt, group, type, record.effective_priority)

    def ended(self, id: int) -> None:
        self.live.pop(id, None)

    def deadline(self, id: int, now: int) -> int | None:
        """Return when a task expires: its time-to-live, extended by all the time in which it was paused."""
        job = self.jobs[id]
        if job.ttl is None:
            return None
        spans = sorted(
            (max(since, job.created_at), now if until is None else min(until, now))
            for scope in scopes_of(job.group, job.type)
            for since, until in self._pauses.get(scope, [])
        )
        frozen, reached = 0, job.created_at
        for since, until in spans:
            frozen += max(0, until - max(since, reached))
            reached = max(reached, until)
        return job.created_at + job.ttl + frozen

    # Checks, when nothing is in progress

    async def look(self, scheduler: Scheduler, now: int) -> None:
        active = {record.id: record for record in await scheduler.tasks()}
        for id in self.live:
            if id not in active or active[id].status != "running":
                self.note(now, f"task {id} runs, and its record says {active.get(id)}")
        for id, record in active.items():
            if record.status == "running" and id not in self.live:
                self.note(now, f"task {id} is said to run and does not")
        await self._look_for_lost(scheduler, active, now)
        self._look_for_wasted_slots(active, now)
        self._look_at_preempted(active, now)

    async def _look_for_lost(self, scheduler: Scheduler, active: dict[int, TaskRecord], now: int) -> None:
        for id in [id for id in self.jobs if id not in active]:
            record = await scheduler.get(id)
            if not isinstance(record, HistoryRecord):
                self.note(now, f"task {id} is neither active nor ended")
            elif record.ending == "expired" and record.attempt == 0:
                self.checks["expired"] += 1
                deadline = self.deadline(id, now)
                if deadline is None or round(record.ended_at.timestamp() * 1000) < deadline:
                    self.note(now, f"task {id} expired before its deadline {deadline}")
            self.preempted.discard(id)
            del self.jobs[id]

    def _look_for_wasted_slots(self, active: dict[int, TaskRecord], now: int) -> None:
        if len(self.live) >= self.slots:
            return
        self.checks["free slot"] += 1
        for record in active.values():
            if record.status == "pending" and self._is_open(record.group, record.type, now):
                self.note(now, f"task {record.id} waits while {self.slots - len(self.live)} slots are free")

    def _is_open(self, group: str, type: str, now: int) -> bool:
        return type not in self.paused_series and not any(
            self.is_paused(scope, now)
            or (scope in self.caps and self._running_in(scope) >= self.caps[scope])
            or (scope in self.rates and self.rates[scope].level(now) < 1)
            for scope in scopes_of(group, type)
        )

    def _look_at_preempted(self, active: dict[int, TaskRecord], now: int) -> None:
        critical = [record for record in active.values() if record.effective_priority == 0]
        at_work = [record for record in critical if record.id in self.live]
        for id in self.preempted & active.keys():
            self.checks["preempted"] += 1
            if at_work and active[id].status != "paused":
                self.note(now, f"preempted task {id} is {active[id].status} while a preemptor runs")
            is_open = self._is_open(active[id].group, active[id].type, now)
            if not critical and active[id].status == "paused" and is_open:
                self.note(now, f"preempted task {id} did not return")

    def _running_in(self, scope: Scope) -> int:
        return sum(scope in scopes_of(live.group, live.type) for live in self.live.values())


def scopes_of(group: str, type: str) -> tuple[Scope, ...]:
    return (SCHEDULER, ("group", group), ("domain", type.partition("::")[0]), ("type", type))
