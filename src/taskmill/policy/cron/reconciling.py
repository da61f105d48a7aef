"""What is declared against what is stored, when a cron scheduler starts.

The declarations win: new tasks get a state, changed ones keep their history under their new settings, and those no
longer declared are forgotten. A task that was running when its process died starts again at once. What is stored
about the future, by a clock that has been put back since, is moved to now; what has run is remembered.

Laws: the outcome has the declared tasks in their order and no other; reconciling again at the same instant changes
nothing; with nothing declared otherwise, nothing is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta, tzinfo
from typing import Any, NamedTuple

from msgspec.structs import replace

from taskmill.model.cron import CronState, RunOutcome, Stretch
from taskmill.policy.cron.decisions import crashed_too_often, new_state, under_another_expression
from taskmill.policy.cron.registrations import Registration
from taskmill.policy.verdicts import quarantined

REMEMBERED_AHEAD_MS = 24 * 60 * 60 * 1000
"""What has run by a clock that was ahead by less does not run again when its time comes."""


class Difference(NamedTuple):
    """What the declarations changed: names that came and went, and per changed setting ``name field from to``."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[Mapping[str, Any], ...] = ()

    @property
    def total(self) -> int:
        return len(self.added) + len(self.removed) + len(self.modified)

    def attributes(self) -> dict[str, Any]:
        """As they are given to a log record."""
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "modified": [dict(change) for change in self.modified],
            "total": self.total,
        }


class Reconciliation(NamedTuple):
    """What is to be stored in place of what was, in one transaction."""

    states: tuple[CronState, ...]
    difference: Difference
    orphans: tuple[str, ...]
    """Tasks that were running when their process died."""
    quarantined: tuple[str, ...]
    """Those of them that took their process down once too often: they wait for their next occurrence."""


def reconciled(
    stored: Mapping[str, CronState], registrations: Sequence[Registration], now: int, zone: tzinfo
) -> Reconciliation:
    """The states to go on with."""
    states: list[CronState] = []
    added: list[str] = []
    modified: list[Mapping[str, Any]] = []
    for one in registrations:
        known = stored.get(one.name)
        if known is None:
            added.append(one.name)
            states.append(new_state(one.name, one.expression, one.retry_delay_ms, now, zone))
            continue
        modified += _changes(known, one)
        ran = known.ran
        if known.expression != one.expression.text:
            ran = under_another_expression(ran, known.expression)
        settings = replace(known, expression=one.expression.text, retry_delay_ms=one.retry_delay_ms, ran=ran)
        states.append(_not_of_the_future(_restarted(settings, now), now))
    declared = {one.name for one in registrations}
    orphans = tuple(one.name for one in registrations if one.name in stored and stored[one.name].is_running)
    return Reconciliation(
        states=tuple(states),
        difference=Difference(tuple(added), tuple(sorted(stored.keys() - declared)), tuple(modified)),
        orphans=orphans,
        quarantined=tuple(
            state.name for state in states if state.name in orphans and state.last_outcome is RunOutcome.QUARANTINED
        ),
    )


def _changes(known: CronState, one: Registration) -> list[Mapping[str, Any]]:
    changes: list[Mapping[str, Any]] = []
    if known.expression != one.expression.text:
        changes.append(_change(one.name, "expression", known.expression, one.expression.text))
    if known.retry_delay_ms != one.retry_delay_ms:
        before, after = (timedelta(milliseconds=ms) for ms in (known.retry_delay_ms, one.retry_delay_ms))
        changes.append(_change(one.name, "retry_delay", before, after))
    return changes


def _change(name: str, field: str, before: object, after: object) -> Mapping[str, Any]:
    return {"name": name, "field": field, "from": before, "to": after}


def _restarted(state: CronState, now: int) -> CronState:
    """An orphan starts again at once, unless it has crashed too often: then its firing is over."""
    firing = state.firing
    if firing is None or firing.retry_at is not None:
        return state
    crashes = firing.crashes + 1
    if quarantined(crashes):
        return crashed_too_often(state)
    return replace(state, firing=replace(firing, crashes=crashes, retry_at=now), last_outcome=RunOutcome.INTERRUPTED)


def _not_of_the_future(state: CronState, now: int) -> CronState:
    """A clock that was ahead may have left instants that have yet to come; nothing waits for them.

    What ran then does not run again, unless it is far ahead: a clock that was wrong by a year would leave gaps that
    nobody understands a year later. Only what is still at work keeps its occurrence, wherever that is.
    """
    firing, horizon = state.firing, now + REMEMBERED_AHEAD_MS
    ran = [part._replace(last=min(part.last, horizon)) for part in state.ran if part.first <= horizon]
    if firing is not None:
        if firing.occurrence > horizon:
            ran.append(Stretch(firing.occurrence, firing.occurrence))
        if firing.retry_at is not None:
            firing = replace(firing, retry_at=_retry_from(state, firing.retry_at, now))
    return replace(
        state,
        since=min(state.since, now),
        ran=tuple(ran),
        firing=firing,
        last_attempt_at=_by(state.last_attempt_at, now),
        last_success_at=_by(state.last_success_at, now),
        last_failure_at=_by(state.last_failure_at, now),
    )


def _retry_from(state: CronState, retry_at: int, now: int) -> int:
    if state.last_outcome is RunOutcome.INTERRUPTED:
        return min(retry_at, now)
    if state.last_failure_at is None or state.last_failure_at <= now:
        return retry_at
    # The delay keeps its length: it began at a failure that now counts as of this moment.
    return retry_at - (state.last_failure_at - now)


def _by(at: int | None, now: int) -> int | None:
    return None if at is None else min(at, now)
