"""Token buckets: when a rate limit lets the next task start.

One permit is ``interval`` milliseconds' worth of level and every millisecond adds ``permits`` to the level, so that all
is exact in whole numbers and no rate drifts.

Laws: a bucket starts full; what it holds is never negative and never above the burst; over any time t no more than
burst + permits · t / interval are taken. A clock that steps back adds nothing and costs nothing: the bucket goes on
from the new time. One that steps forward fills the bucket at most.
"""

from __future__ import annotations

from taskmill.model.controls import Bucket
from taskmill.model.rate_limit import RateLimit


def full_bucket(limit: RateLimit, now: int) -> Bucket:
    return Bucket(limit.capacity * limit.interval_ms, now, limit.interval_ms)


def permits_at(bucket: Bucket, limit: RateLimit, now: int) -> int:
    """How many tasks may start now."""
    return _refilled(bucket, limit, now).level // limit.interval_ms


def take_permits(bucket: Bucket, limit: RateLimit, now: int, count: int = 1) -> Bucket:
    """The bucket after ``count`` starts, which :func:`permits_at` has allowed at this ``now``."""
    refilled = _refilled(bucket, limit, now)
    level = refilled.level - count * limit.interval_ms
    if count < 0 or level < 0:
        raise ValueError(f"cannot take {count} permits of {refilled.level // limit.interval_ms}")
    return Bucket(level, now, limit.interval_ms)


def next_permit_at(bucket: Bucket, limit: RateLimit, now: int) -> int:
    """When a task may start: ``now``, or the first instant at which a permit is there."""
    missing = limit.interval_ms - _refilled(bucket, limit, now).level
    return now + max(-(-missing // limit.permits), 0)


def full_at(bucket: Bucket, limit: RateLimit) -> int:
    """When a bucket of this limit is full if nothing more is taken; from then on it need not be remembered."""
    missing = limit.capacity * limit.interval_ms - _refilled(bucket, limit, bucket.at).level
    return bucket.at + max(-(-missing // limit.permits), 0)


def carry_over(bucket: Bucket, old: RateLimit, new: RateLimit, now: int) -> Bucket:
    """The bucket when its limit changes: what it holds is kept, as far as it fits, so that a change is no new burst."""
    return _refilled(_refilled(bucket, old, now), new, now)


def _refilled(bucket: Bucket, limit: RateLimit, now: int) -> Bucket:
    unit = limit.interval_ms
    level = bucket.level if bucket.unit == unit else bucket.level * unit // bucket.unit
    gained = max(now - bucket.at, 0) * limit.permits
    return Bucket(min(level + gained, limit.capacity * unit), now, unit)
