"""Why a task waits: one test per reason, and the sentences people read."""

from __future__ import annotations

import typing
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from taskmill.model.aging import Aging
from taskmill.model.controls import EVERYTHING, Bucket, Controls, Declared, Pause, Scope, ScopeKind
from taskmill.model.durations import from_ms, to_ms
from taskmill.model.explanation import Explanation, Reason
from taskmill.model.group import Group
from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import UNSEEN, Machine, NodeMachine
from taskmill.model.rate_limit import RateLimit
from taskmill.model.readings import Capacity
from taskmill.model.records import HistoryRecord
from taskmill.model.situation import Situation, Surroundings
from taskmill.model.status import Ending, Status
from taskmill.model.throttle import Limit
from taskmill.policy.explaining import about_ended, explain
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


def _seen(*machines: Machine) -> list[NodeMachine]:
    """By one dispatcher of a file, or by the nodes 1, 2, …"""
    if len(machines) == 1:
        return [NodeMachine(None, machines[0])]
    return [NodeMachine(node, machine) for node, machine in enumerate(machines, 1)]


ONE_A_MINUTE = RateLimit.per_minute(1)
EMPTY = Bucket(0, NOON - 20_000, MINUTE)
SHARED = Declared(max_concurrency=4, groups={"g": Group(weight=1), "h": Group(weight=3)})

