"""Each decision of the policy about an ended attempt is a transition in the table of a task's life."""

from __future__ import annotations

import itertools

import pytest

from taskmill.model.attempt import (
    Again,
    End,
    LeaveToChildren,
    MakeWay,
    Next,
    Return,
    StopChildren,
    StopReason,
    TryAgain,
    Verdict,
    Wait,
)
from taskmill.model.lifecycle import Mark, State, transitions
from taskmill.model.status import Ending, Status
from taskmill.model.task import Claimed, Family
from taskmill.model.turn import Judged
from taskmill.policy.verdicts import MOST_CRASHES, Orphan, after_attempt, after_death

BOTH = (False, True)
VERDICTS: list[Verdict] = [
    *(End(ending) for ending in (Ending.COMPLETED, Ending.FAILED, Ending.DEAD_LETTER, Ending.CANCELLED)),
    TryAgain("e", None),
    TryAgain("e", 5),
    Return(),
    Return(due_at=5),
    Return(crashed=True, error="e"),
    Return(due_at=5, started=False),
    MakeWay(),
    MakeWay(for_pressure=True),
    Wait("1"),
    Wait("1", finalizes=True),
]


def claimed(*, finalizing: bool, has_children: bool) -> Claimed:
    family = Family(int(has_children), int(finalizing), None) if finalizing or has_children else None
    blank = dict.fromkeys(Claimed.__struct_fields__)
    known = {"id": 1, "attempt": 1, "type": "d::t", "group": "", "retries": 0, "crashes": 0, "family": family}
    return Claimed(**(blank | known))  # type: ignore[arg-type]


def is_a_transition(before: State, answer: Next) -> bool:
    match answer:
        case End(ending):
            return bool(transitions(before, State(ending)))
        case Again(status, retries, _, _, _, interrupted, preempted):
            marks = before.marks - {Mark.PREEMPTED} - ({Mark.INTERRUPTED} if interrupted is False else set())
            marks |= ({Mark.INTERRUPTED} if interrupted else set()) | ({Mark.PREEMPTED} if preempted else set())
            return bool(transitions(before, State(status, marks), used_retry=retries > 0))
        case LeaveToChildren(_, finalizes):
            marks = before.marks - {Mark.FINALIZING} | ({Mark.FINALIZING} if finalizes else set())
            return bool(transitions(before, State(Status.WAITING, marks)))
        case StopChildren():
            between = State(Status.WAITING, before.marks)
            after = State(Status.WAITING, frozenset({Mark.STOPPING}))
            return bool(transitions(before, between) and transitions(between, after))


@pytest.mark.parametrize("verdict", VERDICTS, ids=repr)
@pytest.mark.parametrize(("finalizing", "has_children"), list(itertools.product(BOTH, BOTH)))
def test_the_next_state_after_an_attempt_is_a_move_in_the_table(
    verdict: Verdict, finalizing: bool, has_children: bool
) -> None:
    task = claimed(finalizing=finalizing, has_children=has_children)
    before = State(Status.RUNNING, frozenset({Mark.FINALIZING} if finalizing else ()))
    assert is_a_transition(before, after_attempt(Judged(task, verdict, 0), has_children=has_children))


@pytest.mark.parametrize("stop", [None, StopReason.CANCEL, StopReason.SUPERSEDE, StopReason.FAIL])
@pytest.mark.parametrize("crashes", [0, MOST_CRASHES - 1, 2 * MOST_CRASHES - 1])
def test_the_next_state_of_an_orphan_is_a_move_in_the_table(stop: StopReason | None, crashes: int) -> None:
    before = State(Status.RUNNING, frozenset({Mark.STOPPING} if stop else ()))
    for finalizing, has_children, had_stopped in itertools.product(BOTH, BOTH, BOTH):
        orphan = Orphan(1, 0, crashes, stop, finalizing, has_children, has_children, had_stopped)
        assert is_a_transition(before, after_death(orphan))


def test_children_come_before_what_is_left_of_their_parent() -> None:
    finalizing = claimed(finalizing=True, has_children=True)
    for verdict in (TryAgain("e", 5), Return(), MakeWay()):
        answer = after_attempt(Judged(finalizing, verdict, 0), has_children=True)
        assert isinstance(answer, Again)
        assert (answer.status, answer.preempted) == (Status.WAITING, 0)
    parent = claimed(finalizing=False, has_children=True)
    for stopped, status in ((True, Status.WAITING), (False, Status.PENDING)):
        answer = after_attempt(Judged(parent, Return(), 0, stopped=stopped), has_children=True)
        assert isinstance(answer, Again)
        assert answer.status is status


def test_an_orphan_that_keeps_killing_its_process_ends_and_one_that_stops_gets_more_attempts() -> None:
    def orphan(stop: StopReason | None, crashes: int, *, had_stopped: bool = False) -> Orphan:
        return Orphan(1, 0, crashes, stop, False, False, False, had_stopped)

    assert isinstance(after_death(orphan(None, MOST_CRASHES - 2)), Again)
    assert after_death(orphan(None, MOST_CRASHES - 1)) == End(Ending.DEAD_LETTER, error="crashed 3 times")
    assert isinstance(after_death(orphan(None, MOST_CRASHES, had_stopped=True)), Again)
    assert isinstance(after_death(orphan(StopReason.CANCEL, MOST_CRASHES)), Again)
    assert after_death(orphan(StopReason.CANCEL, 5)) == End(Ending.CANCELLED, error="crashed 6 times")
