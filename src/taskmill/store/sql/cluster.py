"""Rules that concern all nodes together: shared limits, and preemption on any node.

Limits are counted, and tokens are taken, in the transaction that claims. Tasks to preempt are chosen and marked in an
exclusive transaction. The mark is the column ``preempted`` of a running task. The node that runs the task finds it with
its next survey, as it finds requests to cancel. The next claim of the task clears it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from taskmill.model.attempt import FOR_A_TASK, FOR_PRESSURE, StopReason
from taskmill.model.cluster import Admission, Elsewhere, Host, Others, Preemption, Runner
from taskmill.model.controls import Bucket
from taskmill.model.task import Lane
from taskmill.model.turn import DueFront, Rate, TurnResult
from taskmill.model.type_name import domain_of
from taskmill.policy.admission import admitted
from taskmill.policy.aging import effective_priority
from taskmill.policy.preemption import cluster_victims
from taskmill.policy.rates import full_bucket, permits_at
from taskmill.store.sql import controls
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.families import spawned_among
from taskmill.store.sql.statements import SQL

CLOCKS_APART_MS = 60_000
"""The largest expected difference between the clocks of nodes. A bucket further in the future was written by a clock
that was stepped."""


class _Work(msgspec.Struct, array_like=True):
    """The work of the other nodes."""

    running: list[tuple[str, str, int, int]]
    """Group, type, number of tasks, and the urgency of the most urgent of them."""
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
    next_due: DueFront
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
    """Return the slots that other nodes hold, and publish the number of slots of this node."""
    return _decode_work(one(connection, SQL["elsewhere"], slots)).elsewhere()


def survey(connection: Connection, slots: int | None, result: TurnResult) -> None:
    """Read waiting tasks and the work of other nodes in one statement.

    With two statements, a task that another node claims or returns in between could be in neither result.
    """
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
    """True if other nodes dispatch."""
    return bool(one(connection, SQL["other_nodes"]))


def admit(
    connection: Connection, plan: Admission, rates: Sequence[Rate], result: TurnResult
) -> tuple[Sequence[int], Sequence[Rate]]:
    """Return the claims that may start under the limits of all nodes now, and the current token buckets."""
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
    """Return the same limits with their stored buckets."""
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


class _Candidates(msgspec.Struct, array_like=True):
    running: list[tuple[int, int, int, int, int, bool, bool]]
    """Id, urgency, start, start of aging, node, True if it was asked to stop, True if it has children."""
    nodes: list[tuple[int, int, list[str]]]
    own: int | None
    waiting: list[int]
    """The given tasks that still wait."""


_decode_candidates = msgspec.json.Decoder(_Candidates).decode


def preempt(connection: Connection, plan: Preemption, result: TurnResult) -> None:
    """Ask as many running tasks to stop as the waiting tasks of the plan need."""
    connection.be_alone()
    found = _decode_candidates(one(connection, SQL["preemption"], encoded([ask.id for ask in plan.asks])))
    running = [
        Runner(
            id,
            effective_priority(plan.aging, urgency, started_at - aged_from),
            started_at,
            node,
            is_leaving or id in plan.leaving,
            has_children,
        )
        for id, urgency, started_at, aged_from, node, is_leaving, has_children in found.running
    ]
    nodes = {id: Host(slots, frozenset(types)) for id, slots, types in found.nodes}
    spawned = spawned_among(connection, found.waiting)
    asks = [ask._replace(is_spawned=ask.id in spawned) for ask in plan.asks if ask.id in set(found.waiting)]
    if chosen := cluster_victims(asks, running, nodes, found.own):
        connection.execute(SQL["ask_to_make_way"], (encoded(chosen),))
        victims = [task for task in running if task.id in chosen]
        result.stops = [(task.id, StopReason.PREEMPT) for task in victims if task.node == found.own]
        result.commit.stopping += [(task.id, StopReason.PREEMPT) for task in victims if task.node != found.own]
