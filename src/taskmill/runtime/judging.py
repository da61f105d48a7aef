"""Decide what the outcomes of attempts mean for their tasks."""

from __future__ import annotations

import random
from collections.abc import Sequence

from taskmill.model.attempt import Outcome, Return, Stopped, Succeeded, TryAgain, Verdict, Wait
from taskmill.model.task import Claimed
from taskmill.model.turn import Judged
from taskmill.policy.cron.decisions import retry_at
from taskmill.policy.families import family_verdict
from taskmill.policy.verdicts import judge
from taskmill.runtime.attempt import Attempt

_chance = random.Random()  # noqa: S311 - jitter. The program may have seeded the module's own generator.

MOST_RESULTS = 32 * 2**20
"""The most characters of results to store in one turn; PostgreSQL refuses more than 256 MB in one value."""

Ended = tuple[Attempt, Outcome]


def one_turns_worth(ended: list[Ended]) -> tuple[list[Ended], list[Ended]]:
    """Split outcomes into those that one turn stores and those that are left for the next."""
    characters = 0
    for number, (_, outcome) in enumerate(ended):
        if isinstance(outcome, Succeeded):
            characters += len(outcome.result)
            if characters > MOST_RESULTS and number:
                return ended[:number], ended[number:]
    return ended, []


def may_release(verdicts: Sequence[Judged]) -> bool:
    """True if other tasks may start because of these verdicts; a stopped task may have a successor."""
    return any(judged.stopped or judged.task.is_tied for judged in verdicts)


def judgements(ended: Sequence[Ended], now: int, steady: float, *, leaving: bool) -> list[Judged]:
    """Return the verdicts on ended attempts, in order. ``now`` and ``steady`` are the wall and the monotonic clock."""
    return [
        Judged(
            task=attempt.task,
            verdict=verdict_on(attempt, outcome, now, (ended_at := _ended_at(attempt, now, steady)), leaving=leaving),
            duration_ms=attempt.duration_ms,
            ended_at=ended_at,
            io=attempt.io_to_store,
            stopped=attempt.ends_task,
        )
        for attempt, outcome in ended
    ]


def _ended_at(attempt: Attempt, now: int, steady: float) -> int:
    """Return the wall-clock time at which the attempt ended, which may be long before its verdict is committed."""
    return now if attempt.ended_at is None else now - round((steady - attempt.ended_at) * 1000)


def waiting_again(verdicts: Sequence[Judged]) -> list[Claimed]:
    """Return the tasks that are in the queue as soon as these verdicts are committed."""
    return [judged.task for judged in verdicts if _waits_again(judged.verdict)]


def _waits_again(verdict: Verdict) -> bool:
    return isinstance(verdict, Return | TryAgain) and verdict.due_at is None


def verdict_on(attempt: Attempt, outcome: Outcome, now: int, ended_at: int, *, leaving: bool) -> Verdict:
    if isinstance(outcome, Stopped) and outcome.awaits_children:
        return Wait(None)
    task = attempt.task
    verdict = judge(
        outcome,
        retry=attempt.retry,
        retries=task.retries,
        crashes=task.crashes,
        now=now,
        random=_chance.random(),
        leaving=leaving,
    )
    if task.cron is not None and isinstance(verdict, TryAgain):
        # A cron task has a minimum delay, whatever the handler asked for. The delay counts from the failure.
        verdict = TryAgain(verdict.error, retry_at(ended_at, 0 if verdict.due_at is None else verdict.due_at - now))
    if not attempt.has_family:
        return verdict
    finalizes = attempt.type.handler.finalize is not None
    return family_verdict(verdict, task.family, finalizes=finalizes, spawned_now=attempt.spawned)
