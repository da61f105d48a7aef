"""A simple model of a cron task, with sets and minute-by-minute search, to compare the decisions with."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tests.policy.cron.expressions import Meaning

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


@functools.cache
def occurrences_of_day(text: str, key: str, day: int) -> tuple[int, ...]:
    """Return all occurrences of one day of UTC, found by checking every minute."""
    meaning, zone = Meaning.of(text), ZoneInfo(key)
    minutes = range(day * DAY, (day + 1) * DAY, MINUTE)
    return tuple(at for at in minutes if meaning.allows(moment(at).astimezone(zone)))


class Expected(NamedTuple):
    """The reason why a task has to start, and its occurrence."""

    reason: str
    occurrence: int


@dataclass
class PlainTask:
    """The expected state of one task, as the contract states it."""

    expression: str
    retry_delay: int
    position: int
    zone: ZoneInfo
    ran: set[int] = field(default_factory=set)
    is_running: bool = False
    occurrence: int | None = None
    retry_at: int | None = None
    failed_at: int | None = None
    cut_short: bool = False
    crashes: int = 0

    @classmethod
    def new(cls, expression: str, retry_delay: int, now: int, zone: ZoneInfo) -> PlainTask:
        task = cls(expression, retry_delay, now, zone)
        begin = now // MINUTE * MINUTE
        if task.occurs(begin):
            task.position = begin - 1
        return task

    def occurs(self, at: int) -> bool:
        return Meaning.of(self.expression).allows(moment(at).astimezone(self.zone))

    def latest_passed(self, now: int) -> int | None:
        for day in range(now // DAY, self.position // DAY - 1, -1):
            for at in reversed(occurrences_of_day(self.expression, self.zone.key, day)):
                if self.position < at <= now and at not in self.ran:
                    return at
        return None

    def expected(self, now: int) -> Expected | None:
        if self.is_running:
            return None
        passed = self.latest_passed(now)
        if passed is not None:
            return Expected("occurrence", passed)
        if self.retry_at is not None and self.retry_at <= now:
            assert self.occurrence is not None
            return Expected("restart" if self.cut_short else "retry", self.occurrence)
        return None

    def start(self, why: Expected, now: int) -> None:
        assert not self.is_running
        if why.reason == "occurrence":
            self.ran.add(why.occurrence)
            self.crashes = 0
        self.position, self.occurrence, self.is_running, self.retry_at = now, why.occurrence, True, None

    def end(self, now: int, *, success: bool) -> None:
        self.is_running, self.cut_short = False, False
        if not success:
            self.failed_at = now
            self.retry_at = now + max(self.retry_delay, 1000)

    def cut(self, now: int) -> None:
        self.is_running, self.cut_short, self.retry_at = False, True, now

    def clock_was_put_back(self, now: int, step: int) -> None:
        self.position = min(self.position, now)
        if self.retry_at is not None and step > MINUTE:
            self.retry_at -= step

    def initialized(self, expression: str, retry_delay: int, now: int) -> None:
        self.expression, self.retry_delay = expression, retry_delay
        self.position = min(self.position, now)
        if self.is_running:
            self.is_running = False
            self.crashes += 1
            if self.crashes < 3:
                self.cut(now)
        at_work = None if self.retry_at is None else self.occurrence
        self.ran = {at for at in self.ran if at <= now + DAY or at == at_work}
        if self.retry_at is not None and self.cut_short:
            self.retry_at = min(self.retry_at, now)
        elif self.retry_at is not None and self.failed_at is not None and self.failed_at > now:
            self.retry_at -= self.failed_at - now
        self.failed_at = None if self.failed_at is None else min(self.failed_at, now)
