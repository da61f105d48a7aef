"""The parts of an explanation besides its reasons: age, deadline, ending, and the effect of nodes."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from taskmill.model.controls import EVERYTHING, Declared, Pause
from taskmill.model.durations import from_ms
from taskmill.model.io_budget import IoBudget
from taskmill.model.machine import UNSEEN, Capacity, Limit, Machine
from taskmill.model.records import HistoryRecord
from taskmill.model.settings import Aging
from taskmill.model.status import Ending, Status
from taskmill.policy.explaining import about_ended
from tests.policy.explaining_world import MB, MINUTE, NOON, G, asked, running, seen


def test_a_task_that_nothing_holds_says_so() -> None:
    explained = asked(around={"waiting": Counter()})
    assert str(explained) == "Task 7 (d::t) is pending and may start at once. Priority 128."
    assert (explained.holds, explained.estimated_start) == ([], from_ms(NOON))


def test_a_running_task_is_held_by_nothing() -> None:
    explained = asked({"status": Status.RUNNING, "started_at": NOON, "attempt": 1}, pauses={G: Pause(NOON)})
    assert str(explained) == "Task 7 (d::t) has been running since 2030-01-01 12:00:00 UTC, attempt 1."
    assert (explained.holds, explained.status) == ([], "running"), "a pause does not concern it"


def test_age_is_explained_with_its_next_step_and_the_deadline_with_the_time_left() -> None:
    aging = Aging(grace=10, interval=10, step=5)
    explained = asked({"expires_at": NOON + 3 * MINUTE}, running(other=8), Declared(aging=aging))
    assert str(explained) == (
        "Task 7 (d::t) is pending: all 8 slots are taken. Priority 103 (its own is 128), more urgent in 10 s "
        "(2030-01-01 12:00:10 UTC). Expires in 3 min (2030-01-01 12:03:00 UTC) unless it starts before."
    )
    assert explained.effective_priority == 103


def test_inherited_urgency_is_explained() -> None:
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


def test_a_pause_that_is_over_holds_no_task_and_its_time_is_ignored() -> None:
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


def test_a_start_behind_more_tasks_than_were_counted_is_only_bounded() -> None:
    recent = (101, NOON - 100_000, NOON)
    around = {**running(other=8), "ahead": 99_999, "recent": recent}
    assert asked(around=around).estimated_start == from_ms(NOON + 100_000_000)
    explained = asked(around={**around, "ahead_is_exact": False})
    assert (explained.ahead, explained.ahead_is_exact, explained.estimated_start) == (99_999, False, None)
    assert "more than 99,999 tasks start before it" in str(explained)
    assert "Expected to start no earlier than in 1 d 3 h" in str(explained)
    paused = asked(around={**around, "ahead_is_exact": False}, pauses={G: Pause(NOON, NOON + MINUTE)})
    assert paused.estimated_start == from_ms(NOON + MINUTE), "nothing is said about tasks ahead"


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
        return [hold.reason for hold in asked(around={**around, "machines": seen(*machines)}).holds]

    assert reasons(pressed, busy) == ["pressure"]
    assert reasons(UNSEEN, busy) == []
    assert reasons(busy, busy) == [], "budgets of the second node take no capacity of the first"
    assert reasons(pressed, pressed) == ["pressure"]


def test_a_task_preempted_for_pressure_returns_when_one_node_lets_it() -> None:
    away = {"status": Status.PAUSED, "preempted": 2, "paused_at": NOON, "attempt": 1}

    def detail(*machines: Machine) -> str:
        (hold,) = asked(situation=away, around={"machines": seen(*machines)}).holds
        return hold.detail

    easing = [Machine(returns_below=0.6, pressures={"cpu": pressure}) for pressure in (0.9, 0.7)]
    assert "now 0.70 (cpu)" in detail(*easing)
    assert "has fallen" in detail(*easing, UNSEEN)
