"""How urgent a waiting task has become.

``base`` is the stored priority and never changes; ``waited_ms`` is how long the task has waited, without the time it
was paused. Both make its effective priority; lower is more urgent.

Laws: effective is never less urgent than base, never above the ceiling unless base is, and never grows less urgent with
time. So among tasks of one base priority older is never less urgent than younger, and the head of each lane is enough
to rank them all. Every wait given here is exact: at it the line is reached, one millisecond before it is not.
"""

from __future__ import annotations

from taskmill.model.aging import Aging
from taskmill.model.priority import Priority

NAMED_LEVELS = tuple(sorted({int(level) for level in Priority}, reverse=True))
"""From the least to the most urgent."""


def effective_priority(aging: Aging | None, base: int, waited_ms: int) -> int:
    if aging is None or base <= aging.ceiling:
        return base
    steps = max((waited_ms - aging.grace_ms) // aging.interval_ms, 0)
    return max(base - aging.step * steps, int(aging.ceiling))


def is_urgent(aging: Aging | None, effective: int) -> bool:
    """Whether a task may pass over the share of its group."""
    return aging is not None and aging.urgent is not None and effective <= aging.urgent


def wait_until_ms(aging: Aging, base: int, level: int) -> int | None:
    """How long a task waits until it is at least as urgent as ``level``; ``None``: it will never be."""
    if base <= level:
        return 0
    if level < aging.ceiling:
        return None
    steps = -((level - base) // aging.step)
    return aging.grace_ms + steps * aging.interval_ms


def max_wait_ms(aging: Aging, base: int) -> int:
    """How long a task waits until it is urgent, or where no line is drawn, as urgent as aging makes it."""
    line = aging.ceiling if aging.urgent is None else aging.urgent
    return wait_until_ms(aging, base, line) or 0


def next_step_ms(aging: Aging, base: int, waited_ms: int) -> int | None:
    """The wait at which the effective priority changes next; ``None``: never again."""
    effective = effective_priority(aging, base, waited_ms)
    return None if effective <= aging.ceiling else wait_until_ms(aging, base, effective - 1)


def lines_ahead(aging: Aging, base: int) -> list[int]:
    """The named levels and the urgent line that a task will cross as it waits, in the order of crossing."""
    lines = {*NAMED_LEVELS} if aging.urgent is None else {*NAMED_LEVELS, int(aging.urgent)}
    return sorted((line for line in lines if aging.ceiling <= line < base), reverse=True)


def lines_crossed(aging: Aging, base: int, before_ms: int, after_ms: int) -> list[int]:
    """Those of :func:`lines_ahead` that are crossed between two waits, the first excluded and the second included."""
    before, after = (effective_priority(aging, base, waited) for waited in (before_ms, after_ms))
    return [line for line in lines_ahead(aging, base) if after <= line < before]
