"""Decide how an attempt ended that was asked to stop.

Laws: a success that comes after a cancellation is dropped; a timeout is a failure, whatever the handler did afterwards;
a success that comes during a shutdown or a preemption counts; a cancellation that the scheduler did not send is an
interruption and not a failure.
"""

from __future__ import annotations

from typing import assert_never

from taskmill.model.attempt import Failed, Interrupted, Outcome, RawOutcome, Stopped, StopReason, Succeeded


def settled(raw: RawOutcome, reason: StopReason | None, timeout_ms: int | None = None) -> Outcome:
    match reason:
        case None:
            if not isinstance(raw, Interrupted):
                return raw
            if raw.from_outside:
                return Stopped(StopReason.OUTSIDE)
            return Failed("CancelledError: the handler cancelled itself")
        case StopReason.CANCEL | StopReason.SUPERSEDE | StopReason.FAIL:
            return Stopped(reason)
        case StopReason.TIMEOUT:
            return Failed(f"TimeoutError: exceeded its timeout of {(timeout_ms or 0) / 1000:g} s")
        case StopReason.SHUTDOWN | StopReason.PREEMPT | StopReason.EASE | StopReason.CUT_OFF | StopReason.OUTSIDE:
            return raw if isinstance(raw, Succeeded) else Stopped(reason)
        case _:
            assert_never(reason)
