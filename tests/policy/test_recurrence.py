"""Laws of recurrence: a grid that never drifts, on which nothing comes twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskmill.policy.recurrence import is_spent, next_occurrence

instants = st.integers(-(10**13), 10**13)
steps = st.integers(1, 10**11)
places = st.integers(0, 10**4)


@given(instants, steps, places, instants)
def test_the_next_occurrence_is_on_the_grid_later_than_the_last_and_has_not_passed(
    first_at: int, every: int, place: int, now: int
) -> None:
    last = first_at + place * every
    due_at, skipped = next_occurrence(first_at, every, last, now)
    assert (due_at - first_at) % every == 0
    assert due_at > last
    assert due_at >= now
    assert skipped >= 0


@given(instants, steps, places, instants)
def test_it_is_the_first_such_place_and_all_between_are_counted(
    first_at: int, every: int, place: int, now: int
) -> None:
    last = first_at + place * every
    due_at, skipped = next_occurrence(first_at, every, last, now)
    assert due_at == last + (skipped + 1) * every
    assert skipped == 0 or due_at - every < now


@given(instants, steps, st.lists(instants, max_size=30))
def test_whatever_the_clock_does_occurrences_ascend_and_places_are_made_or_skipped_once(
    first_at: int, every: int, moments: list[int]
) -> None:
    made = [first_at]
    skipped = 0
    for now in moments:
        following = next_occurrence(first_at, every, made[-1], now)
        made.append(following.due_at)
        skipped += following.skipped
    assert made == sorted(set(made))
    assert (made[-1] - first_at) // every + 1 == len(made) + skipped


def test_the_edges() -> None:
    assert next_occurrence(0, 10, 0, 9) == (10, 0)
    assert next_occurrence(0, 10, 0, 10) == (10, 0), "what is due this very moment has not passed"
    assert next_occurrence(0, 10, 0, 11) == (20, 1)
    assert next_occurrence(0, 10, 50, 0) == (60, 0), "a clock that was put back repeats nothing"


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_series_is_spent_after_max_runs(runs: int, max_runs: int) -> None:
    assert is_spent(runs, max_runs) == (runs >= max_runs)
    assert not is_spent(runs, None)