SITUATIONS: list[tuple[Reason, dict[str, Any], str]] = [
    (
        "not_due",
        {"situation": {"status": Status.SCHEDULED, "due_at": NOON + 90_000}},
        "Task 7 (d::t) is scheduled: it is due in 90 s (2030-01-01 12:01:30 UTC). Priority 128. "
        "Expected to start in 90 s (2030-01-01 12:01:30 UTC).",
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
        "Task 7 (d::t) is blocked: task 5, which it replaces, is still being stopped. Priority 128.",
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
        "Task 7 (d::t) is waiting: a child of it has failed, and it ends when its descendants and its hook are done; "
        "2 children have not ended yet. Priority 128.",
    ),
    (
        "scheduler_paused",
        {"pauses": {EVERYTHING: Pause(NOON - 30_000)}},
        "Task 7 (d::t) is paused: the scheduler has been paused since 2030-01-01 11:59:30 UTC and stays so until it "
        "is resumed. Priority 128.",
    ),
    (
        "domain_paused",
        {"pauses": {D: Pause(NOON - 30_000)}, "situation": {"expires_at": NOON + 60_000}},
        "Task 7 (d::t) is paused: its domain 'd' has been paused since 2030-01-01 11:59:30 UTC and stays so until it "
        "is resumed. Priority 128. Expires 90 s after it goes on unless it starts before.",
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
        "stays so until it is resumed. Priority 128.",
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
                "machines": _seen(
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
                "machines": _seen(Machine(capacity=Capacity(disk_write=100 * MB))),
                "budget": IoBudget(disk_write=80 * MB),
                "budgets_by_node": {None: [IoBudget(disk_write=120 * MB)]},
            }
        },
        "Task 7 (d::t) is pending: 80 MB of it are written to disk (disk_write): running tasks have 120 MB, of "
        "160 MB allowed at once. Priority 128.",
    ),
    (
        "preempted",
        {
            "situation": {"status": Status.PAUSED, "preempted": 2, "paused_at": NOON, "attempt": 1},
            "around": {"machines": _seen(Machine(returns_below=0.6, pressures={"cpu": 0.71}))},
        },
        "Task 7 (d::t) is paused: it made way under pressure and returns when that, now 0.71 (cpu), is at most 0.60. "
        "Priority 128.",
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
        "Task 7 (d::t) is paused: it made way for a more urgent task and returns when none waits or runs. "
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
        "Task 7 (d::t) is pending: no handler for d::t is registered where tasks are run. Priority 128.",
    ),
    (
        "group_cap",
        {"around": running(g=2), "declared": Declared(groups={"g": Group(cap=2)})},
        "Task 7 (d::t) is pending: its group 'g' runs 2 of at most 2. Priority 128.",
    ),
    (
        "domain_cap",
        {"around": running(other=3), "declared": Declared(domain_caps={"d": 3})},
        "Task 7 (d::t) is pending: its domain 'd' runs 3 of at most 3. Priority 128.",
    ),
    (
        "group_rate",
        {"declared": Declared(groups={"g": Group(rate=ONE_A_MINUTE)}), "buckets": {G: EMPTY}},
        "Task 7 (d::t) is pending: its group 'g' may start 1 per minute; the next permit comes in 40 s "
        "(2030-01-01 12:00:40 UTC). Priority 128. Expected to start in 40 s (2030-01-01 12:00:40 UTC).",
    ),
    (
        "type_rate",
        {
            "declared": Declared(rates={"d::t": RateLimit(5, 7.5)}),
            "buckets": {Scope(ScopeKind.TYPE, "d::t"): Bucket(0, NOON, 7500)},
        },
        "Task 7 (d::t) is pending: d::t may start 5 per 7.5 s; the next permit comes in 1.5 s "
        "(2030-01-01 12:00:01 UTC). Priority 128. Expected to start in 1.5 s (2030-01-01 12:00:01 UTC).",
    ),
    (
        "slots",
        {"around": running(other=8)},
        "Task 7 (d::t) is pending: all 8 slots are taken. Priority 128.",
    ),
    (
        "share",
        {"around": {**running(g=1, h=3), "waiting": Counter({("g", "d::t"): 9, ("h", "d::t"): 9})}, "declared": SHARED},
        "Task 7 (d::t) is pending: all 4 slots are taken; its group 'g' runs 1 and its share is 1 of 4 slots. "
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
        "Expected to start in 20.6 min (2030-01-01 12:20:35 UTC), a guess from the last 101 tasks that ended.",
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


def test_a_task_that_nothing_holds_says_so() -> None:
    explained = asked(around={"waiting": Counter()})
    assert str(explained) == "Task 7 (d::t) is pending and may start at once. Priority 128."
    assert (explained.holds, explained.estimated_start) == ([], from_ms(NOON))


def test_a_running_task_is_held_by_nothing() -> None:
    explained = asked({"status": Status.RUNNING, "started_at": NOON, "attempt": 1}, pauses={G: Pause(NOON)})
    assert str(explained) == "Task 7 (d::t) has been running since 2030-01-01 12:00:00 UTC, attempt 1."
    assert (explained.holds, explained.status) == ([], "running"), "a pause does not concern it"


def test_age_is_told_with_its_next_step_and_the_deadline_with_what_is_left() -> None:
    aging = Aging(grace=10, interval=10, step=5)
    explained = asked({"expires_at": NOON + 3 * MINUTE}, running(other=8), Declared(aging=aging))
    assert str(explained) == (
        "Task 7 (d::t) is pending: all 8 slots are taken. Priority 103 (its own is 128), more urgent in 10 s "
        "(2030-01-01 12:00:10 UTC). Expires in 3 min (2030-01-01 12:03:00 UTC) unless it starts before."
    )
    assert explained.effective_priority == 103


def test_urgency_by_inheritance_is_told() -> None:
    explained = asked({"urgency": 5}, running(other=8))
    assert "Priority 5 (its own is 128)." in str(explained)


def test_age_and_deadline_stand_still_with_the_first_of_several_pauses() -> None:
    aging = Aging(grace=0, interval=1, step=1, ceiling=0)
    explained = asked(
        {"expires_at": NOON + 1000},
        None,
        Declared(aging=aging),
        pauses={G: Pause(NOON - 40_000), EVERYTHING: Pause(NOON - 10_000)},
    )
    assert explained.effective_priority == 128 - 20
    assert explained.expires_at == from_ms(NOON + 41_000)
    assert [hold.reason for hold in explained.holds] == ["scheduler_paused", "group_paused"]
    assert "more urgent" not in str(explained)


def test_a_pause_that_is_over_holds_nobody_and_its_time_counts_for_nobody() -> None:
    explained = asked(
        {"expires_at": NOON + 1000},
        None,
        Declared(aging=Aging(grace=0, interval=1, step=1, ceiling=0)),
        pauses={G: Pause(NOON - 40_000, NOON - 10_000)},
    )
    assert (explained.status, explained.effective_priority) == ("pending", 128 - 30)
    assert explained.expires_at == from_ms(NOON + 31_000)


def test_only_waiting_tasks_have_others_before_them() -> None:
    around = {"ahead": 3}
    assert asked(around=around).ahead == 3
    assert asked({"status": Status.BLOCKED, "dependencies": [1]}, around).ahead == 0
    assert asked(around=around, pauses={G: Pause(NOON)}).ahead == 0


def test_nothing_is_guessed_from_too_little() -> None:
    assert asked(around={**running(other=8), "recent": (4, NOON - 4000, NOON)}).estimated_start is None
    assert asked(around={**running(other=8), "recent": (50, NOON, NOON)}).estimated_start is None
    guessed = asked(around={**running(other=8), "recent": (5, NOON - 4000, NOON)}).estimated_start
    assert guessed == from_ms(NOON + 1000)


def test_a_task_that_has_ended_tells_how() -> None:
    record = HistoryRecord(
        id=7,
        type="d::t",
        domain="d",
        key=None,
        label=None,
        group="g",
        priority=128,
        effective_priority=128,
        payload={},
        tags={},
        attempt=1,
        retries=0,
        created_at=from_ms(NOON),
        run_at=None,
        expires_at=None,
        started_at=from_ms(NOON),
        parent_id=None,
        progress=None,
        last_error=None,
        ending=Ending.FAILED,
        ended_at=from_ms(NOON),
        duration=timedelta(seconds=1),
        result=None,
        error="no such file",
        io=None,
        actual_io=None,
    )
    assert str(about_ended(record)) == ("Task 7 (d::t) ended as failed at 2030-01-01 12:00:00 UTC: no such file.")


# Several nodes


def test_pressure_and_io_hold_a_task_that_no_node_can_start() -> None:
    pressed = Machine(limits=(Limit(128, 0.75),), pressures={"cpu": 0.9})
    busy = Machine(capacity=Capacity(disk_write=100 * MB))
    around: dict[str, Any] = {
        "budget": IoBudget(disk_write=80 * MB),
        "budgets_by_node": {2: [IoBudget(disk_write=120 * MB)]},
    }

    def reasons(*machines: Machine) -> list[str]:
        return [hold.reason for hold in asked(around={**around, "machines": _seen(*machines)}).holds]

    assert reasons(pressed, busy) == ["pressure"]
    assert reasons(UNSEEN, busy) == []
    assert reasons(busy, busy) == [], "what runs on the second takes no room on the first"
    assert reasons(pressed, pressed) == ["pressure"]


def test_who_made_way_for_pressure_returns_when_one_node_lets_it() -> None:
    away = {"status": Status.PAUSED, "preempted": 2, "paused_at": NOON, "attempt": 1}

    def detail(*machines: Machine) -> str:
        (hold,) = asked(situation=away, around={"machines": _seen(*machines)}).holds
        return hold.detail

    easing = [Machine(returns_below=0.6, pressures={"cpu": pressure}) for pressure in (0.9, 0.7)]
    assert "now 0.70 (cpu)" in detail(*easing)
    assert "has fallen" in detail(*easing, UNSEEN)
