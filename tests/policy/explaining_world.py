"""A task that waits at noon, and the situations around it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec

from taskmill.model.controls import Bucket, Controls, Declared, Scope, ScopeKind
from taskmill.model.durations import to_ms
from taskmill.model.explanation import Explanation, Situation, Surroundings
from taskmill.model.machine import Machine, NodeMachine
from taskmill.model.settings import Group, RateLimit
from taskmill.model.status import Status
from taskmill.policy.explaining import explain
from taskmill.policy.rules import Rules

NOON = to_ms(datetime(2030, 1, 1, 12, tzinfo=UTC))
MINUTE = 60_000
G = Scope(ScopeKind.GROUP, "g")
D = Scope(ScopeKind.DOMAIN, "d")

PENDING = Situation(
    id=7,
    type="d::t",
    group="g",
    priority=128,
    urgency=128,
    status=Status.PENDING,
    stop=None,
    created_at=NOON - MINUTE,
    queued_at=NOON - MINUTE,
    renewed_at=None,
    due_at=None,
    expires_at=None,
    started_at=None,
    attempt=0,
    last_error=None,
    gate_id=None,
    held=False,
    parent_id=None,
    max_siblings=None,
    dependencies=(),
    children=0,
    series_paused=False,
    preempted=False,
    paused_at=None,
    interrupted=False,
    clock_from=NOON - MINUTE,
    place_id=7,
    may_expire=True,
)


def asked(
    situation: dict[str, Any] | None = None,
    around: dict[str, Any] | None = None,
    declared: Declared | None = None,
    **controls: Any,
) -> Explanation:
    declared = declared or Declared()
    surroundings = Surroundings(running=Counter(), waiting=Counter({("g", "d::t"): 1}))
    for name, value in (around or {}).items():
        setattr(surroundings, name, value)
    rules = Rules(declared, Controls(1, declared, **controls))
    return explain(msgspec.structs.replace(PENDING, **(situation or {})), surroundings, rules, NOON)


def running(**counts: int) -> dict[str, Any]:
    return {"running": Counter({(group, "d::t"): n for group, n in counts.items()})}


MB = 10**6


def seen(*machines: Machine) -> list[NodeMachine]:
    """Return the machines as seen by the one dispatcher of a file, or by the nodes 1, 2, …"""
    if len(machines) == 1:
        return [NodeMachine(None, machines[0])]
    return [NodeMachine(node, machine) for node, machine in enumerate(machines, 1)]


ONE_A_MINUTE = RateLimit.per_minute(1)
EMPTY = Bucket(0, NOON - 20_000, MINUTE)
SHARED = Declared(max_concurrency=4, groups={"g": Group(weight=1), "h": Group(weight=3)})
