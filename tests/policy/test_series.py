"""Laws of recurrence: beats never drift and never stall, and no beat occurs twice."""

from __future__ import annotations

from typing import Literal, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from taskmill.policy.series import CLOCK_STEP_MS, beats_passed, is_spent, next_occurrence, put_back_by

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


@given(steps, instants, instants)
def test_beats_that_passed_are_all_that_came_and_no_more(every: int, last: int, now: int) -> None:
    latest, count = beats_passed(every, last, now)
    assert latest == last + count * every
    assert (count >= 1) == (last + every <= now)
    assert latest + every > now


@given(instants, instants)
def test_a_clock_is_known_to_be_put_back_only_by_what_has_happened_in_its_future(at: int, now: int) -> None:
    back = put_back_by(at, now)
    assert back in {0, at - now}
    assert (back > 0) == (at - now >= CLOCK_STEP_MS)


# A series under every kind of clock change

EVERY = 60_000


class Deed(NamedTuple):
    """The next action, and its duration or distance."""

    kind: Literal["elapse", "step", "down"]
    ms: int
    unseen_step: int = 0


class Life:
    """A series as the store keeps it, with the real time ``t`` and a wall clock that is ``offset`` ahead of it."""

    def __init__(self, lengths: list[int]) -> None:
        self.t = self.offset = 0
        self.first_at = self.due_at = self.made_at = 0
        self.waits_until: int | None = 0
        """The wall instant at which the active occurrence starts; ``None`` while it runs."""
        self.ends_at = 0
        self.lengths = lengths
        self.made, self.skipped = 1, 0
        self.starts: list[int] = []
        self.may_wait_from = 0

    @property
    def now(self) -> int:
        return self.t + self.offset

    def do(self, deed: Deed) -> None:
        match deed.kind:
            case "elapse":
                self.elapse(self.t + deed.ms)
            case "step":
                self.step(deed.ms)
            case "down":
                self.t += deed.ms
                self.offset += deed.unseen_step
                self.recover()

    def step(self, by: int) -> None:
        """Step the wall clock; the dispatcher notices it."""
        self.offset += by
        self.move(by)

    def move(self, by: int) -> None:
        self.first_at, self.due_at, self.made_at = self.first_at + by, self.due_at + by, self.made_at + by
        if self.waits_until is not None:
            self.waits_until += by

    def recover(self) -> None:
        if back := put_back_by(self.made_at, self.now):
            self.move(-back)
        if self.waits_until is None:
            self.waits_until = -(10**15)  # interrupted: it is in the queue, whatever the clock says
        self.may_wait_from = self.t

    def elapse(self, until: int) -> None:
        while True:
            start = self.ends_at if self.waits_until is None else self.waits_until - self.offset
            moment = max(min(start, self.due_at + EVERY - self.offset), self.t)
            if moment > until:
                self.t = max(self.t, until)
                return
            self.t = moment
            if self.waits_until is None and self.t >= self.ends_at:
                self.end()
            elif self.waits_until is not None and self.now >= self.waits_until:
                self.start()
            else:
                self.skip()

    def start(self) -> None:
        assert self.t < self.may_wait_from + EVERY + CLOCK_STEP_MS, "further away than one interval"
        self.starts.append(self.t)
        self.waits_until = None
        self.ends_at = self.t + self.lengths[len(self.starts) % len(self.lengths)]

    def end(self) -> None:
        if back := put_back_by(self.due_at, self.now):
            self.first_at, self.due_at = self.first_at - back, self.due_at - back
        due_at, skipped = next_occurrence(self.first_at, EVERY, self.due_at, self.now)
        self.due_at = self.waits_until = due_at
        self.made_at, self.may_wait_from = self.now, self.t
        self.made, self.skipped = self.made + 1, self.skipped + skipped

    def skip(self) -> None:
        latest, count = beats_passed(EVERY, self.due_at, self.now)
        assert count > 0
        self.due_at, self.made_at, self.skipped = latest, self.now, self.skipped + count


day = 86_400_000
elapsing = st.builds(Deed, st.just("elapse"), st.integers(0, 5 * EVERY))
noticed = st.builds(Deed, st.just("step"), st.integers(-day, day).filter(lambda by: abs(by) >= CLOCK_STEP_MS))
restarts = st.builds(Deed, st.just("down"), st.integers(0, 3 * EVERY), st.integers(-day, day))
lengths = st.lists(st.one_of(st.integers(0, EVERY // 2), st.integers(0, 4 * EVERY)), min_size=1, max_size=5)


@given(st.lists(st.one_of(elapsing, noticed, restarts), max_size=30), lengths)
def test_whatever_happens_to_the_clock_the_next_run_is_at_most_one_interval_away(
    deeds: list[Deed], lengths: list[int]
) -> None:
    life = Life(lengths)
    for deed in deeds:
        life.do(deed)
        assert (life.due_at - life.first_at) // EVERY + 1 == life.made + life.skipped, (
            "a beat came twice, or not at all"
        )
        assert (life.due_at - life.first_at) % EVERY == 0


@given(st.lists(st.one_of(elapsing, noticed), max_size=30), lengths)
def test_steps_that_are_noticed_change_nothing_and_beats_do_not_drift(deeds: list[Deed], lengths: list[int]) -> None:
    stepped, steady = Life(lengths), Life(lengths)
    for deed in deeds:
        stepped.do(deed)
        if deed.kind != "step":
            steady.do(deed)
    assert stepped.starts == steady.starts
    assert all(start % EVERY == 0 for start in steady.starts)


def test_the_edges() -> None:
    assert next_occurrence(0, 10, 0, 9) == (10, 0)
    assert next_occurrence(0, 10, 0, 10) == (10, 0), "an occurrence that is due right now has not passed"
    assert next_occurrence(0, 10, 0, 11) == (20, 1)
    assert next_occurrence(0, 10, 50, 0) == (60, 0)


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_series_is_spent_after_max_runs(runs: int, max_runs: int) -> None:
    assert is_spent(runs, max_runs) == (runs >= max_runs)
    assert not is_spent(runs, None)
