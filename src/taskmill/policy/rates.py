"""Token buckets: compute when a rate limit lets the next task start.

A permit costs ``interval_ms`` units of the bucket's level, and each millisecond adds ``permits`` units. All arithmetic
is exact in whole numbers, so no rate drifts.

Laws: a bucket starts full; its level is never negative and never above the burst; over any time t at most
burst + permits · t / interval permits are taken. A step of the clock that is noticed adds and removes nothing: the
bucket is shifted with it. A bucket that an unnoticed step back has left in the future continues from the present.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from taskmill.model.controls import Bucket, Scope, ScopeKind
from taskmill.model.settings import RateLimit


def full_bucket(limit: RateLimit, now: int) -> Bucket:
    return Bucket(limit.capacity * limit.interval_ms, now, limit.interval_ms)


def permits_at(bucket: Bucket, limit: RateLimit, now: int) -> int:
    """Return how many tasks may start now."""
    return _refilled(bucket, limit, now).level // limit.interval_ms


def take_permits(bucket: Bucket, limit: RateLimit, now: int, count: int = 1) -> Bucket:
    """Return the bucket after ``count`` starts; raise ``ValueError`` if it holds fewer permits at ``now``."""
    refilled = _refilled(bucket, limit, now)
    level = refilled.level - count * limit.interval_ms
    if count < 0 or level < 0:
        raise ValueError(f"cannot take {count} permits of {refilled.level // limit.interval_ms}")
    return Bucket(level, now, limit.interval_ms)


def take_for_starts(
    rates: Sequence[tuple[Scope, RateLimit, Bucket]],
    starts: Iterable[tuple[str, str]],
    now: int,
    *,
    among_nodes: bool = False,
) -> list[tuple[Scope, Bucket]]:
    """Take one permit for each task that starts, given by its group and type, from each limit that applies to it.

    With several nodes, a turn may be planned before another node's turn and committed after it. The bucket's time is
    then ahead of ``now`` and must not go back, or the bucket would be refilled twice for the same time.
    """
    started = Counter[Scope]()
    for group, type in starts:
        started[Scope(ScopeKind.GROUP, group)] += 1
        started[Scope(ScopeKind.TYPE, type)] += 1
    return [
        (scope, take_permits(bucket, limit, at, min(started[scope], permits_at(bucket, limit, at))))
        for scope, limit, bucket in rates
        for at in [max(now, bucket.at) if among_nodes else now]
    ]


def next_permit_at(bucket: Bucket, limit: RateLimit, now: int) -> int:
    """Return the first instant, not before ``now``, at which a permit is available."""
    missing = limit.interval_ms - _refilled(bucket, limit, now).level
    return now + max(-(-missing // limit.permits), 0)


def full_at(bucket: Bucket, limit: RateLimit) -> int:
    """Return when the bucket is full if no more permits are taken; from then on it need not be remembered."""
    missing = limit.capacity * limit.interval_ms - _refilled(bucket, limit, bucket.at).level
    return bucket.at + max(-(-missing // limit.permits), 0)


def carry_over(bucket: Bucket, old: RateLimit, new: RateLimit, now: int) -> Bucket:
    """Return the bucket under a changed limit: it keeps its level, up to the new burst, so a change adds no burst."""
    return _refilled(_refilled(bucket, old, now), new, now)


def shifted(bucket: Bucket, by_ms: int, now: int) -> Bucket:
    """Return the bucket after a step of the clock to ``now``."""
    return Bucket(bucket.level, min(bucket.at + by_ms, now), bucket.unit)


def _refilled(bucket: Bucket, limit: RateLimit, now: int) -> Bucket:
    unit = limit.interval_ms
    level = bucket.level if bucket.unit == unit else bucket.level * unit // bucket.unit
    gained = max(now - bucket.at, 0) * limit.permits
    return Bucket(min(level + gained, limit.capacity * unit), now, unit)
