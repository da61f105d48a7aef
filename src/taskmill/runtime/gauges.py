"""Read the gauges of a dispatcher from any thread, for the metrics.

Only copies of dicts and lists are read, each made in one step that the event loop cannot interrupt. Two copies may be a
moment apart. Nothing here calls the store or waits for the event loop, so a process can be watched while its loop or
its disk is stuck.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from taskmill.dispatch.front import LaneFront
from taskmill.model.controls import Scope
from taskmill.model.settings import Priority
from taskmill.model.task import Lane
from taskmill.observe.counters import MOST_NAMES, OTHER
from taskmill.policy.aging import NAMED_LEVELS, effective_priority
from taskmill.runtime.loop import DispatchLoop
from taskmill.runtime.machine_watch import Watch
from taskmill.runtime.settings import RunSettings

_LEVELS = tuple(reversed(NAMED_LEVELS))
LEVEL_NAMES = tuple(Priority(level).name.lower() for level in _LEVELS)
"""From the most to the least urgent."""


class GroupGauges(NamedTuple):
    """The gauges of one group with work on this node.

    ``waiting`` counts the tasks in the front of the queue; ``allocated`` is ``None`` if slots are not shared.
    """

    waiting: int
    taken: int
    allocated: int | None
    next_priority: int | None


class Gauges(NamedTuple):
    """The gauges of this process."""

    dispatching: bool
    slots: int
    slots_taken: int = 0
    running: Mapping[str, int] = {}
    """Running tasks by type."""
    running_levels: Mapping[str, int] = {}
    """Running tasks by the level of their effective priority."""
    next_levels: Mapping[str, int] = {}
    """Groups by the level of the effective priority of their next task."""
    groups: Mapping[str, GroupGauges] = {}
    """Groups with work. Beyond :data:`MOST_NAMES`, the least busy groups are summed up as one."""
    paused: Sequence[Scope] = ()
    pressures: Mapping[str, float] = {}
    """Pressure by source."""


def level_of(effective: int) -> str:
    """Return the most urgent named level that an effective priority has reached."""
    return LEVEL_NAMES[bisect_left(_LEVELS, effective)]


def read_gauges(settings: RunSettings, loop: DispatchLoop | None, watch: Watch | None, now: int) -> Gauges:
    if loop is None:
        return Gauges(dispatching=False, slots=settings.declared.max_concurrency)
    waiting = loop._waiting
    attempts = [*loop.attempts.open.copy().values(), *loop.attempts.lingering.copy()]
    groups = _groups(loop, now)
    heads = [each.next_priority for each in groups.values() if each.next_priority is not None]
    return Gauges(
        dispatching=True,
        slots=settings.declared.max_concurrency,
        slots_taken=len(attempts),
        running=Counter(attempt.task.type for attempt in attempts),
        running_levels=_by_level(attempt.task.effective for attempt in attempts),
        next_levels=_by_level(heads),
        groups=_summed_up(groups),
        paused=sorted(scope for scope, pause in waiting.picker.rules.controls.pauses.items() if pause.holds(now)),
        pressures=watch.pressures if watch is not None else {},
    )


def _by_level(priorities: Iterable[int]) -> dict[str, int]:
    return dict.fromkeys(LEVEL_NAMES, 0) | Counter(map(level_of, priorities))


def _groups(loop: DispatchLoop, now: int) -> dict[str, GroupGauges]:
    picker, front = loop._waiting.picker, loop._waiting._front
    rules = picker.rules
    taken = dict(loop.load.groups)
    waiting = {group: lanes.copy() for group, lanes in front.groups.copy().items()}
    shares = picker.shares.slots_by_group() if rules.is_shared else {}

    def heads(lanes: Mapping[Lane, LaneFront]) -> list[int]:
        return [
            effective_priority(rules.declared.aging, lane.urgency, now - place.aged_from)
            for lane, known in lanes.items()
            for place in known.places[:1]
        ]

    return {
        group: GroupGauges(
            waiting=sum(len(known.places) for known in waiting.get(group, {}).values()),
            taken=taken.get(group, 0),
            allocated=shares.get(group, 0) if rules.is_shared else None,
            next_priority=min(heads(waiting.get(group, {})), default=None),
        )
        for group in {**taken, **waiting, **shares}
    }


def _summed_up(groups: dict[str, GroupGauges]) -> dict[str, GroupGauges]:
    if len(groups) <= MOST_NAMES:
        return groups
    busiest = sorted(groups, key=lambda name: (-groups[name].taken, -groups[name].waiting, name))
    rest = [groups[name] for name in busiest[MOST_NAMES:]]
    allocated = [group.allocated for group in rest if group.allocated is not None]
    summed = GroupGauges(
        waiting=sum(group.waiting for group in rest),
        taken=sum(group.taken for group in rest),
        allocated=sum(allocated) if allocated else None,
        next_priority=min((group.next_priority for group in rest if group.next_priority is not None), default=None),
    )
    return {name: groups[name] for name in busiest[:MOST_NAMES]} | {OTHER: summed}
