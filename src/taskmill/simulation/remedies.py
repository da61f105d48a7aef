"""What would help a waiting task: the smallest changes that would start it now, and when it starts without any.

Law: every remedy was tried in a simulation, and started the task at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

import msgspec

from taskmill.model.controls import Scope, ScopeKind
from taskmill.model.durations import to_ms
from taskmill.model.explanation import Explanation, Hold, Reason, Remedy
from taskmill.model.looking_ahead import Range
from taskmill.model.queue_state import QueuedTask, WholeQueue
from taskmill.model.type_name import domain_of
from taskmill.policy.explaining import EXPECTED
from taskmill.policy.rules import Rules
from taskmill.policy.wording import group_text, plural, when_text
from taskmill.simulation.beginning import Beginning
from taskmill.simulation.changes import changed_rules, checked_changes
from taskmill.simulation.engine import Simulation
from taskmill.simulation.forecasting import NEVER, instants
from taskmill.simulation.luck import History
from taskmill.simulation.runs import DEFAULT_HORIZON_MS, notes

MOST_STARTS = 250
"""About how many starts all samples of one explanation simulate."""
LONG_MS = 10**9
"""So much service that a group is behind all others."""
MOST_MORE = 64
"""The most slots more that are tried."""
_SEED = 1

NARROW = 0.05
"""A range that is narrower than this part of the wait is not told."""
_REMEDIABLE: frozenset[Reason] = frozenset(
    {
        "group_paused",
        "domain_paused",
        "scheduler_paused",
        "group_cap",
        "group_rate",
        "type_rate",
        "slots",
        "share",
        "ahead",
    }
)
"""Holds that a change of settings can end."""


class Foreseen(NamedTuple):
    """When a task is expected to start, and what would start it now."""

    start: Range[datetime] | None = None
    remedies: Sequence[Remedy] = ()


def foresee(queue: WholeQueue, rules: Rules, id: int, holds: Sequence[Hold], zone: tzinfo) -> Foreseen:
    """Simulate the queue until a task starts, and try what would start it now."""
    reasons: set[Reason] = {hold.reason for hold in holds}
    beginning = Beginning(queue, rules)
    if id not in beginning.tasks:
        return Foreseen()
    start = None if "pressure" in reasons else _start(beginning, id, zone)
    if not reasons or not reasons <= _REMEDIABLE:
        return Foreseen(start)
    return Foreseen(start, list(_remedies(queue, rules, beginning.tasks[id], reasons)))


def _start(beginning: Beginning, id: int, zone: tzinfo) -> Range[datetime] | None:
    """Return the range of the start; None if the durations of some type are not known, or if it does not start."""
    history = History(beginning.queue.recent)
    if notes(beginning.queue, history):
        return None
    samples = min(max(MOST_STARTS // len(beginning.tasks), 3), 20)
    starts: list[int] = []
    for sample in range(samples):
        simulation = Simulation(beginning, history.with_seed(_SEED + sample), zone)
        simulation.run(beginning.now + DEFAULT_HORIZON_MS, wanted=id)
        starts.append(simulation.starts.get(id, NEVER))
    return instants(starts)


# Remedies


def _remedies(queue: WholeQueue, rules: Rules, task: QueuedTask, reasons: set[Reason]) -> Iterator[Remedy]:
    """Yield the smallest changes that start the task now, each of one kind as far as that is enough."""

    def starts(changes: dict[str, Any]) -> bool:
        changed = changed_rules(rules, checked_changes(changes, rules), queue.now)
        simulation = _first_turn(queue, changed)
        if task.id not in simulation.starts:
            return False
        # A dispatcher that has not heard of the change yet picks tasks that it must not start, which uses up the turns
        # of their groups. So the remedy must help even if the group of the task is the last to have a turn.
        buckets = queue.controls.buckets if queue.turns is None else queue.turns.buckets
        turns = msgspec.structs.replace(simulation.picker.turns(), buckets=buckets)
        turns.round_robin.had_turn(task.group)
        turns.virtual_time.charge(task.group, 1, 1, LONG_MS)
        return task.id in _first_turn(msgspec.structs.replace(queue, turns=turns), changed).starts

    needed = _unlocked(rules, task, reasons)
    base, words = dict[str, Any](), list[str]()
    for text, changes in needed:
        base.update(changes)
        words.append(text)
    if base and starts(base):
        yield Remedy(" and ".join(words), base)
        return

    def helps(cap: int, slots: int) -> bool:
        return starts({**base, **_larger(rules, task.group, cap, slots, base)[1]})

    has_cap = rules.group(task.group).cap is not None
    for more in _growing():
        # Of "one slot more" and "one slot and a larger cap" only the first is a smallest change.
        found = next((pair for pair in ((more, 0), (0, more), (more, more))[not has_cap :] if helps(*pair)), None)
        if found is None:
            continue
        cap, slots = found
        if cap and slots:
            slots = next(fewer for fewer in range(1, more + 1) if helps(cap, fewer))
            cap = next(fewer for fewer in range(1, more + 1) if helps(fewer, slots))
        text, changes = _larger(rules, task.group, cap, slots, base)
        yield Remedy(" and ".join([*words, text]), {**base, **changes})
        return


def _first_turn(queue: WholeQueue, rules: Rules) -> Simulation:
    simulation = Simulation(Beginning(queue, rules), History(queue.recent).with_seed(_SEED))
    simulation.turn()
    return simulation


def _larger(
    rules: Rules, group: str, more_cap: int, more_slots: int, base: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return a larger cap of the group, more slots, or both, in words and as changes."""
    words, changes = list[str](), dict[str, Any]()
    cap = rules.group(group).cap
    if more_cap and cap is not None:
        own = base.get("groups", {}).get(group, {})
        changes["groups"] = {group: {**own, "cap": cap + more_cap}}
        words.append(f"cap of {group_text(group)} from {cap} to {cap + more_cap}")
    if more_slots:
        changes["max_concurrency"] = rules.declared.max_concurrency + more_slots
        words.append(f"{plural(more_slots, 'slot', 'slots')} more")
    return " and ".join(words), changes


