"""Decide when a cron task runs, compute its state after each event, and keep an agenda of cron tasks.

Only occurrences after ``since``, the start of the last attempt, count. If one or more have passed, the task runs once
for the latest of them, and a pending retry is dropped. Otherwise a retry runs when its instant has come. A running task
is never due. An occurrence that passes during a run is later than ``since``, so it is due when the run ends, however
it ends.

If the wall clock is set back, occurrences pass again. Those in ``ran`` do not run again; the others do. So nothing runs
twice, and nothing waits until the clock has caught up.

Laws: a running task is not due; each occurrence runs at most once; an idle task whose occurrence has come is due until
it runs; a retry comes no sooner than its delay, and no sooner than one second after the failure; ``next_moment`` is the
first moment at which ``due`` returns a value; a run by hand leaves the occurrences to come unchanged; checking an
agenda on which nothing is due takes constant time.
"""

import heapq
from collections.abc import Callable
from datetime import datetime, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from taskmill.errors import InvalidState
from taskmill.model.cron import CronState, Firing, RunOutcome, Stretch
from taskmill.model.durations import from_ms, to_ms
from taskmill.policy.cron.expression import CronExpression
from taskmill.policy.cron.instants import first_after, last_at
from taskmill.policy.cron.syntax import Fields

LONGEST_DELAY_MS = 60_000
"""The longest delay that a clock step or a suspended machine may cause."""
SHORTEST_RETRY_MS = 1_000
"""The shortest retry delay, so that a failing task without a delay does not spin."""
MOST_STRETCHES = 16
_MINUTE_MS = 60_000


class Reason(StrEnum):
    """Why a task starts."""

    OCCURRENCE = "occurrence"
    RETRY = "retry"
    RESTART = "restart"
    """The last run was interrupted."""
    BY_HAND = "by_hand"
    """It was requested by a caller, beside the schedule."""


class Due(NamedTuple):
    """A cron task must start now, for the latest passed occurrence or for the one that has not yet succeeded."""

    reason: Reason
    occurrence: int

    @property
    def fires(self) -> bool:
        """True if the occurrence is new; retries and restarts belong to one that was announced before."""
        return self.reason in (Reason.OCCURRENCE, Reason.BY_HAND)


def new_state(name: str, expression: CronExpression, retry_delay_ms: int, now: int, zone: tzinfo) -> CronState:
    """Return the state of a new cron task: it runs now if the current minute matches, else at its next occurrence."""
    latest = _previous(expression, now, zone)
    matches_now = latest is not None and now - latest < _MINUTE_MS
    return CronState(
        name=name,
        expression=expression.text,
        retry_delay_ms=retry_delay_ms,
        since=latest - 1 if matches_now and latest is not None else now,
    )


def due(state: CronState, expression: CronExpression, now: int, zone: tzinfo) -> Due | None:
    """Return why the task must start now, or ``None``."""
    if state.is_running:
        return None
    occurrence = _latest_passed(state, expression, now, zone)
    if occurrence is not None:
        return Due(Reason.OCCURRENCE, occurrence)
    firing = state.firing
    if firing is None or firing.retry_at is None or firing.retry_at > now:
        return None
    was_cut_short = state.last_outcome is RunOutcome.INTERRUPTED
    return Due(Reason.RESTART if was_cut_short else Reason.RETRY, firing.occurrence)


def next_moment(state: CronState, expression: CronExpression, zone: tzinfo) -> int | None:
    """Return when the task will be due if nothing changes; ``None`` while it runs, because its end decides that."""
    if state.is_running:
        return None
    at = _next(expression, state.since, zone)
    while at is not None and (stretch := _stretch_with(state.ran, at, zone)) is not None:
        at = _next(expression, stretch.last if stretch.by is None else at, zone)
    moments = [moment for moment in (at, state.retry_at) if moment is not None]
    return min(moments, default=None)


def next_occurrence(state: CronState, expression: CronExpression, zone: tzinfo) -> int | None:
    """Return when the task will fire if nothing changes, ignoring retries."""
    return None if state.is_running else next_moment(replace(state, firing=None), expression, zone)


