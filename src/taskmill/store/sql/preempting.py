"""Preempting tasks of any node: chosen, and marked in their rows, in a transaction that is alone.

The mark is ``preempted`` of a running row. The node that runs the task finds it with its next survey, as it finds
requests to cancel; the next claim of the task clears it.
"""

from __future__ import annotations

import msgspec

from taskmill.model.attempt import StopReason
from taskmill.model.cluster import Host, Preemption, Runner
from taskmill.model.turn import TurnResult
from taskmill.policy.aging import effective_priority
from taskmill.policy.preemption import cluster_victims
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.json_sql import encoded, one
from taskmill.store.sql.statements import SQL


class _Found(msgspec.Struct, array_like=True):
    running: list[tuple[int, int, int, int, int, bool]]
    """Id, urgency, when it was started, since when it had aged, node, whether it was asked to stop."""
    nodes: list[tuple[int, int, list[str]]]
    own: int | None
    waiting: list[int]
    """Those of the given tasks that still wait."""


_decode = msgspec.json.Decoder(_Found).decode


def preempt(connection: Connection, plan: Preemption, result: TurnResult) -> None:
    """Ask as many running tasks to stop as these waiting ones need."""
    connection.be_alone()
    found = _decode(one(connection, SQL["preemption"], encoded([ask.id for ask in plan.asks])))
    running = [
        Runner(
            id,
            effective_priority(plan.aging, urgency, started_at - aged_from),
            started_at,
            node,
            is_leaving or id in plan.leaving,
        )
        for id, urgency, started_at, aged_from, node, is_leaving in found.running
    ]
    nodes = {id: Host(slots, frozenset(types)) for id, slots, types in found.nodes}
    asks = [ask for ask in plan.asks if ask.id in set(found.waiting)]
    if chosen := cluster_victims(asks, running, nodes, found.own):
        connection.execute(SQL["ask_to_make_way"], (encoded(chosen),))
        result.stops = [
            (task.id, StopReason.PREEMPT) for task in running if task.id in chosen and task.node == found.own
        ]