def _growing() -> Iterator[int]:
    """Yield the numbers to try: each up to 8, and then in larger steps."""
    yield from range(1, 9)
    more = 12
    while more <= MOST_MORE:
        yield more
        more = more * 3 // 2


def _unlocked(rules: Rules, task: QueuedTask, reasons: set[Reason]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the changes without which nothing else helps: resume what is paused, drop a rate that is used up."""
    resume: dict[str, Any] = {}
    if "scheduler_paused" in reasons:
        resume["scheduler"] = True
        yield "resume the scheduler", {"resume": resume}
    if "domain_paused" in reasons:
        resume["domains"] = [domain_of(task.type)]
        yield f"resume domain {domain_of(task.type)!r}", {"resume": resume}
    if "group_paused" in reasons:
        resume["groups"] = [task.group]
        yield f"resume {group_text(task.group)}", {"resume": resume}
    if "group_rate" in reasons:
        yield f"no rate limit of {group_text(task.group)}", {"groups": {task.group: {"rate": None}}}
    if "type_rate" in reasons and rules.rate(Scope(ScopeKind.TYPE, task.type)) is not None:
        yield f"no rate limit of {task.type}", {"rates": {task.type: None}}


# The explanation


def with_forecast(
    explanation: Explanation, start: Range[datetime] | None, remedies: Sequence[Remedy], now: int
) -> Explanation:
    """Return the explanation with a simulated start, in place of the estimated one, and with remedies."""
    summary = explanation.summary
    if start is not None and start.p50 is not None:
        said = [part for part in summary.removesuffix(".").split(". ") if not part.startswith(EXPECTED)]
        summary = ". ".join([*said, f"{EXPECTED} {when_text(to_ms(start.p50), now)}{_likely(start, now)}"]) + "."
        explanation = msgspec.structs.replace(
            explanation, estimated_start=start.p50, earliest_start=start.p10, latest_start=start.p90
        )
    if remedies:
        summary = f"{summary} It would start now with: {'; or '.join(map(str, remedies))}."
    return msgspec.structs.replace(explanation, summary=summary, remedies=remedies)


def _likely(start: Range[datetime], now: int) -> str:
    """Return the range of a simulated start; empty if it is narrow."""
    low, middle, high = (None if at is None else to_ms(at) for at in (start.p10, start.p50, start.p90))
    if low is None or middle is None or (high is not None and high - low <= NARROW * (middle - now)):
        return ""
    return f", most likely from {when_text(low, now)} to {'much later' if high is None else when_text(high, now)}"
