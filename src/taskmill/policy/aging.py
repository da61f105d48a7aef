"""Rank waiting tasks by their effective priority, which grows more urgent with time (aging).

The effective priority follows from ``base``, the stored priority, and ``waited_ms``, the time waited without pauses.
Lower is more urgent. Among equals the longest waiting task is first, then the lowest place id.

Laws: the effective priority is never less urgent than the base, never rises above the ceiling unless the base is above
it, and never becomes less urgent with time. So among tasks with the same base priority, an older one is never less
urgent than a younger one, and the head of each lane is enough to rank all tasks. Every wait returned here is exact to
the millisecond.
"""

from __future__ import annotations

from taskmill.model.settings import Aging, Priority

NAMED_LEVELS = tuple(sorted({int(level) for level in Priority}, reverse=True))
"""From the least to the most urgent."""


def effective_priority(aging: Aging | None, base: int, waited_ms: int) -> int:
    if aging is None or base <= aging.ceiling:
        return base
    steps = max((waited_ms - aging.grace_ms) // aging.interval_ms, 0)
    return max(base - aging.step * steps, int(aging.ceiling))


def is_urgent(aging: Aging | None, effective: int) -> bool:
    """True if a task may start even though its group has used up its share."""
    return aging is not None and aging.urgent is not None and effective <= aging.urgent


def wait_until_ms(aging: Aging, base: int, level: int) -> int | None:
    """Return how long a task waits until it is at least as urgent as ``level``; ``None`` if it never will be."""
    if base <= level:
        return 0
    if level < aging.ceiling:
        return None
    steps = -((level - base) // aging.step)
    return aging.grace_ms + steps * aging.interval_ms


def max_wait_ms(aging: Aging, base: int) -> int:
    """Return how long a task waits until it is urgent or, without ``aging.urgent``, until it reaches the ceiling."""
    line = aging.ceiling if aging.urgent is None else aging.urgent
    return wait_until_ms(aging, base, line) or 0


def next_step_ms(aging: Aging, base: int, waited_ms: int) -> int | None:
    """Return the wait at which the effective priority changes next; ``None`` if it never changes again."""
    effective = effective_priority(aging, base, waited_ms)
    return None if effective <= aging.ceiling else wait_until_ms(aging, base, effective - 1)


def lines_ahead(aging: Aging, base: int) -> list[int]:
    """Return the named levels and the urgent line that a task will cross as it waits, in the order of crossing."""
    lines = {*NAMED_LEVELS} if aging.urgent is None else {*NAMED_LEVELS, int(aging.urgent)}
    return sorted((line for line in lines if aging.ceiling <= line < base), reverse=True)


def lines_crossed(aging: Aging, base: int, before_ms: int, after_ms: int) -> list[int]:
    """Return the lines of :func:`lines_ahead` crossed between two waits: after ``before_ms``, up to ``after_ms``."""
    before, after = (effective_priority(aging, base, waited) for waited in (before_ms, after_ms))
    return [line for line in lines_ahead(aging, base) if after <= line < before]


MOST_IN_SIGHT = 49_152
LARGEST_FRONT = 512
SMALLEST_FRONT = 4


def front_size(lanes: int) -> int:
    """Return how many places of each lane to keep in memory: fewer if there are more lanes, to limit the memory."""
    return max(SMALLEST_FRONT, min(LARGEST_FRONT, MOST_IN_SIGHT // max(lanes, 1)))
