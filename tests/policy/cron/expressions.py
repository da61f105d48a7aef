"""Random cron expressions, and a second, simpler interpretation of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from hypothesis import strategies as st

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
LONGEST = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    """Return a strategy for numbers in a range, sometimes with leading zeros."""
    return st.builds(
        lambda number, zeros: "0" * zeros + str(number), st.integers(low, high), st.sampled_from([0, 0, 0, 1])
    )


def items(low: int, high: int) -> st.SearchStrategy[str]:
    ranges = st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda pair: f"{min(pair)}-{max(pair)}")
    return st.one_of(numbers(low, high), ranges)


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.lists(items(low, high), min_size=1, max_size=4).map(",".join))


def is_possible(text: str) -> bool:
    days, months, weekdays = text.split()[2:]
    if weekdays != "*" or days == "*":
        return True
    return any(day <= LONGEST.get(month, 31) for day in values(days, 2) for month in values(months, 3))


def values(field: str, place: int) -> set[int]:
    low, high = RANGES[place]
    if field == "*":
        return set(range(low, high + 1))
    found: set[int] = set()
    for item in field.split(","):
        first, _, last = item.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


valid_texts = st.tuples(*(fields(low, high) for low, high in RANGES)).map(" ".join).filter(is_possible)


class Meaning(NamedTuple):
    """An expression as sets of numbers, with the rule of days as the standard states it."""

    minutes: set[int]
    hours: set[int]
    days: set[int]
    months: set[int]
    weekdays: set[int]
    any_day: bool
    any_weekday: bool

    @classmethod
    def of(cls, text: str) -> Meaning:
        parts: Sequence[str] = text.split()
        minutes, hours, days, months, weekdays = (values(part, place) for place, part in enumerate(parts))
        return cls(minutes, hours, days, months, weekdays, parts[2] == "*", parts[4] == "*")

    def allows(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.allows_day(wall)

    def allows_day(self, wall: datetime) -> bool:
        by_day, by_weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return wall.month in self.months and by_day and by_weekday
        return wall.month in self.months and (by_day or by_weekday)
