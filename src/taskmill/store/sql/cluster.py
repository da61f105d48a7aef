"""Limits that hold for all nodes together: counted, and taken from, in the transaction that claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from taskmill.model.attempt import FOR_A_TASK, FOR_PRESSURE, StopReason
from taskmill.model.cluster import Admission, Elsewhere, Others
from taskmill.model.controls import Bucket
from taskmill.model.task import Lane, domain_of
from taskmill.model.turn import Rate, TurnResult
from taskmill.policy.admission import admitted
from taskmill.policy.rates import full_bucket, permits_at
from taskmill.store.sql import controls
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.json_sql import one
from taskmill.store.sql.statements import SQL

CLOCKS_APART_MS = 60_000
"""Clocks of nodes differ by less; a bucket that is further ahead belongs to a clock that was stepped."""


class _Work(msgspec.Struct, array_like=True):
    """What other nodes are at."""

    running: list[tuple[str, str, int, int]]
    """Group, type, how many, and how urgent the most urgent of them is."""
    slots: int

    def elsewhere(self) -> Elsewhere:
        groups, domains = Counter[str](), Counter[str]()
        for group, type, count, _ in self.running:
            groups[group] += count
            domains[domain_of(type)] += count
        return Elsewhere(dict(groups), dict(domains), self.slots)


class _Survey(msgspec.Struct, array_like=True):
    lanes: list[Lane]
    hooks: list[int]
    next_due: int | None
    next_expiry: int | None
    next_beat: int | None
    away: list[tuple[int, int]]
    stops: list[tuple[int, StopReason]]
    urgencies: list[tuple[int, int, int]]
    work: _Work
    types: list[str]


_decode_work = msgspec.json.Decoder(_Work).decode
_decode_survey = msgspec.json.Decoder(_Survey).decode


def elsewhere(connection: Connection, slots: int) -> Elsewhere:
    """What other nodes hold; they are told how many slots there are here."""
    return _decode_work(one(connection, SQL["elsewhere"], slots)).elsewhere()


def survey(connection: Connection, slots: int | None, result: TurnResult) -> None:
    """Read what waits and what other nodes run, in one statement: between two, a task could be in neither."""
    found = _decode_survey(one(connection, SQL["survey"], slots))
    causes = {cause for _, cause in found.away}
    result.lanes, result.hooks, result.next_due = found.lanes, found.hooks, found.next_due
    result.next_expiry, result.next_beat = found.next_expiry, found.next_beat
    result.stops, result.urgencies = found.stops, found.urgencies
    result.has_preempted, result.has_eased = FOR_A_TASK in causes, FOR_PRESSURE in causes
    if slots is not None:
        result.elsewhere = found.work.elsewhere()
        most_urgent = min((urgency for *_, urgency in found.work.running), default=None)
        result.others = Others(most_urgent, frozenset(found.types))


def others(connection: Connection) -> bool:
    """Whether other nodes dispatch."""
    return bool(one(connection, SQL["other_nodes"]))


def admit(
    connection: Connection, plan: Admission, rates: Sequence[Rate], result: TurnResult
) -> tuple[Sequence[int], Sequence[Rate]]:
    """Return the claims that may start by what runs and what tokens there are now, and the rates as they are now."""
    connection.be_alone()
    result.elsewhere = elsewhere(connection, plan.slots)
    if rates:
        rates = _current(connection, rates, result.now)
        result.buckets = [(scope, bucket) for scope, _, bucket in rates]
    permits = {scope: permits_at(bucket, limit, result.now) for scope, limit, bucket in rates}
    ids = admitted(plan, result.elsewhere, permits)
    result.refused = len(ids) < len(plan.starts)
    return ids, rates


def _current(connection: Connection, rates: Sequence[Rate], now: int) -> list[Rate]:
    """Return the same limits with what their buckets hold in the store."""
    stored = controls.read(connection).buckets
    # A bucket that another node filled a little ahead of our clock gains nothing until our clock has caught up.
    limits = {scope: limit for scope, limit, _ in rates}
    fresh = {
        scope: Bucket(bucket.level, now, bucket.unit)
        for scope, bucket in stored.items()
        if scope in limits and bucket.at > now + CLOCKS_APART_MS
    }
    controls.fill_buckets(connection, limits, fresh)
    stored = {**stored, **fresh}
    return [(scope, limit, stored.get(scope) or full_bucket(limit, now)) for scope, limit, _ in rates]
