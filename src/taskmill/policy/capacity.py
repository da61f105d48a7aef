"""What a machine can sustain, learned from what it has been seen to do.

A rate that was seen was sustained, so the highest is remembered; readings are smoothed, so that a moment does not
count for much. A disk that has nothing to do shows nothing: rates below a floor are evidence of nothing, nor are those
of a disk that was at work for less than a tenth of the time, where the system tells that.

A machine may become slower: another disk, a worse network. Only a machine that was asked for more than it gave shows
that. So what is known is lowered only while running tasks want at least half of what the gate would let through, the
axis moves, and there is reason to think that the machine is what they wait for: the disk is at work all the time or,
where nobody tells, several tasks share the axis (one alone may be slow by itself). And then slowly, by 1 % of the
difference with each reading.

Laws: nothing is known before something was seen; an idle axis changes nothing; what is known is never above the
highest that was seen and never falls below what is seen now.
"""

from __future__ import annotations

from taskmill.model.io_budget import IoBudget
from taskmill.model.readings import HIGHEST_RATE, Capacity, Reading
from taskmill.policy.io_gate import SHARE, WINDOW_SECONDS, IoLoad

IDLE_BELOW = (2.0**20, 2.0**20, 2.0**17, 2.0**17)
"""By axis, in bytes per second. A disk that moves less than 1 MiB/s, or a network with less than 128 KiB/s, is idle."""
LOWERED_BY = 0.01
FULLY_BUSY = 0.9
BUSY_ENOUGH = 0.1
"""A disk that was at work for less than this share of the time is idle."""


def learned(before: Capacity, seen: Reading, load: IoLoad) -> Capacity:
    """What is known after a smoothed reading; ``load`` is what running tasks have in their budgets."""
    rates = [
        _on_axis(known, rate, seen.disk_busy if index < 2 else None, load.amounts[index], load.counts[index], floor)
        for index, (known, rate, floor) in enumerate(zip(before.rates, seen.rates, IDLE_BELOW, strict=True))
    ]
    # Both axes of a disk are at work in the same time, so only the one that moves more can show that it became slower.
    for index, other in ((0, 1), (1, 0)):
        if seen.rates[index] < seen.rates[other]:
            rates[index] = max(rates[index], before.rates[index])
    return before if tuple(rates) == before.rates else Capacity(*rates)


def _on_axis(known: float, rate: float, busy: float | None, wanted: int, tasks: int, idle_below: float) -> float:
    if rate < idle_below:
        return known
    if rate >= known:
        # A disk that rests shows nothing about the first of what it could do.
        return rate if known or busy is None or busy >= BUSY_ENOUGH else known
    is_wanted = wanted >= known * WINDOW_SECONDS * SHARE / 2
    is_bound = tasks > 1 if busy is None else busy >= FULLY_BUSY
    return known + LOWERED_BY * (rate - known) if is_wanted and is_bound else known


def capacity_in_use(known: Capacity, given: IoBudget | None, bounds: IoBudget | None = None) -> Capacity:
    """What the gate goes by: what was given for an axis, else what is known, never above what the system allows.

    ``bounds`` are limits of the system, such as those of a container, in bytes per second; 0: none.
    """
    rates: list[float] = []
    for index, learned_rate in enumerate(known.rates):
        rate = (given.amounts[index] if given else 0) or learned_rate
        bound = bounds.amounts[index] if bounds else 0
        rates.append(float(min(rate, bound) if rate and bound else rate or bound))
    return Capacity(*(min(rate, HIGHEST_RATE) for rate in rates))


def is_news(stored: Capacity, known: Capacity) -> bool:
    """Whether what is known has changed enough to be worth a write: by a tenth on any axis."""
    return any(abs(new - old) > 0.1 * old for old, new in zip(stored.rates, known.rates, strict=True))
