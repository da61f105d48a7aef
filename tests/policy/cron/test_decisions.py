"""Laws of what is due and of the state after a run; sequences of both are in the simulation."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from taskmill import InvalidState
from taskmill.cron import CronExpression
from taskmill.model.cron import CronState, Firing, RunOutcome, Stretch
from taskmill.model.durations import from_ms, to_ms
from taskmill.policy.cron import decisions
from taskmill.policy.cron.decisions import (
    Due,
    Reason,
    cancelled,
    claimed,
    due,
    failed,
    gave_up,
    interrupted,
    new_state,
    next_moment,
    started,
    succeeded,
)
from tests.policy.cron.expressions import valid_texts
from tests.policy.cron.plain_model import EPOCH, MINUTE
from tests.repetition import often

HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
ZONE = ZoneInfo("Europe/Berlin")
HOURLY = CronExpression.parse("0 * * * *")
NOON = int((datetime(2026, 6, 1, 12, tzinfo=ZONE) - EPOCH).total_seconds() * 1000)

offsets = st.integers(-30 * DAY, 30 * DAY)


@st.composite
def states(draw: st.DrawFn) -> tuple[CronState, CronExpression]:
    """Return a task as it may be stored, with some past."""
    expression = CronExpression.parse(draw(valid_texts))
    first = NOON + draw(offsets)
    firing = draw(
        st.one_of(
            st.none(),
            st.builds(
                Firing, occurrence=st.just(first), retry_at=st.one_of(st.none(), offsets.map(lambda ms: NOON + ms))
            ),
        )
    )
    ran: list[Stretch] = []
    for length in draw(st.lists(st.tuples(st.integers(1, 2 * DAY), st.integers(0, 2 * DAY)), max_size=3)):
        begin = (ran[-1].last if ran else first) + length[0]
        ran.append(Stretch(begin, begin + length[1]))
    state = CronState(
        name="a",
        expression=expression.text,
        retry_delay_ms=draw(st.sampled_from([0, 999, 1000, 60_000])),
        since=NOON + draw(offsets),
        ran=tuple(ran),
        firing=firing,
        last_outcome=draw(st.sampled_from([None, *RunOutcome])),
    )
    return state, expression


@given(states())
def test_the_next_moment_is_the_first_at_which_the_task_is_due(case: tuple[CronState, CronExpression]) -> None:
    state, expression = case
    moment = next_moment(state, expression, ZONE)
    if state.is_running:
        assert moment is None
        return
    assert moment is not None
    assert due(state, expression, moment, ZONE) is not None
    assert due(state, expression, moment - 1, ZONE) is None


@given(states(), offsets)
def test_a_running_task_is_not_due_and_a_started_occurrence_is_not_due_again(
    case: tuple[CronState, CronExpression], away: int
) -> None:
    state, expression = case
    now = NOON + away
    why = due(state, expression, now, ZONE)
    if why is None:
        return
    assert not state.is_running
    running = started(state, expression, why, now, ZONE)
    assert running.is_running
    for later in (0, 1, DAY, -DAY):
        assert due(running, expression, now + later, ZONE) is None
    assert due(succeeded(running, now), expression, now, ZONE) is None
    assert due(failed(running, now), expression, now, ZONE) is None


@given(states(), offsets)
def test_due_is_for_an_occurrence_that_has_passed_and_not_run(
    case: tuple[CronState, CronExpression], away: int
) -> None:
    state, expression = case
    now = NOON + away
    why = due(state, expression, now, ZONE)
    if why is None or not why.fires:
        return
    assert state.since < why.occurrence <= now
    assert expression.matches(from_ms(why.occurrence).astimezone(ZONE))
    assert not any(part.first <= why.occurrence <= part.last for part in state.ran)
    running = started(state, expression, why, now, ZONE)
    assert any(part.first <= why.occurrence <= part.last for part in running.ran)
    again = due(replace(running, firing=None, since=why.occurrence - 1), expression, now, ZONE)
    assert again is None or again.occurrence > why.occurrence


@given(st.sampled_from([0, 1, 999, 1000, 1001, 10**6]), st.integers(0, 10**6))
def test_a_retry_comes_after_its_delay_and_a_second(delay: int, lasted: int) -> None:
    state = replace(new_state("a", HOURLY, delay, NOON, ZONE), firing=Firing(occurrence=NOON))
    ended = failed(state, NOON + lasted)
    assert ended.retry_at == NOON + lasted + max(delay, 1000)
    assert (ended.last_outcome, ended.last_failure_at) == (RunOutcome.FAILED, NOON + lasted)
    asked = failed(state, NOON + lasted, delay_ms=5)
    assert asked.retry_at == NOON + lasted + 1000


def test_attempts_are_counted_until_the_next_firing() -> None:
    state = new_state("a", HOURLY, 0, NOON, ZONE)
    running = started(state, HOURLY, Due(Reason.OCCURRENCE, NOON), NOON, ZONE)
    assert running.firing == Firing(occurrence=NOON, attempt=1)
    again = started(failed(running, NOON), HOURLY, Due(Reason.RETRY, NOON), NOON + 1000, ZONE)
    assert again.firing == Firing(occurrence=NOON, attempt=2)
    assert again.last_attempt_at == NOON + 1000
    following = started(failed(again, NOON), HOURLY, Due(Reason.OCCURRENCE, NOON + HOUR), NOON + HOUR, ZONE)
    assert following.firing == Firing(occurrence=NOON + HOUR, attempt=1)


def test_occurrences_that_pass_while_a_run_waits_for_a_slot_are_settled_by_that_run() -> None:
    waiting = started(new_state("a", HOURLY, 0, NOON, ZONE), HOURLY, Due(Reason.OCCURRENCE, NOON), NOON, ZONE)
    began = NOON + 2 * HOUR + 5
    assert due(succeeded(waiting, began), HOURLY, began, ZONE) == Due(Reason.OCCURRENCE, NOON + 2 * HOUR)
    running = claimed(waiting, began)
    assert running.last_attempt_at == began
    assert due(succeeded(running, began), HOURLY, began, ZONE) is None
    assert next_moment(succeeded(running, began), HOURLY, ZONE) == NOON + 3 * HOUR


def test_a_task_that_gave_up_or_was_cancelled_waits_for_its_next_occurrence() -> None:
    running = started(new_state("a", HOURLY, 0, NOON, ZONE), HOURLY, Due(Reason.OCCURRENCE, NOON), NOON, ZONE)
    for ended in (gave_up(running, NOON + 5), cancelled(running), cancelled(failed(running, NOON + 5))):
        assert ended.firing is None
        assert next_moment(ended, HOURLY, ZONE) == NOON + HOUR
    assert gave_up(running, NOON + 5).last_failure_at == NOON + 5
    assert cancelled(running).last_outcome is RunOutcome.CANCELLED


def test_an_interrupted_run_is_due_at_once_for_the_same_occurrence() -> None:
    running = started(new_state("a", HOURLY, 3600_000, NOON, ZONE), HOURLY, Due(Reason.OCCURRENCE, NOON), NOON, ZONE)
    assert due(interrupted(running, NOON + 5), HOURLY, NOON + 5, ZONE) == Due(Reason.RESTART, NOON)


@pytest.mark.parametrize("verdict", [failed, interrupted, claimed])
def test_nothing_ends_that_did_not_start(verdict: object) -> None:
    with pytest.raises(InvalidState, match="no run of cron task 'a' is under way"):
        verdict(new_state("a", HOURLY, 0, NOON, ZONE), NOON)  # type: ignore[operator]


def test_a_retry_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidState):
        started(new_state("a", HOURLY, 0, NOON, ZONE), HOURLY, Due(Reason.RETRY, NOON), NOON, ZONE)


@settings(max_examples=often(25))
@given(st.lists(st.integers(0, 24 * 60), min_size=1, max_size=60, unique=True))
@example([*range(0, 34, 2), 1])
def test_runs_are_remembered_in_stretches_and_the_oldest_gaps_are_forgotten_first(hours: list[int]) -> None:
    state = new_state("a", HOURLY, 0, NOON - HOUR, ZONE)
    for hour in hours:
        at = NOON + hour * HOUR
        state = succeeded(started(state, HOURLY, Due(Reason.OCCURRENCE, at), at, ZONE), at)
    ran = state.ran
    assert len(ran) <= decisions.MOST_STRETCHES
    assert all(part.first <= part.last for part in ran)
    assert all(earlier.last + HOUR < later.first for earlier, later in pairwise(ran))
    covered = {hour for hour in range(24 * 60 + 1) if any(p.first <= NOON + hour * HOUR <= p.last for p in ran)}
    assert set(hours) <= covered
    assert covered - set(hours) == set() or len(ran) >= decisions.MOST_STRETCHES - 1


@pytest.mark.parametrize("zone", [ZoneInfo("UTC"), ZoneInfo("Pacific/Apia"), ZoneInfo("America/New_York")])
def test_at_the_end_of_time_nothing_is_due_and_nothing_breaks(zone: ZoneInfo) -> None:
    last = to_ms(datetime.max.replace(tzinfo=ZoneInfo("UTC")))
    state = replace(new_state("a", HOURLY, 0, last - 10 * DAY, zone), since=last)
    assert next_moment(state, HOURLY, zone) is None
    assert due(state, HOURLY, last, zone) is None
    assert new_state("a", HOURLY, 0, last, zone).since in (last, last - last % HOUR - 1)


@given(states())
def test_a_state_can_be_stored_as_text_and_read_again(case: tuple[CronState, CronExpression]) -> None:
    state, _ = case
    assert msgspec.json.decode(msgspec.json.encode(state), type=CronState) == state


def test_summer_time_does_not_make_a_task_run_again() -> None:
    half_past_two = CronExpression.parse("30 2 * * *")
    first = int((datetime(2026, 10, 25, 2, 30, tzinfo=ZONE) - EPOCH).total_seconds() * 1000)
    state = new_state("a", half_past_two, 0, first - HOUR, ZONE)
    found = []
    for minute in range(24 * 60):
        now = first - HOUR + minute * MINUTE
        why = due(state, half_past_two, now, ZONE)
        if why is not None:
            found.append(why.occurrence)
            state = succeeded(started(state, half_past_two, why, now, ZONE), now)
    assert found == [first, first + HOUR]


def test_after_a_change_what_ran_by_the_old_expression_is_remembered_and_nothing_else() -> None:
    state = new_state("a", HOURLY, 0, NOON - 1, ZONE)
    for at in (NOON, NOON + HOUR, NOON + 2 * HOUR):
        state = succeeded(started(state, HOURLY, Due(Reason.OCCURRENCE, at), at, ZONE), at)
    each_half_hour = CronExpression.parse("0,30 * * * *")
    changed = replace(state, ran=decisions.under_another_expression(state.ran, HOURLY.text))
    back = decisions.rewound(changed, NOON, 2 * HOUR)
    assert next_moment(back, each_half_hour, ZONE) == NOON + HOUR // 2
    assert due(back, each_half_hour, NOON + HOUR + HOUR // 3, ZONE) == Due(Reason.OCCURRENCE, NOON + HOUR // 2)
    ran = started(back, each_half_hour, Due(Reason.OCCURRENCE, NOON + HOUR // 2), NOON + HOUR // 2, ZONE)
    assert next_moment(succeeded(ran, NOON + HOUR // 2), each_half_hour, ZONE) == NOON + HOUR + HOUR // 2
