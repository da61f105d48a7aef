"""What an explanation says about the future: when a waiting task starts, and which changes would help it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import get_args

import msgspec

from taskmill.model.durations import to_ms
from taskmill.model.explanation import Explanation, Hold, Reason, Remedy, WhenStarted
from taskmill.model.looking_ahead import Range
from taskmill.model.queue_state import WholeQueue
from taskmill.policy.explaining import EXPECTED
from taskmill.policy.rules import Rules
from taskmill.policy.wording import expected_text, rough_text
from taskmill.simulation.remedies import REMEDIABLE, starting_in_time, starting_now
from taskmill.simulation.trials import Trials, WorkLimitReached

NARROW = 0.05
"""A range that is narrower than this fraction of the wait is left out of the text."""
EXPIRES = "Expected to expire before it starts"
SEARCH_ENDED = "The search for changes that would help ended early, because the queue is long"


class Foreseen(msgspec.Struct):
    """What simulations of a queue say about one of its tasks."""

    start: Range[datetime] | None = None
    misses_deadline: bool = False
    remedies: list[Remedy] = msgspec.field(default_factory=list[Remedy])
    all_searched: bool = True
    """False if changes that would help may have been missed."""


def foresee(queue: WholeQueue, rules: Rules, id: int, holds: Sequence[Hold], zone: tzinfo) -> Foreseen:
    """Simulate the queue until a task starts, and try what would start it now or in time."""
    reasons: set[Reason] = {hold.reason for hold in holds}
    trials, found = Trials(queue, rules, id, zone), Foreseen()
    if id not in trials.beginning.tasks:
        return found
    try:
        if reasons and reasons <= REMEDIABLE:
            for remedy in starting_now(trials, reasons):
                found.remedies.append(remedy)
    except WorkLimitReached:
        found.all_searched = False
    if "pressure" in reasons or not trials.durations_are_known:
        return found
    try:
        found.start, found.misses_deadline = trials.expected_start()
    except WorkLimitReached:
        found.all_searched = found.all_searched and not trials.task.may_expire
    if not found.misses_deadline:
        return found
    known = [remedy.changes for remedy in found.remedies]
    try:
        for remedy in starting_in_time(trials):
            if remedy.changes not in known:
                found.remedies.append(remedy)
    except WorkLimitReached:
        found.all_searched = False
    return found


def with_forecast(explanation: Explanation, found: Foreseen, now: int) -> Explanation:
    """Return the explanation with a simulated start, in place of the estimated one, and with remedies."""
    said = explanation.summary.removesuffix(".").split(". ")
    if found.misses_deadline:
        said = [*_without_estimate(said), EXPIRES]
        explanation = msgspec.structs.replace(explanation, estimated_start=None, misses_deadline=True)
    elif (start := found.start) is not None and start.p50 is not None:
        said = [*_without_estimate(said), f"{EXPECTED} {expected_text(to_ms(start.p50), now)}{_likely(start, now)}"]
        explanation = msgspec.structs.replace(
            explanation, estimated_start=start.p50, earliest_start=start.p10, latest_start=start.p90
        )
    for when in get_args(WhenStarted):
        if texts := [remedy.text for remedy in found.remedies if remedy.starts == when]:
            said.append(f"It would start {when.replace('_', ' ')} with: {'; or '.join(texts)}")
    if not found.all_searched:
        said.append(SEARCH_ENDED)
    return msgspec.structs.replace(
        explanation, summary=". ".join(said) + ".", remedies=tuple(found.remedies), all_remedies=found.all_searched
    )


def not_searched(explanation: Explanation, most: int) -> Explanation:
    """Return the explanation of a task in a queue that is too long to be simulated."""
    summary = f"{explanation.summary} No change of settings was tried, because more than {most:,} tasks are active."
    return msgspec.structs.replace(explanation, summary=summary, all_remedies=False)


def _without_estimate(said: Sequence[str]) -> list[str]:
    return [part for part in said if not part.startswith(EXPECTED)]


def _likely(start: Range[datetime], now: int) -> str:
    """Return the range of a simulated start; empty if it is narrow."""
    low, middle, high = (None if at is None else to_ms(at) for at in (start.p10, start.p50, start.p90))
    if low is None or middle is None or (high is not None and high - low <= NARROW * (middle - now)):
        return ""
    earliest = "now" if low <= now else rough_text(low - now)
    if high is None:
        return f", most likely {earliest}{'' if low <= now else ' from now'} or much later"
    latest = rough_text(high - now)
    return "" if earliest == latest else f", most likely between {earliest} and {latest} from now"
