"""Decide what happens to a task after an attempt: outcome + retry policy + now → verdict.

Laws: an interruption never uses a retry; ``GiveUp`` never retries; a task is never retried more often than its policy
allows; a task that was running in three crashes of its process is quarantined, so that one poison task cannot stop the
rest.
"""

from __future__ import annotations

from typing import assert_never

from taskmill.model.outcome import (
    Crashed,
    Failed,
    GaveUp,
    Outcome,
    Stopped,
    StopReason,
    Succeeded,
    Unrunnable,
    Unstarted,
)
from taskmill.model.retry import Retry
from taskmill.model.status import Ending
from taskmill.model.verdict import End, MakeWay, Return, TryAgain, Verdict, Wait
from taskmill.policy.retry import retry_delay_ms

MOST_CRASHES = 3
PAUSE_MS = 1000
"""Delay before the next attempt of a task that could not start or was interrupted from outside: the cause may last."""
_CRASHED = "crashed "


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
        case Succeeded(result):
            return End(Ending.COMPLETED, result=result)
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


def quarantined(crashes: int, *, stopping: bool = False) -> bool:
    """True if a task has crashed too often. A task being cancelled gets three more attempts, to run its hook."""
    return crashes >= (2 * MOST_CRASHES if stopping else MOST_CRASHES)


def crash_message(crashes: int, error: str | None = None) -> str:
    return f"{_CRASHED}{crashes} times" + (f": {error}" if error else "")


def is_crash(error: str | None) -> bool:
    """True if the error of a dead letter is that of a task quarantined after crashes."""
    return error is not None and error.startswith(_CRASHED)
