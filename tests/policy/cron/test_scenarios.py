"""The guarantees of declarative cron, each as a short scenario."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from taskmill.model.cron import RunOutcome
from tests.policy.cron.plain_model import EPOCH, MINUTE, moment
from tests.policy.cron.simulation import Plan, World

SECOND, HOUR, DAY = 1000, 60 * MINUTE, 24 * 60 * MINUTE
FAILS, SUCCEEDS = Plan(0, False), Plan(0, True)


def world_at(*wall: int, zone: str = "UTC", plans: tuple[Plan, ...] = (SUCCEEDS,)) -> World:
    at = datetime(*wall, tzinfo=ZoneInfo(zone))  # type: ignore[arg-type, misc]
    return World(ZoneInfo(zone), int((at - EPOCH).total_seconds() * 1000), plans)


def told(world: World, name: str = "a") -> list[str]:
    """Return each start of a task: when, why, and for which occurrence if that is another time."""
    return [
        f"{clock(world, start.at)} {start.reason}"
        + ("" if start.at == start.occurrence else f" of {clock(world, start.occurrence)}")
        for start in world.starts
        if start.name == name
    ]


def clock(world: World, ms: int) -> str:
    local = moment(ms).astimezone(world.zone)
    return f"{local:%d %H:%M:%S}" if local.second else f"{local:%d %H:%M}"


# The first start


def test_at_the_first_start_only_what_matches_the_current_minute_runs() -> None:
    world = world_at(2026, 6, 1, 12, 0, 30)
    world.initialize(("a", "0 12 * * *", 60), ("b", "30 12 * * *", 60), ("c", "59 11 * * *", 60))
    assert told(world, "a") == ["01 12:00:30 occurrence of 01 12:00"]
    assert told(world, "b") == told(world, "c") == []
    world.let_pass(HOUR)
    assert told(world, "b") == ["01 12:30 occurrence"]
    assert told(world, "c") == []


def test_the_minute_of_the_start_runs_once_although_more_of_it_is_to_come() -> None:
    world = world_at(2026, 6, 1, 12, 0, 1)
    world.initialize(("a", "0 12 * * *", 60))
    world.let_pass(DAY - HOUR)
    assert told(world) == ["01 12:00:01 occurrence of 01 12:00"]


def test_an_empty_list_is_a_life_without_work() -> None:
    world = world_at(2026, 6, 1, 12)
    world.initialize()
    world.let_pass(HOUR)
    assert world.starts == []


# Restarts


def test_six_occurrences_missed_in_twelve_hours_run_once_and_the_schedule_continues() -> None:
    world = world_at(2026, 6, 1, 0, 30)
    every_two_hours = ("a", "0 0,2,4,6,8,10,12,14,16,18,20,22 * * *", 60)
    world.initialize(every_two_hours)
    world.let_pass(2 * HOUR)
    world.crash()
    world.let_pass(12 * HOUR)
    world.initialize(every_two_hours)
    world.let_pass(4 * HOUR)
    assert told(world) == [
        "01 02:00 occurrence",
        "01 14:30 occurrence of 01 14:00",
        "01 16:00 occurrence",
        "01 18:00 occurrence",
    ]


def test_a_task_that_had_not_run_yet_misses_occurrences_like_any_other() -> None:
    world = world_at(2026, 6, 1, 10)
    world.initialize(("a", "0 12 * * *", 60))
    world.stop()
    world.let_pass(3 * HOUR)
    world.initialize(("a", "0 12 * * *", 60))
    assert told(world) == ["01 13:00 occurrence of 01 12:00"]


def test_a_restart_without_a_missed_occurrence_runs_nothing() -> None:
    world = world_at(2026, 6, 1, 12)
    for _ in range(3):
        world.initialize(("a", "0 12 * * *", 60))
        world.stop()
        world.let_pass(10 * SECOND)
    assert told(world) == ["01 12:00 occurrence"]


def test_a_task_that_is_new_at_a_restart_is_as_at_a_first_start() -> None:
    world = world_at(2026, 6, 1, 10)
    world.initialize(("a", "0 * * * *", 60))
    world.stop()
    world.let_pass(3 * HOUR)
    outcome = world.initialize(("a", "0 * * * *", 60), ("b", "0 12 * * *", 60), ("c", "0 13 * * *", 60))
    assert told(world, "b") == []
    assert told(world, "c") == ["01 13:00 occurrence"]
    assert outcome.difference.added == ("b", "c")


def test_a_task_that_is_left_out_is_forgotten_and_new_when_it_comes_back() -> None:
    world = world_at(2026, 6, 1, 11, 59)
    world.initialize(("a", "0 * * * *", 60))
    world.let_pass(2 * MINUTE)
    world.stop()
    outcome = world.initialize()
    assert (outcome.difference.removed, world.stored) == (("a",), {})
    world.let_pass(2 * HOUR)
    world.stop()
    world.initialize(("a", "0 * * * *", 60))
    assert told(world) == ["01 12:00 occurrence"], "13:00 and 14:00 were before its declaration"


def test_a_changed_schedule_is_judged_against_the_last_attempt() -> None:
    world = world_at(2026, 6, 1, 11, 59)
    world.initialize(("a", "0 12 * * *", 60))
    world.let_pass(2 * MINUTE)
    world.stop()
    world.let_pass(3 * HOUR)
    world.initialize(("a", "30 11,13 * * *", 60))
    assert told(world) == ["01 12:00 occurrence", "01 15:01 occurrence of 01 13:30"]
    world.stop()
    world.initialize(("a", "0 15 * * *", 60))
    assert len(world.starts) == 2, "15:00 is before the last attempt"


def test_a_pending_retry_keeps_its_time_when_the_delay_changes() -> None:
    world = world_at(2026, 6, 1, 12, plans=(FAILS, SUCCEEDS))
    world.initialize(("a", "0 12 * * *", 3600))
    world.let_pass(MINUTE)
    world.stop()
    world.initialize(("a", "0 12 * * *", 5))
    world.let_pass(2 * HOUR)
    assert told(world) == ["01 12:00 occurrence", "01 13:00 retry of 01 12:00"]


# Failures


def test_after_a_failure_the_next_attempt_comes_after_the_delay() -> None:
    world = world_at(2026, 6, 1, 12, plans=(Plan(10 * SECOND, False), FAILS, SUCCEEDS))
    world.initialize(("a", "0 12 * * *", 300))
    world.let_pass(HOUR)
    assert told(world) == [
        "01 12:00 occurrence",
        "01 12:05:10 retry of 01 12:00",
        "01 12:10:10 retry of 01 12:00",
    ]
    assert world.stored["a"].firing is None


@pytest.mark.parametrize("delay", [0, 0.001, 1])
def test_a_delay_of_nothing_does_not_spin(delay: float) -> None:
    world = world_at(2026, 6, 1, 12, plans=(FAILS,))
    world.initialize(("a", "0 12 * * *", delay))
    world.let_pass(5 * SECOND)
    assert [start.at - world.starts[0].at for start in world.starts] == [0, 1000, 2000, 3000, 4000, 5000]


def test_an_occurrence_that_comes_before_the_retry_takes_its_place() -> None:
    world = world_at(2026, 6, 1, 12, plans=(FAILS, SUCCEEDS))
    world.initialize(("a", "0,10 12 * * *", 1800))
    world.let_pass(HOUR)
    assert told(world) == ["01 12:00 occurrence", "01 12:10 occurrence"], "12:30 has nothing left to retry"


def test_a_retry_survives_a_restart_and_runs_at_once_if_its_time_has_passed() -> None:
    world = world_at(2026, 6, 1, 12, plans=(FAILS, SUCCEEDS))
    world.initialize(("a", "0 12 * * *", 60))
    world.let_pass(SECOND)
    world.crash()
    world.let_pass(10 * MINUTE - SECOND)
    world.initialize(("a", "0 12 * * *", 60))
    assert told(world)[1:] == ["01 12:10 retry of 01 12:00"]


# Long runs


@pytest.mark.parametrize("succeeds", [True, False])
def test_occurrences_that_pass_during_a_run_run_once_as_soon_as_it_ends(succeeds: bool) -> None:
    world = world_at(2026, 6, 1, 12, plans=(Plan(150 * SECOND, succeeds), SUCCEEDS, SUCCEEDS, SUCCEEDS))
    world.initialize(("a", "* * * * *", 3600))
    world.let_pass(4 * MINUTE)
    assert told(world) == [
        "01 12:00 occurrence",
        "01 12:02:30 occurrence of 01 12:02",
        "01 12:03 occurrence",
        "01 12:04 occurrence",
    ]


def test_different_tasks_run_side_by_side() -> None:
    world = world_at(2026, 6, 1, 12, plans=(Plan(HOUR, True),))
    world.initialize(("a", "0 12 * * *", 0), ("b", "0 12 * * *", 0))
    world.let_pass(MINUTE)
    assert set(world.running) == {"a", "b"}


# Processes that die


def test_a_run_whose_process_died_starts_again_at_once() -> None:
    world = world_at(2026, 6, 1, 12, plans=(Plan(HOUR, True), SUCCEEDS))
    world.initialize(("a", "0 12 * * *", 3600))
    world.let_pass(MINUTE)
    world.crash()
    world.let_pass(MINUTE)
    outcome = world.initialize(("a", "0 12 * * *", 3600))
    assert outcome.orphans == ("a",)
    assert told(world) == ["01 12:00 occurrence", "01 12:02 restart of 01 12:00"]


def test_an_orphan_that_also_missed_an_occurrence_runs_once() -> None:
    world = world_at(2026, 6, 1, 12, plans=(Plan(10 * MINUTE, True), SUCCEEDS))
    world.initialize(("a", "0 * * * *", 60))
    world.crash()
    world.let_pass(3 * HOUR + MINUTE)
    world.initialize(("a", "0 * * * *", 60))
    world.let_pass(MINUTE)
    assert told(world) == ["01 12:00 occurrence", "01 15:01 occurrence of 01 15:00"]


def test_the_third_crash_ends_the_firing_but_not_the_task() -> None:
    world = world_at(2026, 6, 1, 12, plans=(Plan(HOUR, True),))
    quarantined = []
    for _ in range(4):
        quarantined.append(world.initialize(("a", "0 * * * *", 60)).quarantined)
        world.crash()
        world.let_pass(MINUTE)
    assert quarantined == [(), (), (), ("a",)]
    assert told(world) == ["01 12:00 occurrence", "01 12:01 restart of 01 12:00", "01 12:02 restart of 01 12:00"]
    assert world.stored["a"].last_outcome is RunOutcome.QUARANTINED
    world.initialize(("a", "0 * * * *", 60))
    world.let_pass(HOUR)
    assert told(world)[3:] == ["01 13:00 occurrence"]


def test_a_run_that_stop_cuts_short_starts_again_without_a_retry() -> None:
    world = world_at(2026, 6, 1, 12, plans=(Plan(HOUR, True),))
    for _ in range(5):
        world.initialize(("a", "0 12 * * *", 60))
        world.let_pass(SECOND)
        world.stop(timeout=SECOND)
    assert [start.reason for start in world.starts] == ["occurrence", *["restart"] * 4]
    assert world.stored["a"].firing is not None
    assert world.stored["a"].firing.crashes == 0


def test_stop_waits_for_what_runs_and_starts_nothing_more() -> None:
    world = world_at(2026, 6, 1, 12, plans=(Plan(5 * MINUTE, True),))
    world.initialize(("a", "* * * * *", 60))
    world.let_pass(MINUTE)
    world.stop()
    world.let_pass(HOUR)
    assert told(world) == ["01 12:00 occurrence"]
    assert world.stored["a"].last_outcome is RunOutcome.SUCCEEDED


# Clocks


def test_after_a_step_back_nothing_runs_again_and_nothing_waits_for_long() -> None:
    world = world_at(2026, 6, 1, 11, 59, 30)
    world.initialize(("a", "0 * * * *", 60))
    world.let_pass(MINUTE)
    world.step_clock(-90 * MINUTE)
    world.let_pass(3 * HOUR)
    assert told(world) == ["01 12:00 occurrence", "01 11:00 occurrence", "01 13:00 occurrence"]


def test_a_clock_that_was_a_day_ahead_for_a_moment_costs_one_run_and_no_silence() -> None:
    world = world_at(2026, 6, 1, 11, 59, 30)
    world.initialize(("a", "0 * * * *", 60))
    world.let_pass(MINUTE)
    world.step_clock(DAY)
    world.let_pass(MINUTE)
    world.step_clock(-DAY)
    world.let_pass(25 * HOUR)
    found = told(world)
    assert found[:3] == ["01 12:00 occurrence", "02 12:00:30 occurrence of 02 12:00", "01 13:00 occurrence"]
    assert found[-2:] == ["02 11:00 occurrence", "02 13:00 occurrence"], "noon of the 2nd has run already"


def test_the_latest_missed_occurrence_that_has_not_run_is_the_one_that_runs() -> None:
    world = world_at(2026, 6, 1, 11, 59, 30)
    world.initialize(("a", "0 * * * *", 60))
    world.let_pass(MINUTE)
    for step in (DAY, -DAY, DAY):
        world.step_clock(step)
        world.let_pass(0)
    assert told(world)[1:] == ["02 12:00:30 occurrence of 02 12:00", "02 12:00:30 occurrence of 02 11:00"]
    world.let_pass(HOUR)
    assert told(world)[3:] == ["02 13:00 occurrence"]


def test_a_step_forward_or_a_suspend_runs_what_was_missed_once_within_a_minute() -> None:
    world = world_at(2026, 6, 1, 12, 0, 10)
    world.initialize(("a", "30 * * * *", 60))
    world.let_pass(10 * SECOND)
    world.step_clock(6 * HOUR, noticed=False)
    world.let_pass(HOUR)
    assert told(world) == ["01 18:01:20 occurrence of 01 17:30", "01 18:30 occurrence"]


def test_a_stored_instant_in_the_future_does_not_keep_a_task_waiting() -> None:
    world = world_at(2030, 6, 1, 12)
    world.initialize(("a", "0 * * * *", 60))
    world.stop()
    world.step_clock(-1461 * DAY)
    world.initialize(("a", "0 * * * *", 60))
    assert world.stored["a"].last_attempt_at == world.wall
    world.let_pass(2 * HOUR)
    assert len(world.starts) == 3
    assert told(world)[1:] == ["01 13:00 occurrence", "01 14:00 occurrence"]


def test_a_retry_is_not_delayed_by_a_large_step_back_and_not_moved_by_a_small_one() -> None:
    world = world_at(2026, 6, 1, 12, plans=(FAILS, SUCCEEDS))
    world.initialize(("a", "0 12 * * *", 600))
    world.let_pass(MINUTE)
    world.step_clock(-30 * SECOND)
    assert world.stored["a"].retry_at == world.starts[0].at + 10 * MINUTE
    world.step_clock(-6 * HOUR)
    world.let_pass(10 * MINUTE)
    assert told(world)[1:] == ["01 06:10 retry of 01 12:00"]


# Daylight saving


def test_a_minute_that_is_skipped_does_not_run_and_one_that_is_repeated_runs_both_times() -> None:
    spring = world_at(2026, 3, 28, 12, zone="Europe/Berlin")
    spring.initialize(("a", "30 2 * * *", 60))
    spring.let_pass(2 * DAY)
    assert told(spring) == ["30 02:30 occurrence"]
    autumn = world_at(2026, 10, 24, 12, zone="Europe/Berlin")
    autumn.initialize(("a", "30 2 * * *", 60))
    autumn.let_pass(2 * DAY)
    assert told(autumn) == ["25 02:30 occurrence", "25 02:30 occurrence", "26 02:30 occurrence"]
    assert autumn.starts[1].at - autumn.starts[0].at == HOUR
