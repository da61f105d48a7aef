"""Learn the IO capacity of a machine from the rates that it sustains.

The capacity rises to the highest smoothed rate that was observed. An idle disk proves nothing: rates below a floor are
ignored. The first estimate also ignores a disk that was busy for less than a tenth of the time, if the system reports
that.

A machine may become slower: another disk, a worse network. This shows only under a load above what it delivers. So the
capacity is lowered only while all of this is true: the budgets of running tasks add up to at least half of what the IO
limit would admit, bytes move on the axis, and the machine seems to be the bottleneck. It is the bottleneck if the disk
is busy all the time or, if that is not reported, if several tasks share the axis (a single task may be slow by
itself). Each reading then lowers the capacity by 1 % of the difference.

Laws: without an observation there is no capacity; an idle axis changes nothing; the capacity is never above the highest
observed rate and never falls below the rate observed now.
"""

from __future__ import annotations

from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import HIGHEST_RATE, Capacity, Reading
from taskmill.policy.io_room import SHARE, WINDOW_SECONDS, IoLoad

IDLE_BELOW = (2.0**20, 2.0**20, 2.0**17, 2.0**17)
"""By axis, in bytes per second. A disk below 1 MiB/s and a network below 128 KiB/s count as idle."""
LOWERED_BY = 0.01
FULLY_BUSY = 0.9
BUSY_ENOUGH = 0.1
"""A disk that was busy for less than this share of the time gives no first estimate."""


def learned(before: Capacity, seen: Reading, load: IoLoad) -> Capacity:
    """Return the capacity after the smoothed reading ``seen``; ``load`` sums the budgets of the running tasks."""
    rates = [
        _on_axis(known, rate, seen.disk_busy if index < 2 else None, load.amounts[index], load.counts[index], floor)
        for index, (known, rate, floor) in enumerate(zip(before.rates, seen.rates, IDLE_BELOW, strict=True))
    ]
    # Reads and writes share the busy time of a disk, so only the axis that moves more can prove that it became slower.
    for index, other in ((0, 1), (1, 0)):
        if seen.rates[index] < seen.rates[other]:
            rates[index] = max(rates[index], before.rates[index])
    return before if tuple(rates) == before.rates else Capacity(*rates)


def _on_axis(known: float, rate: float, busy: float | None, wanted: int, tasks: int, idle_below: float) -> float:
    if rate < idle_below:
        return known
    if rate >= known:
        # A nearly idle disk is no evidence for a first estimate.
        return rate if known or busy is None or busy >= BUSY_ENOUGH else known
    is_wanted = wanted >= known * WINDOW_SECONDS * SHARE / 2
    is_bound = tasks > 1 if busy is None else busy >= FULLY_BUSY
    return known + LOWERED_BY * (rate - known) if is_wanted and is_bound else known


def capacity_in_use(known: Capacity, given: IoBudget | None, bounds: IoBudget | None = None) -> Capacity:
    """Return the capacity that the IO limit uses: the configured rate of an axis, else the learned one.

    ``bounds`` limits both. It holds the system's own limits, such as those of a container, in bytes per second; 0 means
    no limit.
    """
    rates: list[float] = []
    for index, learned_rate in enumerate(known.rates):
        rate = (given.amounts[index] if given else 0) or learned_rate
        bound = bounds.amounts[index] if bounds else 0
        rates.append(float(min(rate, bound) if rate and bound else rate or bound))
    return Capacity(*(min(rate, HIGHEST_RATE) for rate in rates))


def is_news(stored: Capacity, known: Capacity) -> bool:
    """True if the capacity has changed by more than a tenth on any axis, enough to be worth a write."""
    return any(abs(new - old) > 0.1 * old for old, new in zip(stored.rates, known.rates, strict=True))
