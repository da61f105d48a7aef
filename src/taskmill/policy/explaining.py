"""Explain why a task waits: every hold with its numbers, in the order in which they apply.

The rules are those of :mod:`taskmill.policy.holds`, by which the picker starts tasks, applied to one task.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from taskmill.model.attempt import StopReason
from taskmill.model.cluster import Demand
from taskmill.model.controls import EVERYTHING, Bucket, Scope, ScopeKind
from taskmill.model.durations import optional_from_ms
from taskmill.model.explanation import Explanation, Hold, Reason, Situation, Surroundings
from taskmill.model.machine import NodeMachine
from taskmill.model.records import HistoryRecord, TaskRecord, why_it_ended
from taskmill.model.settings import RateLimit
from taskmill.model.status import Status
from taskmill.model.type_name import domain_of
from taskmill.policy.aging import effective_priority, next_step_ms
from taskmill.policy.holds import beyond_share, holds_on_group, holds_on_type, out_of_slots, passes_shares
from taskmill.policy.io_room import IoLoad, IoRoom
from taskmill.policy.paused_time import Clocks, clocks
from taskmill.policy.pressure import holding_limit, pressure_hold
from taskmill.policy.rates import full_bucket, next_permit_at, permits_at
from taskmill.policy.rules import Rules
from taskmill.policy.shares import NO_SHARE, Share, allocate
from taskmill.policy.wording import clock_text, expected_text, group_text, plural, rate_text, span_text, when_text

_OWN_LIMITS: frozenset[Reason] = frozenset({"group_cap", "group_rate"})
_QUEUEING: frozenset[Reason] = frozenset({"slots", "share", "ahead", "group_cap", "domain_cap"})
"""Holds that end when other tasks end."""
_OPEN_ENDED: frozenset[Reason] = frozenset(
    {
        "no_dispatcher",
        "no_handler",
        "scheduler_paused",
        "domain_paused",
        "stopping",
        "series_paused",
        "pressure",
        "io",
    }
)
"""Holds whose end cannot be estimated."""
_ORDER: Sequence[Reason] = (
    "no_handler",
    "domain_paused",
    "group_paused",
    "group_cap",
    "domain_cap",
    "group_rate",
    "type_rate",
)
"""The order in which limits are listed."""
PROCESS_IS_GONE = "its process is gone; the task starts again when a scheduler dispatches"
EXPECTED = "Expected to start"
"""How the sentence about the estimated start begins."""
ENOUGH_ENDINGS = 5
"""The fewest recent endings from which a start is estimated."""


def explain(situation: Situation, around: Surroundings, rules: Rules, now: int) -> Explanation:
    shown = clocks(situation, rules, now)
    effective = effective_priority(rules.declared.aging, situation.urgency, shown.waited)
    holds = list(_holds(situation, around, rules, effective, now))
    start = _estimated_start(situation, around, rules, holds, now)
    is_pending = shown.status is Status.PENDING
    return Explanation(
        task_id=situation.id,
        status=shown.status,
        summary=_summary(situation, shown, holds, start, rules, effective, around, now),
        holds=holds,
        effective_priority=effective,
        ahead=around.ahead if is_pending else 0,
        ahead_is_exact=around.ahead_is_exact or not is_pending,
        expires_at=optional_from_ms(shown.expires_at),
        estimated_start=None if _is_only_a_bound(holds, around) else optional_from_ms(start),
    )


def about_ended(record: TaskRecord | HistoryRecord) -> Explanation:
    """Return the explanation of a task that waits for nothing, usually because it has ended."""
    if isinstance(record, HistoryRecord):
        why = why_it_ended(record)
        said = f"ended as {record.ending} at {record.ended_at:%Y-%m-%d %H:%M:%S} UTC{f': {why}' if why else ''}"
    else:
        said = f"is {record.status}"
    return Explanation(
        task_id=record.id,
        status=record.ending if isinstance(record, HistoryRecord) else record.status,
        summary=f"Task {record.id} ({record.type}) {said}.",
        holds=[],
        effective_priority=record.effective_priority,
        ahead=0,
        expires_at=record.expires_at,
        estimated_start=None,
    )


def _holds(situation: Situation, around: Surroundings, rules: Rules, effective: int, now: int) -> Iterator[Hold]:
    if situation.status is Status.RUNNING:
        if situation.stop is not None:
            yield Hold("stopping", f"it was asked to stop ({situation.stop}) and has not ended yet")
        if not around.is_dispatching:
            yield Hold("no_dispatcher", PROCESS_IS_GONE)
        return
    yield from _own_holds(situation, around.machines, now)
    pauses = list(_pauses(situation, rules, now))
    yield from pauses
    if situation.status is not Status.PENDING or pauses:
        return
    if not around.is_dispatching:
        yield Hold("no_dispatcher", "no scheduler runs the tasks of this store now")
    seen = _Seen(around.running, rules.at(now), now, around.unknown_types)
    limits = list(_limits(situation, seen))
    yield from limits
    yield from _machine(around, effective)
    # A group at a limit of its own gets no share, which holds it back no further.
    may_share = _OWN_LIMITS.isdisjoint(hold.reason for hold in limits)
    yield from _competition(situation, around, seen, effective, may_share=may_share)


def _own_holds(situation: Situation, machines: Sequence[NodeMachine], now: int) -> Iterator[Hold]:
    if situation.stop is not None:
        failed = situation.stop == StopReason.FAIL
        why = "one of its children has failed" if failed else f"it was asked to stop ({situation.stop})"
        yield Hold("stopping", f"{why}, and it ends when its descendants and its hook are done")
    if situation.dependencies:
        tasks = plural(len(situation.dependencies), "task that has", "tasks that have")
        ids = ", ".join(map(str, situation.dependencies[:5])) + (", …" if len(situation.dependencies) > 5 else "")
        yield Hold("dependency", f"it depends on {tasks} not ended: {ids}")
    if situation.gate_id is not None:
        yield Hold("replaced_task", f"task {situation.gate_id}, which it replaces or follows, has not ended yet")
    if situation.held:
        parent = f"task {situation.parent_id}"
        most = plural(situation.max_siblings or 1, "child", "children")
        yield Hold("siblings", f"{parent} lets at most {most} into the queue at once")
    if situation.status is Status.WAITING and situation.children:
        yield Hold("children", f"{plural(situation.children, 'child has', 'children have')} not ended yet")
    if situation.status is Status.SCHEDULED and situation.due_at is not None:
        what = "is tried again" if situation.attempt and situation.last_error else "is due"
        yield Hold("not_due", f"it {what} {when_text(situation.due_at, now)}")
    if situation.preempted and situation.status is Status.PAUSED:
        yield Hold("preempted", _why_away(machines, for_pressure=situation.preempted == 2))
    if situation.status is Status.PAUSED and situation.series_paused:
        yield Hold("series_paused", "its recurring series is paused")


def _why_away(machines: Sequence[NodeMachine], *, for_pressure: bool) -> str:
    if not for_pressure:
        return "it was preempted for a more urgent task and returns when no such task waits or runs"
    easing = [each.machine for each in machines if each.machine.returns_below is not None]
    if len(easing) < len(machines) or not easing:
        return "it was preempted because of pressure, which has fallen, and returns to the queue"
    # It returns as soon as the pressure on one node allows it.
    machine = min(easing, key=lambda machine: max(machine.pressures.values(), default=0.0))
    name, pressure = max(machine.pressures.items(), key=lambda source: source[1], default=("no source", 0.0))
    until = f"returns when the pressure, now {pressure:.2f} ({name}), is at most {machine.returns_below or 0.0:.2f}"
    return f"it was preempted because of pressure and {until}"


_PAUSE_REASONS: Mapping[ScopeKind, Reason] = {
    ScopeKind.SCHEDULER: "scheduler_paused",
    ScopeKind.DOMAIN: "domain_paused",
    ScopeKind.GROUP: "group_paused",
}


def _pauses(situation: Situation, rules: Rules, now: int) -> Iterator[Hold]:
    for scope, pause in rules.pauses(situation.group, situation.type).items():
        if not pause.holds(now):
            continue
        what = "the scheduler" if scope == EVERYTHING else f"its {scope.kind} {scope.name!r}"
        if scope.kind is ScopeKind.GROUP:
            what = f"its {group_text(scope.name)}"
        until = "stays paused until it is resumed" if pause.until is None else f"resumes {when_text(pause.until, now)}"
        yield Hold(_PAUSE_REASONS[scope.kind], f"{what} has been paused since {clock_text(pause.since)} and {until}")


class _Seen(NamedTuple):
    """Slots and permits in use, from a snapshot of the store."""

    running: Counter[tuple[str, str]]
    rules: Rules
    at: int
    unknown_types: Collection[str] = ()

    def knows(self, type: str) -> bool:
        return type not in self.unknown_types

    def in_group(self, group: str) -> int:
        return sum(n for (name, _), n in self.running.items() if name == group)

    def in_domain(self, domain: str) -> int:
        return sum(n for (_, type), n in self.running.items() if domain_of(type) == domain)

    def permits(self, scope: Scope, limit: RateLimit) -> int:
        return permits_at(self._bucket(scope, limit), limit, self.at)

    def next_permit(self, scope: Scope, limit: RateLimit) -> int:
        return next_permit_at(self._bucket(scope, limit), limit, self.at)

    def _bucket(self, scope: Scope, limit: RateLimit) -> Bucket:
        return self.rules.controls.buckets.get(scope) or full_bucket(limit, self.at)


def _limits(situation: Situation, seen: _Seen) -> Iterator[Hold]:
    rules = seen.rules
    holds = (*holds_on_type(situation.type, rules, seen), *holds_on_group(situation.group, rules, seen))
    for held in sorted(holds, key=lambda held: _ORDER.index(held.reason)):
        scope = held.scope
        what = scope.name if scope.kind is ScopeKind.TYPE else f"its {scope.kind} {scope.name!r}"
        if scope.kind is ScopeKind.GROUP:
            what = f"its {group_text(scope.name)}"
        limit = rules.rate(scope) if scope.kind in (ScopeKind.GROUP, ScopeKind.TYPE) else None
        match held.reason:
            case "no_handler":
                yield Hold(held.reason, f"no handler for {scope.name} is registered in any scheduler that runs tasks")
            case "group_cap" | "domain_cap":
                most = plural(held.limit, "task", "tasks")
                yield Hold(held.reason, f"{what} runs {held.used} of at most {most}")
            case "group_rate" | "type_rate" if limit is not None:
                when = when_text(seen.next_permit(scope, limit), seen.at)
                rate = rate_text(limit)
                yield Hold(held.reason, f"the rate limit of {what} is {rate}; the next permit comes {when}")
            case _:
                pass  # _pauses explains pauses


def _machine(around: Surroundings, effective: int) -> list[Hold]:
    """Return the holds of the node with the fewest; there are none if one node could start the task."""
    none: list[Hold] = []
    return min((list(_on_machine(each, around, effective)) for each in around.machines), key=len, default=none)


def _on_machine(on: NodeMachine, around: Surroundings, effective: int) -> Iterator[Hold]:
    machine = on.machine
    limit = holding_limit(frozenset(machine.limits), effective)
    if limit is not None:
        yield pressure_hold(limit, machine.easing, machine.pressures)
    held = IoRoom(machine.capacity, IoLoad(around.budgets_on(on.node))).admit(around.budget)
    if held is not None:
        yield held.as_hold()


def _competition(
    situation: Situation, around: Surroundings, seen: _Seen, effective: int, *, may_share: bool
) -> Iterator[Hold]:
    rules, slots = seen.rules, seen.rules.declared.max_concurrency
    if out_of_slots(around.running.total(), slots) is not None:
        yield Hold("slots", "the only slot is taken" if slots == 1 else f"all {slots} slots are taken")
    if may_share and rules.is_shared and not passes_shares(effective, rules):
        share = share_of(situation.group, around, rules, seen.at).limit
        held = beyond_share(situation.group, seen.in_group(situation.group), share)
        if held is not None:
            group = group_text(situation.group)
            runs = plural(held.used, "task", "tasks")
            yield Hold("share", f"its {group} runs {runs}, and its share is {held.limit} of {slots} slots")
    if around.ahead:
        more_than = "" if around.ahead_is_exact else "more than "
        yield Hold("ahead", f"{more_than}{plural(around.ahead, 'task starts', 'tasks start')} before it")


def share_of(group: str, around: Surroundings, rules: Rules, now: int) -> Share:
    """Return the share of a group; a group without work has none."""
    shares = allocated(around.running, around.waiting, rules, now, around.unknown_types)
    return shares.get(group, NO_SHARE)


def allocated(
    running: Counter[tuple[str, str]],
    waiting: Counter[tuple[str, str]],
    rules: Rules,
    now: int,
    unknown_types: Collection[str],
) -> dict[str, Share]:
    """Return the share of every group that has work; ``running`` and ``waiting`` are by group and type."""
    busy = by_group(running)
    ready = _may_start(waiting, _Seen(running, rules.at(now), now, unknown_types))
    demands: dict[str, Demand] = {}
    for group in {*busy, *by_group(waiting)}:
        settings = rules.group(group)
        demands[group] = Demand(busy[group], ready[group], settings.weight, settings.cap, settings.min_slots)
    return allocate(rules.declared.max_concurrency, demands)


def by_group(load: Counter[tuple[str, str]]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for (group, _), n in load.items():
        counted[group] += n
    return counted


def _may_start(waiting: Counter[tuple[str, str]], seen: _Seen) -> Counter[str]:
    """Count the tasks of each group that only need a slot; tasks held back for other reasons get no share."""
    ready: Counter[str] = Counter()
    rules = seen.rules
    if rules.is_paused(EVERYTHING):
        return ready
    held = {type for _, type in waiting if next(holds_on_type(type, rules, seen), None) is not None}
    for (group, type), n in waiting.items():
        if type not in held and not rules.is_paused(Scope(ScopeKind.GROUP, group)):
            ready[group] += n
    for group in ready:
        rate = rules.group(group).rate
        if rate is not None:
            ready[group] = min(ready[group], seen.permits(Scope(ScopeKind.GROUP, group), rate))
    return ready


def _estimated_start(
    situation: Situation, around: Surroundings, rules: Rules, holds: Sequence[Hold], now: int
) -> int | None:
    reasons = {hold.reason for hold in holds}
    if situation.status is Status.SCHEDULED and reasons <= {"not_due"}:
        return situation.due_at
    if situation.status is not Status.PENDING:
        return None
    at = now
    if "group_paused" in reasons:
        until = rules.controls.pauses[Scope(ScopeKind.GROUP, situation.group)].until
        if until is None:
            return None
        at = until
    for reason, scope in (
        ("group_rate", Scope(ScopeKind.GROUP, situation.group)),
        ("type_rate", Scope(ScopeKind.TYPE, situation.type)),
    ):
        rate = rules.rate(scope)
        if reason in reasons and rate is not None:
            permit_at = _Seen(around.running, rules, now).next_permit(scope, rate)
            at = max(at, permit_at + around.ahead * rate.interval_ms // rate.permits)
    if reasons & _OPEN_ENDED:
        return None
    if reasons & _QUEUEING:
        count, first, last = around.recent
        if count < ENOUGH_ENDINGS or first is None or last is None or last <= first:
            return None
        return max(at, now + (around.ahead + 1) * (last - first) // (count - 1))
    return at


def _is_only_a_bound(holds: Sequence[Hold], around: Surroundings) -> bool:
    """True if the estimated start is too early, because more tasks are ahead than were counted."""
    return not around.ahead_is_exact and any(hold.reason == "ahead" for hold in holds)


def _summary(
    situation: Situation,
    shown: Clocks,
    holds: Sequence[Hold],
    start: int | None,
    rules: Rules,
    effective: int,
    around: Surroundings,
    now: int,
) -> str:
    status, expires_at = shown.status, shown.expires_at
    what = f"Task {situation.id} ({situation.type})"
    if status is Status.RUNNING:
        running = "has been running" if around.is_dispatching else "has been marked as running"
        since = f"{running} since {clock_text(situation.started_at or now)}, attempt {situation.attempt}"
        return f"{what} {since}" + "".join(f"; {hold.detail}" for hold in holds) + "."
    what += f" is {status}"
    parts = [what + (": " + "; ".join(hold.detail for hold in holds) if holds else " and may start at once")]
    priority = f"priority {effective}"
    if effective != situation.priority:
        priority += f" (its own is {situation.priority})"
    aging = rules.declared.aging
    if aging is not None and status is Status.PENDING:
        step = next_step_ms(aging, situation.urgency, shown.waited)
        if step is not None:
            priority += f", more urgent {when_text(now + step - shown.waited, now)}"
    parts.append(priority)
    if (
        rules.is_shared
        and status is Status.PENDING
        and not any(hold.reason == "share" or hold.reason in _OWN_LIMITS for hold in holds)
    ):
        share, slots = share_of(situation.group, around, rules, now).slots, rules.declared.max_concurrency
        parts.append(f"the share of its {group_text(situation.group)} is {share} of {plural(slots, 'slot', 'slots')}")
    if expires_at is not None and not situation.interrupted:
        when = f"{span_text(expires_at - now)} after it resumes" if shown.stand_still else when_text(expires_at, now)
        parts.append(f"expires {when} unless it starts before")
    if start is not None and holds:
        is_guess = _QUEUEING.intersection(hold.reason for hold in holds)
        basis = f", estimated from the last {around.recent[0]} tasks that ended" if is_guess else ""
        not_before = "no earlier than " if _is_only_a_bound(holds, around) else ""
        parts.append(f"{EXPECTED.lower()} {not_before}{expected_text(start, now)}{basis}")
    return ". ".join(part[0].upper() + part[1:] for part in parts) + "."
