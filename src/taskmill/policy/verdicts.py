"""Decide what happens to a task after an attempt.

:func:`settled`: how the handler ended + the request to stop → outcome. :func:`judge`: outcome + retry policy + now →
verdict. :func:`after_attempt`: verdict + what the row shows → next state. :func:`after_death`: the next state of a task
whose dispatcher died. Every answer is a move in the table of :mod:`taskmill.model.lifecycle`.
:mod:`taskmill.policy.families` decides what follows when children end.

Laws of outcomes: a success that comes after a cancellation is dropped; a timeout is a failure, whatever the handler did
afterwards; a success that comes during a shutdown or a preemption counts; a cancellation that the scheduler did not
send is an interruption and not a failure.

Laws of verdicts: an interruption never uses a retry; ``GiveUp`` never retries; a task is never retried more often than
its policy allows; a task that was running in three crashes of its process is quarantined, so that one poison task
cannot stop the rest.

Laws of delays: a delay is never negative and never above ``maximum``; without jitter it never shrinks as retries grow.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from taskmill.model.attempt import (
    FOR_A_TASK,
    FOR_PRESSURE,
    Again,
    AttemptFailure,
    Crashed,
    End,
    ErrorDetails,
    Failed,
    GaveUp,
    Interrupted,
    LeaveToChildren,
    MakeWay,
    Next,
    Outcome,
    RawOutcome,
    Return,
    StopChildren,
    Stopped,
    StopReason,
    Succeeded,
    TryAgain,
    Unrunnable,
    Unstarted,
    Verdict,
    Wait,
)
from taskmill.model.durations import LONGEST_MS
from taskmill.model.settings import Retry
from taskmill.model.status import COMPLETED, Ending, Status
from taskmill.model.turn import Judged
from taskmill.policy.families import ENDING_OF_STOP

MOST_CRASHES = 3
PAUSE_MS = 1000
"""Delay before the next attempt of a task that could not start or was interrupted from outside: the cause may last."""
_CRASHED = "crashed "


def settled(raw: RawOutcome, reason: StopReason | None, timeout_ms: int | None = None) -> Outcome:
    """Return how an attempt ended, given how its handler ended and why it was asked to stop, if it was."""
    match reason:
        case None:
            if not isinstance(raw, Interrupted):
                return raw
            if raw.from_outside:
                return Stopped(StopReason.OUTSIDE)
            return Failed("CancelledError: the handler cancelled itself", details=raw.details)
        case StopReason.CANCEL | StopReason.SUPERSEDE | StopReason.FAIL:
            return Stopped(reason)
        case StopReason.TIMEOUT:
            error = f"TimeoutError: exceeded its timeout of {(timeout_ms or 0) / 1000:g} s"
            return Failed(error, details=_stuck_at(raw), timed_out=True)
        case StopReason.SHUTDOWN | StopReason.PREEMPT | StopReason.EASE | StopReason.CUT_OFF | StopReason.OUTSIDE:
            return raw if isinstance(raw, Succeeded) else Stopped(reason)
        case _:
            assert_never(reason)


def _stuck_at(raw: RawOutcome) -> ErrorDetails:
    """Return where a handler was when its timeout cancelled it, as far as its end shows that."""
    found = raw.details if isinstance(raw, Interrupted | Failed | GaveUp) else None
    return msgspec.structs.replace(found or ErrorDetails(""), exception="TimeoutError")


def failure_of(outcome: Outcome) -> AttemptFailure | None:
    """Return the error that an attempt leaves; None if it succeeded, was stopped or never started."""
    match outcome:
        case Failed(error):
            return AttemptFailure("timeout" if outcome.timed_out else "failed", error, outcome.details)
        case GaveUp(error):
            return AttemptFailure("gave_up", error, outcome.details)
        case Unrunnable(error):
            return AttemptFailure("failed", error, outcome.details)
        case Crashed(error):
            return AttemptFailure("crashed", error)
        case Succeeded() | Stopped() | Unstarted():
            return None
        case _:
            assert_never(outcome)


def retry_delay_ms(retry: Retry, retries_so_far: int, random: float = 1.0) -> int:
    """Return the delay before retry number ``retries_so_far + 1``; ``random`` in [0, 1] is used for jitter only."""
    match retry.shape:
        case "constant":
            delay = retry.initial_ms
        case "linear":
            delay = min(retry.initial_ms + retries_so_far * retry.increment_ms, retry.maximum_ms)
        case "exponential":
            delay = _grown(retry, retries_so_far)
    return int(delay * random) if retry.jitter else delay


def _grown(retry: Retry, retries_so_far: int) -> int:
    try:
        grown = retry.initial_ms * retry.factor**retries_so_far
    except OverflowError:
        grown = LONGEST_MS if retry.initial_ms else 0
    return round(min(grown, retry.maximum_ms))


def judge(
    outcome: Outcome,
    *,
    retry: Retry,
    retries: int,
    crashes: int,
    now: int,
    random: float = 1.0,
    leaving: bool = False,
) -> Verdict:
    """Return the verdict on an attempt; ``retries`` and ``crashes`` count those before it.

    ``leaving`` is true if this scheduler is shutting down; the next one may then start the task without delay.
    """
    pause_ends = None if leaving else now + PAUSE_MS
    match outcome:
        case Succeeded():
            return completed(outcome)
        case GaveUp(error):
            return End(Ending.FAILED, error=error)
        case Unrunnable(error):
            return End(Ending.DEAD_LETTER, error=error)
        case Failed(error, after_ms):
            if retries >= retry.retries:
                return End(Ending.DEAD_LETTER, error=error)
            delay = retry_delay_ms(retry, retries, random) if after_ms is None else after_ms
            return TryAgain(error, due_at=now + delay if delay else None)
        case Stopped(StopReason.CANCEL, note):
            return End(Ending.CANCELLED, error=note)
        case Stopped(StopReason.SUPERSEDE, note):
            return End(Ending.SUPERSEDED, error=note)
        case Unstarted(error):
            return Return(error=error, due_at=pause_ends, started=False)
        case Stopped(reason):
            return _after_interruption(reason, pause_ends)
        case Crashed(error):
            if quarantined(crashes + 1):
                return End(Ending.DEAD_LETTER, error=crash_message(crashes + 1, error))
            return Return(crashed=True, error=error)
        case _:
            assert_never(outcome)


def completed(outcome: Succeeded) -> End:
    """Return the verdict on an attempt that succeeded."""
    return End(COMPLETED, outcome.result)


def _after_interruption(reason: StopReason, pause_ends: int | None) -> Verdict:
    """Return the verdict on an attempt that was stopped for a reason other than cancel and supersede."""
    match reason:
        case StopReason.FAIL:
            return Wait(None)
        case StopReason.PREEMPT:
            return MakeWay()
        case StopReason.EASE:
            return MakeWay(for_pressure=True)
        case StopReason.OUTSIDE:
            return Return(due_at=pause_ends)
        case _:
            return Return()


def after_attempt(judged: Judged, *, has_children: bool) -> Next:
    """Return the next state of a task whose attempt was judged.

    ``has_children`` is True if children are active. They come before a ``finalize`` that has to run again, and before
    the hook of a task that was asked to stop.
    """
    task, verdict = judged.task, judged.verdict
    children_first = has_children and task.finalizes
    match verdict:
        case End(Ending.COMPLETED) if has_children:
            return LeaveToChildren(verdict)
        case End():
            return StopChildren(verdict) if has_children else verdict
        case Wait(None):
            return LeaveToChildren(None)
        case Wait(result, finalizes):
            return LeaveToChildren(End(Ending.COMPLETED, result), finalizes)
        case TryAgain(error, due_at):
            status = _place(due_at, children_first=children_first)
            return Again(status, task.retries + 1, task.crashes, due_at, error, interrupted=False)
        case Return(crashed, error, due_at, started):
            status = _place(due_at, children_first=children_first or (has_children and judged.stopped))
            due_at = task.due_at if due_at is None else due_at
            crashes = task.crashes + crashed
            return Again(status, task.retries, crashes, due_at, error, interrupted=True if started else None)
        case MakeWay() if children_first:
            return Again(Status.WAITING, task.retries, task.crashes, task.due_at)
        case MakeWay(for_pressure):
            cause = FOR_PRESSURE if for_pressure else FOR_A_TASK
            return Again(Status.PAUSED, task.retries, task.crashes, task.due_at, preempted=cause)
        case _:
            assert_never(verdict)


def _place(due_at: int | None, *, children_first: bool) -> Status:
    """Return where a task waits that runs again. If its series is paused, the store pauses it instead."""
    if children_first:
        return Status.WAITING
    return Status.PENDING if due_at is None else Status.SCHEDULED


class Orphan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A task whose dispatcher died."""

    id: int
    retries: int
    crashes: int
    stop: StopReason | None
    finalizing: bool
    has_children: bool
    had_children: bool
    had_stopped: bool
    """True if its dispatcher had stopped gracefully, but the handler did not stop in time."""
    has_begun: bool = True
    """False if it was prefetched and waited for a slot."""
    node: int | None = None
    """The node that ran it, in a cluster."""

    @property
    def has_crashed(self) -> bool:
        """True if its process died while its handler ran."""
        return self.has_begun and not self.had_stopped


