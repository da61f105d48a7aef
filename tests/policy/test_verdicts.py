"""Laws of verdicts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskmill import Ending, Retry
from taskmill.model.attempt import (
    Crashed,
    End,
    Failed,
    GaveUp,
    Interrupted,
    MakeWay,
    Outcome,
    RawOutcome,
    Return,
    Stopped,
    StopReason,
    Succeeded,
    TryAgain,
    Unstarted,
    Wait,
)
from taskmill.policy.verdicts import MOST_CRASHES, PAUSE_MS, judge, settled

outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Succeeded("1")),
    st.builds(Failed, st.just("e"), st.none() | st.integers(0, 10**9)),
    st.just(GaveUp("no")),
    st.builds(Stopped, st.sampled_from(StopReason)),
    st.just(Crashed("signal 9")),
)
raw_outcomes: st.SearchStrategy[RawOutcome] = st.sampled_from(
    [Succeeded("1"), Failed("e"), GaveUp("no"), Crashed("signal 9"), Interrupted(), Interrupted(from_outside=True)]
)
policies = st.builds(Retry.constant, st.integers(0, 5), st.integers(0, 100))


@given(outcomes, policies, st.integers(0, 10), st.integers(0, 10), st.integers(0, 2**41))
def test_a_task_is_never_retried_more_often_than_its_policy_says(
    outcome: Outcome, retry: Retry, retries: int, crashes: int, now: int
) -> None:
    verdict = judge(outcome, retry=retry, retries=retries, crashes=crashes, now=now)
    if isinstance(verdict, TryAgain):
        assert isinstance(outcome, Failed)
        assert retries < retry.retries
        assert verdict.due_at is None or verdict.due_at > now


@given(st.sampled_from(StopReason), policies, st.integers(0, 10), st.integers(0, 10))
def test_an_interruption_never_costs_a_retry(reason: StopReason, retry: Retry, retries: int, crashes: int) -> None:
    verdict = judge(Stopped(reason), retry=retry, retries=retries, crashes=crashes, now=0)
    endings = {
        StopReason.CANCEL: End(Ending.CANCELLED),
        StopReason.SUPERSEDE: End(Ending.SUPERSEDED),
        StopReason.FAIL: Wait(None),
        StopReason.PREEMPT: MakeWay(),
        StopReason.EASE: MakeWay(for_pressure=True),
        StopReason.OUTSIDE: Return(due_at=PAUSE_MS),
    }
    assert verdict == endings.get(reason, Return())


@given(st.sampled_from([Stopped(StopReason.OUTSIDE), Unstarted("no worker")]), policies, st.integers(0, 10))
def test_a_task_that_could_not_run_keeps_its_retries_and_waits_unless_the_scheduler_leaves(
    outcome: Outcome, retry: Retry, retries: int
) -> None:
    stays = judge(outcome, retry=retry, retries=retries, crashes=0, now=5)
    leaves = judge(outcome, retry=retry, retries=retries, crashes=0, now=5, leaving=True)
    assert isinstance(stays, Return)
    assert isinstance(leaves, Return)
    assert (stays.crashed, stays.due_at) == (False, 5 + PAUSE_MS)
    assert (leaves.crashed, leaves.due_at) == (False, None)


@given(policies, st.integers(0, 10), st.integers(0, 10))
def test_giving_up_never_retries(retry: Retry, retries: int, crashes: int) -> None:
    verdict = judge(GaveUp("no"), retry=retry, retries=retries, crashes=crashes, now=0)
    assert verdict == End(Ending.FAILED, error="no")


@given(policies, st.integers(0, 10))
def test_a_crash_costs_no_retry_and_the_third_quarantines(retry: Retry, retries: int) -> None:
    for crashes in range(MOST_CRASHES):
        verdict = judge(Crashed("x"), retry=retry, retries=retries, crashes=crashes, now=0)
        if crashes + 1 < MOST_CRASHES:
            assert verdict == Return(crashed=True, error="x")
        else:
            assert verdict == End(Ending.DEAD_LETTER, error="crashed 3 times: x")


@given(raw_outcomes, st.sampled_from([StopReason.CANCEL, StopReason.SUPERSEDE]))
def test_whatever_comes_after_the_end_of_the_task_is_dropped(raw: RawOutcome, reason: StopReason) -> None:
    assert settled(raw, reason) == Stopped(reason)


@given(raw_outcomes)
def test_a_timeout_is_a_failure_whatever_the_handler_said_afterwards(raw: RawOutcome) -> None:
    assert isinstance(settled(raw, StopReason.TIMEOUT, 1000), Failed)


@given(raw_outcomes)
def test_only_finished_work_counts_during_shutdown(raw: RawOutcome) -> None:
    expected = raw if isinstance(raw, Succeeded) else Stopped(StopReason.SHUTDOWN)
    assert settled(raw, StopReason.SHUTDOWN) == expected


def test_a_handler_that_cancels_itself_has_failed() -> None:
    assert isinstance(settled(Interrupted(), None), Failed)
