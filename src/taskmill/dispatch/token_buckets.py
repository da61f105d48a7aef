"""Rate limits while a turn is planned: the tokens in each bucket, less those that the turn is about to take."""

from __future__ import annotations

from collections.abc import Iterable

from taskmill.model.controls import Bucket, Scope
from taskmill.model.settings import RateLimit
from taskmill.model.turn import Rate
from taskmill.policy.rates import carry_over, full_at, full_bucket, next_permit_at, permits_at
from taskmill.policy.rules import Rules

FEW = 64


class TokenBuckets:
    """Tokens are promised here to the tasks of a plan. The store takes them for the tasks that start."""

    def __init__(self) -> None:
        self._buckets: dict[Scope, Bucket] = {}
        self._promised: dict[Scope, int] = {}
        self._now = 0
        self._many = FEW
        """With more buckets than this, full ones are forgotten."""

    def rule(self, before: Rules, rules: Rules, stored: Iterable[tuple[Scope, Bucket]], now: int) -> None:
        """Apply changed limits; each bucket keeps its content as far as the new limit allows."""
        buckets = dict(stored) | self._buckets
        self._buckets = {}
        for scope, bucket in buckets.items():
            old, new = before.rate(scope), rules.rate(scope)
            if new is not None:
                self._buckets[scope] = bucket if old is None or old == new else carry_over(bucket, old, new, now)

    def at(self, now: int) -> None:
        self._now = now

    def permits(self, scope: Scope, limit: RateLimit) -> int:
        """Return how many more tasks may start now."""
        return max(permits_at(self._bucket(scope, limit), limit, self._now) - self._promised.get(scope, 0), 0)

    def next_permit(self, scope: Scope, limit: RateLimit) -> int:
        """Return when the next task may start."""
        bucket = self._bucket(scope, limit)
        promised = self._promised.get(scope, 0)
        if promised:
            bucket = Bucket(bucket.level - promised * bucket.unit, bucket.at, bucket.unit)
        return max(next_permit_at(bucket, limit, self._now), self._now + 1)

    def take(self, scope: Scope) -> None:
        """Promise a token to a task that is about to start."""
        self._promised[scope] = self._promised.get(scope, 0) + 1

    def promised(self, rules: Rules) -> list[Rate]:
        """Return the buckets that the planned turn takes tokens from."""
        return [
            (scope, limit, self._bucket(scope, limit))
            for scope in self._promised
            if (limit := rules.rate(scope)) is not None
        ]

    @property
    def promised_scopes(self) -> Iterable[Scope]:
        return self._promised

    def turn_over(self, taken: Iterable[tuple[Scope, Bucket]], rules: Rules) -> None:
        """Void the promises of a turn that was committed or has failed, and note the buckets it has changed."""
        self._promised.clear()
        self._buckets.update(taken)
        if len(self._buckets) > self._many:
            self._forget_full(rules)

    def _forget_full(self, rules: Rules) -> None:
        """Forget full buckets: a bucket that is not known counts as full."""
        self._buckets = {
            scope: bucket
            for scope, bucket in self._buckets.items()
            if (limit := rules.rate(scope)) is not None and full_at(bucket, limit) > self._now
        }
        self._many = max(2 * len(self._buckets), FEW)

    def _bucket(self, scope: Scope, limit: RateLimit) -> Bucket:
        bucket = self._buckets.get(scope)
        if bucket is None:
            return full_bucket(limit, self._now)
        if bucket.at > self._now:
            # The wall clock was stepped back: the bucket refills from the new time on.
            bucket = self._buckets[scope] = Bucket(bucket.level, self._now, bucket.unit)
        return bucket
