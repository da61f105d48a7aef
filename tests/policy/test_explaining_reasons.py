"""Each reason why a task waits, and its sentence."""

from __future__ import annotations

import typing
from collections import Counter
from typing import Any

import pytest

from taskmill.model.controls import EVERYTHING, Bucket, Declared, Pause, Scope, ScopeKind
from taskmill.model.explanation import Reason
from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import Capacity, Limit, Machine
from taskmill.model.settings import Group, RateLimit
from taskmill.model.status import Status
from tests.policy.explaining_world import EMPTY, MB, MINUTE, NOON, ONE_A_MINUTE, SHARED, D, G, asked, running, seen

SITUATIONS: list[tuple[Reason, dict[str, Any], str]] = [
    (
        "not_due",
        {"situation": {"status": Status.SCHEDULED, "due_at": NOON + 90_000}},
        "Task 7 (d::t) is scheduled: it is due in 1 min 30 s (2030-01-01 12:01:30 UTC). Priority 128. "
        "Expected to start in 1 min 30 s (2030-01-01 12:01:30 UTC).",
    ),
    (
        "not_due",
        {
            "situation": {
                "status": Status.SCHEDULED,
                "due_at": NOON + 5 * MINUTE,
                "attempt": 2,
                "last_error": "no route to host",
            }
        },
        "Task 7 (d::t) is scheduled: it is tried again in 5 min (2030-01-01 12:05:00 UTC). Priority 128. "
        "Expected to start in 5 min (2030-01-01 12:05:00 UTC).",
    ),
    (
        "dependency",
        {"situation": {"status": Status.BLOCKED, "dependencies": [3]}},
        "Task 7 (d::t) is blocked: it depends on 1 task that has not ended: 3. Priority 128.",
    ),
    (
        "dependency",
        {"situation": {"status": Status.BLOCKED, "dependencies": [1, 2, 3, 4, 5, 6]}},
        "Task 7 (d::t) is blocked: it depends on 6 tasks that have not ended: 1, 2, 3, 4, 5, …. Priority 128.",
    ),
    (
        "replaced_task",
        {"situation": {"status": Status.BLOCKED, "gate_id": 5}},
        "Task 7 (d::t) is blocked: task 5, which it replaces or follows, has not ended yet. Priority 128.",
    ),
    (
        "children",
        {"situation": {"status": Status.WAITING, "children": 1}},
        "Task 7 (d::t) is waiting: 1 child has not ended yet. Priority 128.",
    ),
    (
        "children",
        {"situation": {"status": Status.WAITING, "children": 1200}},
        "Task 7 (d::t) is waiting: 1,200 children have not ended yet. Priority 128.",
    ),
    (
        "siblings",
        {"situation": {"status": Status.BLOCKED, "held": True, "parent_id": 2, "max_siblings": 1}},
        "Task 7 (d::t) is blocked: task 2 lets at most 1 child into the queue at once. Priority 128.",
    ),
    (
        "stopping",
        {
            "situation": {
                "status": Status.RUNNING,
                "stop": "cancel",
                "started_at": NOON - MINUTE,
                "attempt": 3,
            }
        },
        "Task 7 (d::t) has been running since 2030-01-01 11:59:00 UTC, attempt 3; "
        "it was asked to stop (cancel) and has not ended yet.",
    ),
    (
        "stopping",
        {"situation": {"status": Status.WAITING, "stop": "fail", "children": 2}},
        "Task 7 (d::t) is waiting: one of its children has failed, and it ends when its descendants and its hook are "
        "done; 2 children have not ended yet. Priority 128.",
    ),
    (
        "scheduler_paused",
        {"pauses": {EVERYTHING: Pause(NOON - 30_000)}},
        "Task 7 (d::t) is paused: the scheduler has been paused since 2030-01-01 11:59:30 UTC and stays paused until "
        "it is resumed. Priority 128.",
    ),
    (
        "domain_paused",
        {"pauses": {D: Pause(NOON - 30_000)}, "situation": {"expires_at": NOON + 60_000}},
        "Task 7 (d::t) is paused: its domain 'd' has been paused since 2030-01-01 11:59:30 UTC and stays paused until "
        "it is resumed. Priority 128. Expires 1 min 30 s after it resumes unless it starts before.",
    ),
    (
        "group_paused",
        {"pauses": {G: Pause(NOON - 30_000, NOON + 10 * MINUTE)}},
        "Task 7 (d::t) is paused: its group 'g' has been paused since 2030-01-01 11:59:30 UTC and resumes in 10 min "
        "(2030-01-01 12:10:00 UTC). Priority 128. Expected to start in 10 min (2030-01-01 12:10:00 UTC).",
    ),
    (
        "group_paused",
        {
            "situation": {"group": ""},
            "pauses": {Scope(ScopeKind.GROUP, ""): Pause(NOON - 30_000)},
        },
        "Task 7 (d::t) is paused: its group of ungrouped tasks has been paused since 2030-01-01 11:59:30 UTC and "
        "stays paused until it is resumed. Priority 128.",
    ),
    (
        "series_paused",
        {"situation": {"status": Status.PAUSED, "series_paused": True, "paused_at": NOON - 10_000}},
        "Task 7 (d::t) is paused: its recurring series is paused. Priority 128.",
    ),
    (
        "pressure",
        {
            "around": {
                "machines": seen(
                    Machine(limits=(Limit(128, 0.75), Limit(192, 0.5)), pressures={"cpu": 0.2, "disk": 0.93})
                )
            }
        },
        "Task 7 (d::t) is pending: the pressure is 0.93 (disk), and tasks of priority 128 or less urgent wait until it "
        "is at most 0.75. Priority 128.",
    ),
    (
        "io",
        {
            "around": {
                "machines": seen(Machine(capacity=Capacity(disk_write=100 * MB))),
                "budget": IoBudget(disk_write=80 * MB),
                "budgets_by_node": {None: [IoBudget(disk_write=120 * MB)]},
            }
        },
        "Task 7 (d::t) is pending: it will write 80 MB to disk (disk_write); running tasks already use 120 MB of the "
        "160 MB allowed at once. Priority 128.",
    ),
    (
        "preempted",
        {
            "situation": {"status": Status.PAUSED, "preempted": 2, "paused_at": NOON, "attempt": 1},
            "around": {"machines": seen(Machine(returns_below=0.6, pressures={"cpu": 0.71}))},
        },
        "Task 7 (d::t) is paused: it was preempted because of pressure and returns when the pressure, now 0.71 (cpu), "
        "is at most 0.60. Priority 128.",
    ),
    (
        "preempted",
        {
            "situation": {
                "status": Status.PAUSED,
                "preempted": True,
                "paused_at": NOON - 10_000,
                "interrupted": True,
                "expires_at": NOON + 10_000,
                "attempt": 1,
            }
        },
        "Task 7 (d::t) is paused: it was preempted for a more urgent task and returns when no such task waits or runs. "
        "Priority 128.",
    ),
    (
        "no_dispatcher",
        {"around": {"is_dispatching": False}},
        "Task 7 (d::t) is pending: no scheduler runs the tasks of this store now. Priority 128.",
    ),
    (
        "no_handler",
        {"around": {"unknown_types": {"d::t"}}},
        "Task 7 (d::t) is pending: no handler for d::t is registered in any scheduler that runs tasks. Priority 128.",
    ),
    (
        "group_cap",
        {"around": running(g=2), "declared": Declared(groups={"g": Group(cap=2)})},
        "Task 7 (d::t) is pending: its group 'g' runs 2 of at most 2 tasks. Priority 128.",
    ),
    (
        "domain_cap",
        {"around": running(other=3), "declared": Declared(domain_caps={"d": 3})},
        "Task 7 (d::t) is pending: its domain 'd' runs 3 of at most 3 tasks. Priority 128.",
    ),
    (
        "group_rate",
        {"declared": Declared(groups={"g": Group(rate=ONE_A_MINUTE)}), "buckets": {G: EMPTY}},
        "Task 7 (d::t) is pending: the rate limit of its group 'g' is 1 per minute; the next permit comes in 40 s "
        "(2030-01-01 12:00:40 UTC). Priority 128. Expected to start in 40 s (2030-01-01 12:00:40 UTC).",
    ),
    (
        "type_rate",
        {
            "declared": Declared(rates={"d::t": RateLimit(5, 7.5)}),
            "buckets": {Scope(ScopeKind.TYPE, "d::t"): Bucket(0, NOON, 7500)},
        },
        "Task 7 (d::t) is pending: the rate limit of d::t is 5 per 7.5 s; the next permit comes in 1.5 s "
        "(2030-01-01 12:00:01 UTC). Priority 128. Expected to start in 1.5 s.",
    ),
    (
        "slots",
        {"around": running(other=8)},
        "Task 7 (d::t) is pending: all 8 slots are taken. Priority 128.",
    ),
    (
        "share",
        {"around": {**running(g=1, h=3), "waiting": Counter({("g", "d::t"): 9, ("h", "d::t"): 9})}, "declared": SHARED},
        "Task 7 (d::t) is pending: all 4 slots are taken; its group 'g' runs 1 task, and its share is 1 of 4 slots. "
        "Priority 128.",
    ),
    (
        "ahead",
        {
            "around": {
                **running(other=8),
                "ahead": 1234,
                "recent": (101, NOON - 100_000, NOON),
            }
        },
        "Task 7 (d::t) is pending: all 8 slots are taken; 1,234 tasks start before it. Priority 128. "
        "Expected to start in 20 min 35 s (2030-01-01 12:20:35 UTC), estimated from the last 101 tasks that ended.",
    ),
]


@pytest.mark.parametrize(("reason", "given", "sentence"), SITUATIONS, ids=[row[0] for row in SITUATIONS])
def test_each_reason_has_its_word_and_its_sentence(reason: Reason, given: dict[str, Any], sentence: str) -> None:
    explained = asked(**given)
    assert str(explained) == explained.summary == sentence
    assert reason in [hold.reason for hold in explained.holds]
    for hold in explained.holds:
        assert hold.detail in sentence


def test_every_word_is_used() -> None:
    assert {row[0] for row in SITUATIONS} == set(typing.get_args(Reason))
