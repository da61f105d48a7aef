"""Look around in a store of any size: pages of tasks, suggestions, activity, details, a preview of shares, machines.

Every answer is bounded: it costs about the same with a million tasks as with a hundred. Each method imports the classes
of its result when it is called, because most programs never call it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast, get_args

import msgspec

from taskmill.errors import ConfigError, TaskNotFound
from taskmill.model.controls import Change, Scope, ScopeKind
from taskmill.model.durations import Duration, from_ms, milliseconds
from taskmill.model.filters import FilterOptions, checked_filters
from taskmill.model.io_budget import MOST_BYTES, IoBudget
from taskmill.model.options import checked_id
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.settings import Group
from taskmill.model.status import Ending, Status
from taskmill.verbs.components import OpenStore, checked_text
from taskmill.verbs.reading import ReadMethods

if TYPE_CHECKING:
    from taskmill.model.browsing import (
        Activity,
        MachineSnapshot,
        PriorityStep,
        SpanOfHistory,
        SuggestField,
        TaskDetails,
        TaskPage,
        TaskSort,
    )
    from taskmill.model.controls import Controls
    from taskmill.model.snapshot import Snapshot
    from taskmill.policy.rules import Rules

MOST_STEPS = 500
SAMPLE = 2_000
"""The approximate number of tasks from which the times of an activity are computed."""


class BrowseMethods(ReadMethods[OpenStore]):
    """Methods that read a bounded amount and change nothing."""

    async def page(
        self,
        *,
        state: Status | Ending | Literal["active", "ended"] | str | None = None,
        sort: TaskSort = "newest",
        **filters: Unpack[FilterOptions],
    ) -> TaskPage:
        """Return one page of tasks, active and ended, newest or oldest first.

        ``state`` is a status, an ending, ``"active"`` or ``"ended"``. The order is by id; with an ending or ``"ended"``
        it is by the time of the end, unless tags, a key or a parent are given. ``limit`` is 100 unless it is given. A
        page searches at most 10,000 tasks.
        """
        from taskmill.model.browsing import MOST_ON_A_PAGE, MOST_SEARCHED, PageRequest

        self._opened()
        await self._store_beginnings()
        if sort not in ("newest", "oldest"):
            raise ConfigError(f"sort must be 'newest' or 'oldest', got {sort!r}")
        limit = filters.get("limit", 100)
        if not 1 <= _whole(limit, "limit") <= MOST_ON_A_PAGE:
            raise ConfigError(f"limit must be from 1 to {MOST_ON_A_PAGE:,}, got {limit}")
        part, status = _part(state, filters.pop("status", None))
        wanted = PageRequest(
            filters=checked_filters({**filters, "status": status, "limit": limit}),
            part=part,
            is_oldest_first=sort == "oldest",
            most_searched=MOST_SEARCHED,
        )
        found = await self._store.page(wanted)
        return msgspec.structs.replace(found, tasks=[self._with_live_progress(record) for record in found.tasks])

    async def suggest(self, field: SuggestField, prefix: str = "", *, limit: int = 20) -> list[str]:
        """Return values of a filter that begin with ``prefix``, in order.

        ``field`` is ``type``, ``domain``, ``group``, ``state``, ``key`` or ``tag``; for a tag the prefix is the
        beginning of its name, or ``name=`` and the beginning of its value.
        """
        from taskmill.model.browsing import MOST_SUGGESTED, SuggestField

        self._opened()
        if field not in get_args(SuggestField):
            raise ConfigError(f"field must be one of {', '.join(get_args(SuggestField))}; got {field!r}")
        if not 1 <= _whole(limit, "limit") <= MOST_SUGGESTED:
            raise ConfigError(f"limit must be from 1 to {MOST_SUGGESTED}, got {limit}")
        return await self._store.suggest(field, checked_text(prefix, "prefix") if prefix else "", limit)

    async def activity(self, period: Duration = "1h", *, steps: int = 60) -> Activity:
        """Return how many tasks ended in the last ``period``, and how long they waited and ran, in equal steps.

        Counts come from an index, times from a sample of the tasks that ended last in each step.
        """
        from taskmill.model.browsing import Activity, ActivityPoint
        from taskmill.policy.activity import known, percentile

        self._opened()
        length = milliseconds(period, "period")
        if not 1 <= _whole(steps, "steps") <= MOST_STEPS:
            raise ConfigError(f"steps must be from 1 to {MOST_STEPS}, got {steps}")
        step = length // steps
        if step < 1:
            raise ConfigError(f"period must be at least a millisecond for each of {steps} steps, got {period!r}")
        # Steps begin at multiples of their length, so that the points of a chart do not move with each answer.
        until = (self._clock.now_ms() // step + 1) * step
        spans = [(until - (n + 1) * step, until - n * step) for n in reversed(range(steps))]
        found = await self._store.activity(spans, max(20, SAMPLE // steps))

        def times(of: Sequence[SpanOfHistory]) -> dict[str, timedelta | None]:
            waits = known(wait for span in of for _, wait, _ in span.times)
            runs = known(run for span in of for _, _, run in span.times)
            return {
                f"{word}_{name}": None if (at := percentile(values, share)) is None else timedelta(milliseconds=at)
                for word, values in (("wait", waits), ("run", runs))
                for name, share in (("p50", 0.5), ("p95", 0.95))
            }

        ended: Counter[str] = Counter()
        for span in found:
            ended.update(span.ended)
        return Activity(
            since=from_ms(spans[0][0]),
            until=from_ms(until),
            step=timedelta(milliseconds=step),
            points=[
                ActivityPoint(at=from_ms(since), ended=span.ended, **times([span]))
                for (since, _), span in zip(spans, found, strict=True)
            ],
            ended=dict(ended),
            **times(found),
            sampled=sum(len(span.times) for span in found),
        )

    async def details(self, id: int) -> TaskDetails:
        """Return everything that is stored about a task: its saved state, its relations, how its priority grows."""
        from taskmill.model.browsing import TaskDetails

        self._opened()
        await self._store_beginnings()
        record = await self.get(checked_id(id))
        kept = await self._store.kept(record)
        if kept is None:
            raise TaskNotFound(f"no task has the id {id}")
        return TaskDetails(
            task=record,
            saved=kept.saved,
            priorities=await self._priorities(record, kept.aging),
            depends_on=kept.depends_on,
            dependents=kept.dependents,
            linked={each: self._with_live_progress(found) for each, found in kept.linked.items()},
            children=kept.children,
            same_key=kept.same_key,
            replaced=kept.replaced,
            replaced_by=kept.replaced_by,
            series_id=kept.series_id,
        )

    async def _priorities(
        self, record: TaskRecord | HistoryRecord, aging: tuple[int, int] | None
    ) -> list[PriorityStep]:
        from taskmill.model.browsing import PriorityStep
        from taskmill.policy.activity import priority_steps

        if aging is None or isinstance(record, HistoryRecord) or record.status is Status.RUNNING:
            return [PriorityStep(at=record.created_at, priority=record.effective_priority)]
        base, aged_from = aging
        rules = self._rules(await self._store.controls())
        steps = priority_steps(rules.declared.aging, base)
        return [PriorityStep(at=from_ms(aged_from + waited), priority=level) for waited, level in steps]

    async def preview(self, groups: Mapping[str, Group | Mapping[str, Any]]) -> Snapshot:
        """Return a snapshot with the shares that these settings of groups would give; nothing is changed.

        A group is given as a ``Group``, or as a mapping of the settings that change.
        """
        from taskmill.verbs.snapshots import groups_of

        self._opened()
        now = await self.snapshot()
        load = await self._store.load_of_groups()
        rules = self._changed_rules(load.controls, groups)
        rules = self._with_all_slots(rules, (await self._store.running_tasks())[1])
        unknown = await self._unknown(type for _, type in load.waiting)
        shares = groups_of(load, rules, self._clock.now_ms(), unknown)
        return msgspec.structs.replace(now, groups=shares, is_shared=rules.is_shared)

    def _changed_rules(self, controls: Controls, groups: Mapping[str, Group | Mapping[str, Any]]) -> Rules:
        from taskmill.policy.rules import Rules, changed, combined

        rules = self._rules(controls)
        changes = dict(controls.changes)
        for name, given in groups.items():
            change = _change(checked_text(name, "groups") if name else "", given)
            changed(rules.group(name), change)
            scope = Scope(ScopeKind.GROUP, name)
            changes[scope] = combined(changes.get(scope, Change()), change)
        return Rules(rules.declared, msgspec.structs.replace(controls, changes=changes))

    async def settings(self) -> Mapping[str, Any]:
        """Return the settings in effect: those of the dispatching program, with the changes made at run time."""
        self._opened()
        rules = self._rules(await self._store.controls())
        declared = rules.declared
        types = {*declared.rates, *_changed(rules.controls, ScopeKind.TYPE)}
        domains = {*declared.domain_caps, *_changed(rules.controls, ScopeKind.DOMAIN)}
        scopes = [Scope(ScopeKind.TYPE, name) for name in types]
        return {
            "max_concurrency": declared.max_concurrency,
            "default_group": declared.default_group,
            "groups": {name: rules.group(name) for name in sorted(rules.named_groups)},
            "aging": declared.aging,
            "preempt_at": declared.preempt_at,
            "domain_caps": {name: cap for name in sorted(domains) if (cap := rules.domain_cap(name)) is not None},
            "rates": {each.name: rate for each in sorted(scopes) if (rate := rules.rate(each)) is not None},
            "retention": self._retention,
        }

    async def machines(self) -> list[MachineSnapshot]:
        """Return the load and capacity of each dispatching node's machine, as far as it measures them."""
        from taskmill.model.browsing import MachineSnapshot

        self._opened()
        machine_watch = self._machine_watch
        watch = None if machine_watch is None else machine_watch.watch
        reading = None if watch is None else watch.reading
        pressures = await self._pressures()
        return [
            MachineSnapshot(
                node=each.node,
                is_here=each.is_here,
                pressures=pressures if each.is_here else each.machine.pressures,
                limits=[(limit.priority, limit.pressure) for limit in each.machine.limits],
                capacity=_budget(each.machine.capacity.rates),
                used=_budget(reading.rates) if each.is_here and reading is not None else None,
                cpu=reading.cpu if each.is_here and reading is not None else None,
            )
            for each in await self._machines()
        ]