def started(state: CronState, expression: CronExpression, why: Due, now: int, zone: tzinfo) -> CronState:
    """Return the state after a start: this run covers every occurrence up to now, unless it is a run by hand."""
    if not why.fires:
        return attempted_again(state, now)
    if why.reason is Reason.BY_HAND:
        return replace(state, firing=Firing(occurrence=why.occurrence, by_hand=True), last_attempt_at=now)
    ran = _with(state.ran, expression, why.occurrence, zone)
    return replace(state, since=now, ran=ran, firing=Firing(occurrence=why.occurrence), last_attempt_at=now)


def attempted_again(state: CronState, now: int) -> CronState:
    """Return the state after a retry or a restart has begun."""
    firing = _firing_of(state)
    firing = replace(firing, attempt=firing.attempt + 1, retry_at=None)
    since = state.since if firing.by_hand else now
    return replace(state, since=since, firing=firing, last_attempt_at=now)


def claimed(state: CronState, now: int) -> CronState:
    """Return the state after a run that waited for a slot has begun; it also covers occurrences passed meanwhile."""
    since = state.since if _firing_of(state).by_hand else max(state.since, now)
    return replace(state, since=since, last_attempt_at=now)


def succeeded(state: CronState, now: int) -> CronState:
    """Return the state after a success, which ends the firing and clears any retry."""
    return replace(state, firing=None, last_success_at=now, last_outcome=RunOutcome.SUCCEEDED)


def failed(state: CronState, now: int, delay_ms: int | None = None) -> CronState:
    """Return the state after a failure: the firing is retried unless an occurrence comes first.

    ``delay_ms`` is the delay that the handler asked for, if any.
    """
    at = retry_at(now, state.retry_delay_ms if delay_ms is None else delay_ms)
    return _again(replace(state, last_failure_at=now, last_outcome=RunOutcome.FAILED), at)


def retry_at(now: int, delay_ms: int) -> int:
    """Return when a firing that failed now is retried: never at once, whatever the delay."""
    return now + max(delay_ms, SHORTEST_RETRY_MS)


def gave_up(state: CronState, now: int) -> CronState:
    """Return the state after ``GiveUp``: no retry, the next occurrence runs."""
    return replace(state, firing=None, last_failure_at=now, last_outcome=RunOutcome.FAILED)


def crashed_too_often(state: CronState) -> CronState:
    """Return the state after too many crashes: the firing is over, the next occurrence runs."""
    return replace(state, firing=None, last_outcome=RunOutcome.QUARANTINED)


def cancelled(state: CronState) -> CronState:
    """Return the state after the firing was cancelled, running or waiting for a retry: the next occurrence runs."""
    return replace(state, firing=None, last_outcome=RunOutcome.CANCELLED)


def left_to_another(state: CronState) -> CronState:
    """Return the state after another task replaced the firing, which never starts; the last outcome stays."""
    return replace(state, firing=None)


def interrupted(state: CronState, now: int) -> CronState:
    """Return the state after an interrupted run: it restarts at the next ``initialize``, without using a retry."""
    return _again(replace(state, last_outcome=RunOutcome.INTERRUPTED), now)


def rewound(state: CronState, now: int, step: int) -> CronState:
    """Return the state after the wall clock was set back by ``step``, to ``now``.

    A retry is due at an instant of the wall clock. A step of more than a minute moves it, so that a step never delays
    it by more than a minute.
    """
    if state.firing is not None and state.firing.retry_at is not None and step > LONGEST_DELAY_MS:
        state = _again(state, state.firing.retry_at - step)
    return replace(state, since=min(state.since, now))


def _again(state: CronState, retry_at: int) -> CronState:
    return replace(state, firing=replace(_firing_of(state), retry_at=retry_at))


def _firing_of(state: CronState) -> Firing:
    if state.firing is None:
        raise InvalidState(f"no run of cron task {state.name!r} is under way")
    return state.firing


def _latest_passed(state: CronState, expression: CronExpression, now: int, zone: tzinfo) -> int | None:
    """Return the latest occurrence that has come and has not run."""
    if now <= state.since:
        return None
    at = _previous(expression, now, zone)
    while at is not None and at > state.since:
        stretch = _stretch_with(state.ran, at, zone)
        if stretch is None:
            return at
        at = _previous(expression, (stretch.first if stretch.by is None else at) - 1, zone)
    return None