def after_death(orphan: Orphan) -> Again | End | StopChildren:
    """Return the next state of a task whose dispatcher died: it runs again, unless it keeps killing its process."""
    stop, crashes = orphan.stop, orphan.crashes + orphan.has_crashed
    if stop is not None and not orphan.has_begun:
        return End(ENDING_OF_STOP[stop])
    if orphan.had_stopped or not quarantined(crashes, stopping=stop is not None):
        children_first = orphan.has_children and (stop is not None or orphan.finalizing)
        status = _place(None, children_first=children_first or stop is StopReason.FAIL)
        return Again(status, orphan.retries, crashes, interrupted=True if orphan.has_begun else None)
    end = End(Ending.DEAD_LETTER if stop is None else ENDING_OF_STOP[stop], error=crash_message(crashes))
    return StopChildren(end) if orphan.had_children and stop is None else end


def quarantined(crashes: int, *, stopping: bool = False) -> bool:
    """True if a task has crashed too often. A task being cancelled gets three more attempts, to run its hook."""
    return crashes >= (2 * MOST_CRASHES if stopping else MOST_CRASHES)


def crash_message(crashes: int, error: str | None = None) -> str:
    return f"{_CRASHED}{crashes} times" + (f": {error}" if error else "")


def is_crash(error: str | None) -> bool:
    """True if the error of a dead letter is that of a task quarantined after crashes."""
    return error is not None and error.startswith(_CRASHED)