def _changed(controls: Controls, kind: ScopeKind) -> list[str]:
    """Return the names of the scopes of a kind that were changed at run time."""
    return [scope.name for scope in controls.changes if scope.kind is kind]


def _budget(rates: tuple[float, float, float, float]) -> IoBudget | None:
    return IoBudget(*(min(int(rate), MOST_BYTES) for rate in rates)) if any(rates) else None


def _change(name: str, given: object) -> Change:
    """Return the settings of a group to try, checked as ``Group`` checks them."""
    if isinstance(given, Group):
        return Change(weight=given.weight, cap=given.cap, min_slots=given.min_slots, rate=given.rate)
    if not isinstance(given, Mapping):
        raise ConfigError(f"groups[{name!r}] must be a Group or a mapping of its settings, not {type(given).__name__}")
    settings = {str(key): value for key, value in cast("Mapping[object, Any]", given).items()}
    Group(**settings)
    return Change(**settings)


def _part(state: object, status: object) -> tuple[Literal["active", "ended"] | None, Any]:
    """Return whether active or ended tasks are asked for, and the status among them."""
    if state is not None and status is not None:
        raise ConfigError("state and status exclude each other; give one of them")
    word = state if state is not None else status
    if word is None:
        return None, None
    if word in ("active", "ended"):
        return ("active" if word == "active" else "ended"), None
    if word in [*Ending]:
        return "ended", word
    if word in [*Status]:
        return "active", word
    words = ", ".join(["active", "ended", *map(str, Status), *map(str, Ending)])
    raise ConfigError(f"state must be one of {words}; got {word!r}")


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be a whole number, not {type(value).__name__}")
    return value