def _stretch_with(ran: tuple[Stretch, ...], at: int, zone: tzinfo) -> Stretch | None:
    # Backwards, because the match is nearly always the last.
    for stretch in reversed(ran):
        if stretch.first <= at <= stretch.last and (stretch.by is None or _matches(stretch.by, at, zone)):
            return stretch
    return None


def under_another_expression(ran: tuple[Stretch, ...], before: str) -> tuple[Stretch, ...]:
    """Mark stretches that ran under the former expression ``before``.

    Inside such a stretch the new expression may have occurrences that have not run.
    """
    marked = [stretch._replace(by=before) if stretch.by is None else stretch for stretch in ran]
    return tuple(marked[-MOST_STRETCHES:])


def _with(ran: tuple[Stretch, ...], expression: CronExpression, at: int, zone: tzinfo) -> tuple[Stretch, ...]:
    """Return ``ran`` with this occurrence added; stretches with no occurrence between them are joined."""
    if _stretch_with(ran, at, zone) is not None:
        return ran
    of_old = [stretch for stretch in ran if stretch.by is not None]
    before = [stretch for stretch in ran if stretch.by is None and stretch.last < at]
    after = [stretch for stretch in ran if stretch.by is None and stretch.first > at]
    added = Stretch(at, at)
    if before and _next(expression, before[-1].last, zone) == at:
        added = Stretch(before.pop().first, at)
    if after and _next(expression, at, zone) == after[0].first:
        added = Stretch(added.first, after.pop(0).last)
    joined = [*before, added, *after]
    if len(joined) > MOST_STRETCHES:
        # Too many to store: join the oldest two. Occurrences missed between them then count as run, which is better
        # than running one twice.
        joined[:2] = [Stretch(joined[0].first, joined[1].last)]
    return (*of_old, *joined)


def _matches(text: str, at: int, zone: tzinfo) -> bool:
    return _parsed(text).matches(from_ms(at).astimezone(zone))


_parsed = lru_cache(maxsize=64)(CronExpression.parse)


def _next(expression: CronExpression, after: int, zone: tzinfo) -> int | None:
    return _occurrence(first_after, expression, after, zone)


def _previous(expression: CronExpression, at: int, zone: tzinfo) -> int | None:
    return _occurrence(last_at, expression, at, zone)


def _occurrence(
    search: Callable[[Fields, datetime], datetime | None], expression: CronExpression, at: int, zone: tzinfo
) -> int | None:
    try:
        found = search(expression.fields, from_ms(at).astimezone(zone))
    except OverflowError:
        return None  # beyond the range of datetime
    return None if found is None else to_ms(found)


class Agenda:
    """Holds at most one moment per name; putting a name again replaces its moment."""

    __slots__ = ("_heap", "_moments")

    def __init__(self) -> None:
        self._moments: dict[str, int] = {}
        # Entries that differ from `_moments` are stale; they are dropped when they reach the top.
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._moments)

    def __contains__(self, name: str) -> bool:
        return name in self._moments

    def put(self, name: str, moment: int | None) -> None:
        """Set the moment of a name; ``None`` removes the name."""
        if moment is None:
            self._moments.pop(name, None)
            return
        if self._moments.get(name) == moment:
            return
        self._moments[name] = moment
        heapq.heappush(self._heap, (moment, name))
        if len(self._heap) > 2 * len(self._moments) + 64:
            self._heap = [(at, who) for who, at in self._moments.items()]
            heapq.heapify(self._heap)

    def earliest(self) -> int | None:
        """Return the earliest moment; ``None`` if the agenda is empty."""
        heap = self._heap
        while heap and self._moments.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now: int, most: int | None = None) -> list[str]:
        """Remove and return at most ``most`` names whose moment has come, earliest first."""
        taken: list[str] = []
        while len(taken) != most and (at := self.earliest()) is not None and at <= now:
            _, name = heapq.heappop(self._heap)
            del self._moments[name]
            taken.append(name)
        return taken
