"""Laws of learned capacity, and of the learned IO of task types."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill.model.io_budget import MOST_BYTES, IoBudget
from taskmill.model.machine import HIGHEST_RATE, UNKNOWN_CAPACITY, Capacity, MovedIo, Reading
from taskmill.model.progress import TaskProgress
from taskmill.policy.capacity import IDLE_BELOW, capacity_in_use, is_news, learned
from taskmill.policy.io_room import RUNS, IoLoad, IoRoom, LearnedIo, learned_io, mean_io
from taskmill.policy.progress import extrapolated

MB = 10**6
IDLE = IoLoad()
WANTED = IoLoad([IoBudget(*[10**15] * 4)] * 2)
ONE = IoLoad([IoBudget(*[10**15] * 4)])
shares = st.floats(0, 1)
rates = st.floats(0, HIGHEST_RATE)
readings = st.builds(Reading, shares, rates, rates, rates, rates, st.none() | shares)
loads = st.sampled_from([IDLE, WANTED])
capacities = st.builds(Capacity, rates, rates, rates, rates)


def _after(known: Capacity, seen: Reading, load: IoLoad, times: int) -> Capacity:
    for _ in range(times):
        known = learned(known, seen, load)
    return known


def test_nothing_is_known_before_something_was_seen() -> None:
    assert learned(UNKNOWN_CAPACITY, Reading(), WANTED) == UNKNOWN_CAPACITY
    assert learned(UNKNOWN_CAPACITY, Reading(disk_read=50_000, net_rx=9_000), WANTED) == UNKNOWN_CAPACITY


@given(st.lists(st.tuples(readings, loads)))
def test_a_machine_that_is_idle_changes_nothing(seen: list[tuple[Reading, IoLoad]]) -> None:
    known = UNKNOWN_CAPACITY
    for reading, load in seen:
        known = learned(known, reading, load)
    quiet = Reading(1.0, 0.99 * IDLE_BELOW[0], 0.99 * IDLE_BELOW[1], 0.99 * IDLE_BELOW[2], 0.99 * IDLE_BELOW[3], 1.0)
    assert learned(known, quiet, WANTED) == known


@given(capacities, readings, loads)
def test_an_observed_rate_counts_as_sustained(known: Capacity, seen: Reading, load: IoLoad) -> None:
    after = learned(known, seen, load)
    for rate, before, now, floor in zip(seen.rates, known.rates, after.rates, IDLE_BELOW, strict=True):
        if rate >= floor:
            assert now >= min(rate, before) * (1 - 1e-9)
            assert now >= rate * (1 - 1e-9) or now >= before * 0.99 * (1 - 1e-9)


@given(capacities, readings, loads)
def test_known_rates_fall_by_at_most_one_percent_of_the_difference(
    known: Capacity, seen: Reading, load: IoLoad
) -> None:
    after = learned(known, seen, load)
    for rate, before, now in zip(seen.rates, known.rates, after.rates, strict=True):
        if now < before:
            assert load is WANTED
            assert now == pytest.approx(max(before - 0.01 * (before - rate), 0), rel=0.12)
            assert now >= before * 0.99 * (1 - 1e-9)


def test_an_idle_disk_never_lowers_what_a_busy_one_has_shown() -> None:
    known = learned(UNKNOWN_CAPACITY, Reading(disk_read=100.0 * MB), IDLE)
    assert known.disk_read == 100 * MB
    assert _after(known, Reading(disk_read=0.0), WANTED, 10_000) == known
    assert _after(known, Reading(disk_read=5.0 * MB), IDLE, 10_000) == known


def test_a_disk_that_became_slower_is_known_to_be_after_minutes_of_work() -> None:
    known = _after(Capacity(disk_read=100.0 * MB), Reading(disk_read=40.0 * MB), WANTED, 1)
    assert known.disk_read == pytest.approx(99.4 * MB)
    assert _after(known, Reading(disk_read=40.0 * MB), WANTED, 600).disk_read == pytest.approx(40 * MB, rel=0.01)


def test_where_the_system_tells_a_disk_that_rests_is_not_slower_but_less_used() -> None:
    known = Capacity(disk_read=100.0 * MB)
    rests = Reading(disk_read=10.0 * MB, disk_busy=0.5)
    assert _after(known, rests, WANTED, 1000) == known
    assert _after(known, Reading(disk_read=10.0 * MB, disk_busy=1.0), WANTED, 1000).disk_read < 11 * MB


def test_where_the_system_tells_a_disk_that_hardly_works_shows_nothing() -> None:
    idle = Reading(disk_read=20.0 * MB, disk_busy=0.01)
    assert learned(UNKNOWN_CAPACITY, idle, WANTED) == UNKNOWN_CAPACITY
    assert learned(Capacity(disk_read=10.0 * MB), idle, IDLE).disk_read == 20 * MB
    assert learned(UNKNOWN_CAPACITY, Reading(disk_read=20.0 * MB, disk_busy=0.2), IDLE).disk_read == 20 * MB
    assert learned(UNKNOWN_CAPACITY, Reading(net_rx=2.0 * MB, disk_busy=0.01), IDLE).net_rx == 2 * MB


def test_one_task_alone_may_be_slow_by_itself() -> None:
    known = Capacity(disk_read=100.0 * MB, net_rx=100.0 * MB)
    slow = Reading(disk_read=10.0 * MB, net_rx=10.0 * MB)
    assert _after(known, slow, ONE, 1000) == known
    assert _after(known, slow, WANTED, 1000).net_rx < 11 * MB


def test_tasks_that_compute_more_than_they_read_are_not_held_by_a_fast_disk() -> None:
    """Eight tasks that read 10 MB and then compute for 10 s show 8 MB/s of a disk that could do 500."""
    known, fleet = UNKNOWN_CAPACITY, [IoBudget(10 * MB)] * 8
    for busy in (0.016, 0.11, 0.2):
        known = _after(known, Reading(disk_read=busy * 500.0 * MB, disk_busy=busy), IoLoad(fleet), 100)
        gate = IoRoom(known, IoLoad())
        assert all(gate.admit(budget) is None for budget in fleet)
    assert known.disk_read == pytest.approx(100 * MB)


def test_a_disk_busy_with_writing_says_nothing_against_its_reading() -> None:
    known = Capacity(disk_read=100.0 * MB, disk_write=100.0 * MB)
    after = _after(known, Reading(disk_read=5.0 * MB, disk_write=50.0 * MB, disk_busy=1.0), WANTED, 100)
    assert after.disk_read == 100 * MB
    assert after.disk_write < 100 * MB


def test_the_gate_goes_by_what_was_seen_and_not_by_the_present_moment() -> None:
    known = UNKNOWN_CAPACITY
    for seen in (Reading(disk_read=100.0 * MB), *[Reading()] * 100):
        known = learned(known, seen, IDLE)
    gate = IoRoom(known, IoLoad([IoBudget(100 * MB)]))
    assert gate.admit(IoBudget(60 * MB)) is None
    hold = gate.admit(IoBudget(1))
    assert hold is not None
    assert hold.allowed == 160 * MB


def test_only_a_change_by_a_tenth_is_worth_a_write() -> None:
    assert is_news(UNKNOWN_CAPACITY, Capacity(net_rx=1.0))
    assert is_news(Capacity(disk_read=100.0), Capacity(disk_read=89.0))
    assert not is_news(Capacity(disk_read=100.0), Capacity(disk_read=109.0))
    assert not is_news(UNKNOWN_CAPACITY, UNKNOWN_CAPACITY)


def test_configured_values_count_per_axis_and_limits_of_the_system_come_first() -> None:
    known = Capacity(disk_read=100.0, disk_write=50.0)
    assert capacity_in_use(known, None) == known
    assert capacity_in_use(known, IoBudget(disk_read=10)) == Capacity(disk_read=10.0, disk_write=50.0)
    bounds = IoBudget(disk_read=70, net_rx=5)
    assert capacity_in_use(known, None, bounds) == Capacity(disk_read=70.0, disk_write=50.0, net_rx=5.0)
    assert capacity_in_use(known, IoBudget(disk_read=1000), bounds).disk_read == 70
    assert capacity_in_use(UNKNOWN_CAPACITY, IoBudget(MOST_BYTES)).disk_read == HIGHEST_RATE


amounts = st.integers(0, MOST_BYTES)
budgets = st.builds(IoBudget, amounts, amounts, amounts, amounts)


@given(st.lists(budgets, min_size=1, max_size=RUNS))
def test_the_first_runs_are_known_by_their_mean(seen: list[IoBudget]) -> None:
    known, total = None, [0, 0, 0, 0]
    for actual in seen:
        known = learned_io(known, actual)
        total = [a + b for a, b in zip(total, actual.amounts, strict=True)]
    assert known is not None
    budget = known.budget()
    assert budget is not None
    for mean, amount in zip(budget.amounts, total, strict=True):
        assert mean == pytest.approx(amount / len(seen), rel=1e-9, abs=1)


@given(st.lists(budgets, min_size=1, max_size=120))
def test_the_expected_io_is_between_the_least_and_the_most_seen(seen: list[IoBudget]) -> None:
    known = None
    for actual in seen:
        known = learned_io(known, actual)
    assert known is not None
    budget = known.budget()
    assert budget is not None
    for index, mean in enumerate(budget.amounts):
        values = [actual.amounts[index] for actual in seen]
        assert min(values) * (1 - 1e-9) - 1 <= mean <= max(values) * (1 + 1e-9) + 1


def test_a_type_whose_work_has_changed_is_known_again_soon() -> None:
    known = None
    for _ in range(1000):
        known = learned_io(known, IoBudget(100 * MB))
    for _ in range(200):
        known = learned_io(known, IoBudget(10 * MB))
    assert known is not None
    budget = known.budget()
    assert budget is not None
    assert budget.disk_read < 12 * MB
    assert LearnedIo().budget() is None
    assert mean_io(None) is None
    assert mean_io(MovedIo("d::t", 3, 10, 0, 0, 0)) == IoBudget(3)
    assert mean_io(MovedIo("d::t", 2**13, 2**60, 0, 0, 0)) == IoBudget(2**47), "no sum is too large"


@given(st.floats(-10, 1e6), st.floats(0.001, 1e6))
def test_a_guess_grows_with_time_and_never_says_that_a_task_is_done(elapsed: float, usual: float) -> None:
    guess = extrapolated(None, timedelta(seconds=elapsed), timedelta(seconds=usual))
    later = extrapolated(None, timedelta(seconds=elapsed + 1), timedelta(seconds=usual))
    assert guess is not None
    assert later is not None
    assert guess.fraction is not None
    assert later.fraction is not None
    assert 0 <= guess.fraction <= later.fraction <= 0.99
    assert guess.eta is None or guess.eta > timedelta()


def test_reported_progress_is_not_replaced_by_an_estimate() -> None:
    minute = timedelta(minutes=1)
    own = TaskProgress(fraction=0.2, message="copying")
    assert extrapolated(own, minute, minute) is own
    assert extrapolated(None, minute, None) is None
    assert extrapolated(None, minute, timedelta()) is None
    said = extrapolated(TaskProgress(message="copying"), minute / 4, minute)
    assert said == TaskProgress(fraction=0.25, message="copying", eta=minute * 3 / 4)
