"""Describe nodes in a snapshot."""

from __future__ import annotations

from taskmill.model.cluster import NodeAtWork
from taskmill.model.durations import from_ms
from taskmill.model.snapshot import NodeSnapshot


def pictured_node(node: NodeAtWork) -> NodeSnapshot:
    return NodeSnapshot(
        id=node.id,
        name=node.name,
        is_here=node.is_here,
        is_alive=node.is_alive,
        since=from_ms(node.since),
        seen_at=from_ms(node.seen_at),
        slots=node.slots,
        running=tuple(node.running),
    )
