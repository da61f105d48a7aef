"""Declared cron tasks are compared with the stored ones."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from taskmill.cron import CronExpression
from taskmill.model.cron import CronState, Firing, RunOutcome, Stretch
from taskmill.policy.cron.decisions import Due, Reason, due
from taskmill.policy.cron.registrations import Difference, Reconciliation, Registration, reconciled
from tests.policy.cron.plain_model import MINUTE

UTC = ZoneInfo("UTC")
NOW = 1_780_315_200_000  # 1 June 2026, 12:00
HOUR = 60 * MINUTE


def declared(name: str, text: str = "0 * * * *", delay: int = 60_000) -> Registration:
    return Registration(name, CronExpression.parse(text), print, delay)


def stored(name: str, text: str = "0 * * * *", delay: int = 60_000, since: int = NOW, **more: Any) -> CronState:
    return CronState(name=name, expression=text, retry_delay_ms=delay, since=since, **more)


def reconcile(known: list[CronState], *registrations: Registration) -> Reconciliation:
    return reconciled({state.name: state for state in known}, registrations, NOW, UTC)


def test_the_difference_names_what_came_what_went_and_each_setting_that_changed() -> None:
    difference = reconcile(
        [stored("same"), stored("gone"), stored("also gone"), stored("moved"), stored("both")],
        declared("new"),
        declared("same"),
        declared("moved", "30 * * * *"),
        declared("both", "0  * * * *", 5_000),
    ).difference
    assert difference == Difference(
        added=("new",),
        removed=("also gone", "gone"),
        modified=(
            {"name": "moved", "field": "expression", "from": "0 * * * *", "to": "30 * * * *"},
            {"name": "both", "field": "expression", "from": "0 * * * *", "to": "0  * * * *"},
            {"name": "both", "field": "retry_delay", "from": timedelta(minutes=1), "to": timedelta(seconds=5)},
        ),
    )
    assert difference.total == 6


def test_the_difference_can_be_given_to_a_log_record(caplog: pytest.LogCaptureFixture) -> None:
    difference = reconcile([stored("gone"), stored("a")], declared("new"), declared("a", delay=1)).difference
    with caplog.at_level(logging.INFO):
        logging.getLogger("test").info("changed", extra=difference.attributes())
    seen = vars(caplog.records[0])
    assert (seen["added"], seen["removed"], seen["total"]) == (["new"], ["gone"], 3)
    assert [change["field"] for change in seen["modified"]] == ["retry_delay"]


def test_settings_are_replaced_and_history_is_kept() -> None:
    history: dict[str, Any] = {"last_attempt_at": NOW - 5, "last_success_at": NOW - 4, "last_failure_at": NOW - 9}
    known = stored(
        "a", since=NOW - 5, ran=(Stretch(NOW - HOUR, NOW - HOUR),), last_outcome=RunOutcome.SUCCEEDED, **history
    )
    (state,) = reconcile([known], declared("a", "30 * * * *", 5_000)).states
    ran = (Stretch(NOW - HOUR, NOW - HOUR, known.expression),)
    assert state == replace(known, expression="30 * * * *", retry_delay_ms=5_000, ran=ran)


def test_states_come_in_the_order_of_the_declarations() -> None:
    states = reconcile([stored("c"), stored("a")], declared("b"), declared("a"), declared("c")).states
    assert [state.name for state in states] == ["b", "a", "c"]


def test_an_orphan_restarts_now_unless_it_crashed_three_times() -> None:
    for crashes in (0, 1, 2):
        running = stored("a", since=NOW - 5, firing=Firing(occurrence=NOW - 9, attempt=4, crashes=crashes))
        outcome = reconcile([running], declared("a", delay=0))
        assert outcome.orphans == ("a",)
        (state,) = outcome.states
        if crashes < 2:
            assert outcome.quarantined == ()
            assert state.firing == Firing(occurrence=NOW - 9, attempt=4, crashes=crashes + 1, retry_at=NOW)
            assert due(state, CronExpression.parse("30 * * * *"), NOW, UTC) == Due(Reason.RESTART, NOW - 9)
        else:
            assert outcome.quarantined == ("a",)
            assert (state.firing, state.last_outcome) == (None, RunOutcome.QUARANTINED)


def test_an_orphan_that_is_no_longer_declared_is_forgotten() -> None:
    outcome = reconcile([stored("a", firing=Firing(occurrence=NOW))])
    assert (outcome.states, outcome.orphans, outcome.difference.removed) == ((), (), ("a",))


def test_instants_in_the_future_are_moved_to_now_and_what_ran_is_remembered_for_a_day() -> None:
    ahead = NOW + 400 * 24 * HOUR
    known = stored(
        "a",
        since=ahead,
        ran=(Stretch(NOW - HOUR, NOW + HOUR), Stretch(NOW + 23 * HOUR, NOW + 30 * HOUR), Stretch(ahead, ahead)),
        last_attempt_at=ahead,
        last_success_at=ahead,
        last_failure_at=ahead,
    )
    (state,) = reconcile([known], declared("a")).states
    assert (state.since, state.last_attempt_at, state.last_success_at, state.last_failure_at) == (NOW,) * 4
    assert state.ran == (Stretch(NOW - HOUR, NOW + HOUR), Stretch(NOW + 23 * HOUR, NOW + 24 * HOUR))


def test_a_retry_after_a_failure_in_the_future_keeps_its_length() -> None:
    ahead = NOW + 240 * HOUR
    firing = Firing(occurrence=ahead - 5, retry_at=ahead + 3 * HOUR)
    known = stored("a", since=ahead - 5, firing=firing, last_failure_at=ahead, last_outcome=RunOutcome.FAILED)
    (state,) = reconcile([known], declared("a")).states
    assert state.retry_at == NOW + 3 * HOUR
    assert state.ran == (Stretch(ahead - 5, ahead - 5),), "the retry runs for it; it must not fire as well"
    interrupted = replace(known, last_outcome=RunOutcome.INTERRUPTED)
    assert reconcile([interrupted], declared("a")).states[0].retry_at == NOW


def test_a_retry_in_the_future_after_a_failure_in_the_past_is_kept() -> None:
    known = stored("a", firing=Firing(occurrence=NOW - 9, retry_at=NOW + HOUR), last_failure_at=NOW - 5)
    assert reconcile([known], declared("a", delay=1)).states[0].retry_at == NOW + HOUR


names = st.sampled_from(["a", "b", "c", "d"])
texts = st.sampled_from(["0 * * * *", "* * * * *", "30 2 * * *"])
moments = st.integers(-100, 100).map(lambda minutes: NOW + minutes * MINUTE)
firings = st.one_of(
    st.none(),
    st.builds(Firing, occurrence=moments, crashes=st.integers(0, 3), retry_at=st.one_of(st.none(), moments)),
)
known_states = st.lists(
    st.builds(
        CronState,
        name=names,
        expression=texts,
        retry_delay_ms=st.sampled_from([0, 60_000]),
        since=moments,
        firing=firings,
        last_failure_at=st.one_of(st.none(), moments),
        last_outcome=st.sampled_from([None, *RunOutcome]),
    ),
    unique_by=lambda state: state.name,
)
declarations = st.lists(st.builds(declared, names, texts, st.sampled_from([0, 60_000])), unique_by=lambda one: one.name)


@given(known_states, declarations)
def test_the_outcome_is_what_was_declared_and_doing_it_again_changes_nothing(
    known: list[CronState], registrations: list[Registration]
) -> None:
    outcome = reconcile(known, *registrations)
    assert [(state.name, state.expression, state.retry_delay_ms) for state in outcome.states] == [
        (one.name, one.expression.text, one.retry_delay_ms) for one in registrations
    ]
    before, after = {state.name for state in known}, {one.name for one in registrations}
    assert set(outcome.difference.added) == after - before
    assert set(outcome.difference.removed) == before - after
    assert {change["name"] for change in outcome.difference.modified} <= before & after
    assert not any(state.is_running or state.since > NOW for state in outcome.states)
    again = reconcile(list(outcome.states), *registrations)
    assert again.difference == Difference()
    assert again.difference.total == 0
    assert (again.orphans, again.quarantined) == ((), ())
    assert again.states == outcome.states
