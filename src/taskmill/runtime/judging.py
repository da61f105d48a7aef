"""Judging attempts: what the outcome of a live attempt means for its task."""

from __future__ import annotations

import random
from collections.abc import Sequence

from taskmill.model.outcome import Outcome, Stopped, Succeeded
from taskmill.model.stages import Claimed
from taskmill.model.turn import Judged
from taskmill.model.verdict import Return, TryAgain, Verdict, Wait
from taskmill.policy.cron.decisions import retry_at
from taskmill.policy.families import family_verdict
from taskmill.policy.verdicts import judge
from taskmill.runtime.attempt import Attempt

MOST_RESULTS = 32 * 2**20
"""Characters of results that are stored at once; PostgreSQL refuses more than 256 MB in one value."""

Ended = tuple[Attempt, Outcome]


def one_turns_worth(ended: list[Ended]) -> tuple[list[Ended], list[Ended]]:
    """The first so many as one turn should store, and the others."""
    characters = 0
    for number, (_, outcome) in enumerate(ended):
        if isinstance(outcome, Succeeded):
            characters += len(outcome.result)
            if characters > MOST_RESULTS and number:
                return ended[:number], ended[number:]
    return ended, []


def may_release(verdicts: Sequence[Judged]) -> bool:
    """Whether others may start because of these; a stopped task may have a successor."""
    return any(judged.stopped or judged.task.is_tied for judged in verdicts)


def judgements(ended: Sequence[Ended], now: int, steady: float, *, leaving: bool) -> list[Judged]:
    """The verdicts on attempts that have ended, in their order, at ``now``, which is ``steady`` on the steady clock."""
    return [
        Judged(
            task=attempt.task,
            verdict=verdict_on(attempt, outcome, now, (ended_at := _ended_at(attempt, now, steady)), leaving=leaving),
            duration_ms=attempt.duration_ms,
            ended_at=ended_at,
            io=attempt.io_to_store,
            stopped=attempt.is_ending,
        )
        for attempt, outcome in ended
    ]


def _ended_at(attempt: Attempt, now: int, steady: float) -> int:
    """When the attempt ended, on the wall clock: the store may hear of it much later."""
    return now if attempt.ended_at is None else now - round((steady - attempt.ended_at) * 1000)


def waiting_again(verdicts: Sequence[Judged]) -> list[Claimed]:
    """The tasks that are in the queue at once when these are committed."""
    return [judged.task for judged in verdicts if _waits_again(judged.verdict)]


def _waits_again(verdict: Verdict) -> bool:
    return isinstance(verdict, Return | TryAgain) and verdict.due_at is None


def verdict_on(attempt: Attempt, outcome: Outcome, now: int, ended_at: int, *, leaving: bool) -> Verdict:
    task = attempt.task
    verdict = judge(
        outcome,
        retry=attempt.retry,
        retries=task.retries,
        crashes=task.crashes,
        now=now,
        random=random.random(),  # noqa: S311 - jitter, not secrets
        leaving=leaving,
    )
    if task.cron is not None and isinstance(verdict, TryAgain):
        # Whatever the handler asked for: one that keeps failing does not spin. The delay counts from the failure.
        verdict = TryAgain(verdict.error, retry_at(ended_at, 0 if verdict.due_at is None else verdict.due_at - now))
    if not attempt.has_family:
        return verdict
    if isinstance(outcome, Stopped) and attempt.hook_waits:
        return Wait(None)
    finalizes = attempt.type.handler.finalize is not None
    return family_verdict(verdict, task.family, finalizes=finalizes, spawned_now=attempt.spawned)
