"""Check the cron tasks that a program declares, and reconcile them with the stored ones when a cron scheduler starts.

Nothing is stored before all are checked: each for its shape, name, handler, duplicate name, expression and delay, in
this order. The first mistake raises an error that names the position and the reason.

The declarations win: new tasks get a state, changed tasks keep their history under their new settings, and tasks no
longer declared are forgotten. A task that was running when its process died restarts at once. Stored instants in the
future, left by a clock that was set back since, are moved to now; the occurrences that ran are remembered.

Laws: the result has exactly the declared tasks, in their order; reconciling again at the same instant changes nothing;
without a changed declaration no difference is reported.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta, tzinfo
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from taskmill.errors import ConfigError, DuplicateRegistration, InvalidCronExpression, InvalidRegistration
from taskmill.model.cron import Cron, CronState, RunOutcome, Stretch
from taskmill.model.durations import milliseconds
from taskmill.model.options import LONGEST_TAG_VALUE
from taskmill.policy.cron.decisions import crashed_too_often, new_state, under_another_expression
from taskmill.policy.cron.expression import CronExpression
from taskmill.policy.verdicts import quarantined

_PARTS = 4
_SHAPE = "(name, expression, handler, retry_delay)"
Refusal = Callable[[object], str | None]
"""Returns why a handler cannot be a cron handler, or ``None``. Injected, because this layer does not know handlers."""


class Registration(NamedTuple):
    """A declared cron task that passed all checks."""

    name: str
    expression: CronExpression
    handler: Callable[..., Any]
    retry_delay_ms: int


def checked_registrations(registrations: object, refusal: Refusal) -> tuple[Registration, ...]:
    """Return all registrations, or raise an error about the first wrong one."""
    if not isinstance(registrations, list | tuple):
        raise ConfigError(f"registrations must be a list or tuple of Cron, not {type(registrations).__name__}")
    good: dict[str, Registration] = {}
    for index, given in enumerate(cast("Sequence[object]", registrations)):
        one = _checked(index, given, good, refusal)
        good[one.name] = one
    return tuple(good.values())


def _checked(index: int, given: object, earlier: dict[str, Registration], refusal: Refusal) -> Registration:
    name, expression, handler, retry_delay = _parts(index, given)
    wrong = _wrong_name(name)
    if wrong is not None:
        raise InvalidRegistration(index, name if isinstance(name, str) else None, wrong)
    name = cast("str", name)
    wrong = refusal(handler)
    if wrong is not None:
        raise InvalidRegistration(index, name, wrong)
    if name in earlier:
        raise DuplicateRegistration(name)
    try:
        read = CronExpression.parse(cast("str", expression))
    except InvalidCronExpression as error:
        raise InvalidRegistration(index, name, str(error)) from error
    try:
        retry_delay_ms = milliseconds(retry_delay, "retry_delay")
    except ConfigError as error:
        raise InvalidRegistration(index, name, str(error)) from error
    return Registration(name, read, cast("Callable[..., Any]", handler), retry_delay_ms)


def _parts(index: int, given: object) -> tuple[object, object, object, object]:
    if isinstance(given, Cron):
        return given.name, given.expression, given.handler, given.retry_delay
    if not isinstance(given, tuple):
        raise InvalidRegistration(index, None, f"must be a Cron or a tuple {_SHAPE}, not {type(given).__name__}")
    parts = cast("tuple[object, ...]", given)
    if len(parts) != _PARTS:
        raise InvalidRegistration(index, None, f"must have 4 parts {_SHAPE}, not {len(parts)}")
    name, expression, handler, retry_delay = parts
    return name, expression, handler, retry_delay


def _wrong_name(name: object) -> str | None:
    """Return why a name is not valid, or ``None``: it must be a valid tag value and part of a task type's name."""
    if not isinstance(name, str):
        return f"name must be text, not {type(name).__name__}"
    if not name.strip():
        return "name must not be empty"
    if "\0" in name:
        return "name must not contain the NUL character"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "name is not valid Unicode text"
    return f"name must not be longer than {LONGEST_TAG_VALUE} bytes" if size > LONGEST_TAG_VALUE else None


REMEMBERED_AHEAD_MS = 24 * 60 * 60 * 1000
"""Occurrences that ran while the clock was ahead by less than this do not run again when their time comes."""


class Difference(NamedTuple):
    """What the declarations changed: added names, removed names, and ``name field from to`` per changed setting."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    modified: tuple[Mapping[str, Any], ...] = ()

    @property
    def total(self) -> int:
        return len(self.added) + len(self.removed) + len(self.modified)

    def attributes(self) -> dict[str, Any]:
        """Return the difference as attributes of a log record."""
        return {
            "added": list(self.added),
            "removed": list(self.removed),
            "modified": [dict(change) for change in self.modified],
            "total": self.total,
        }


class Reconciliation(NamedTuple):
    """The new states, to be stored in one transaction."""

    states: tuple[CronState, ...]
    difference: Difference
    orphans: tuple[str, ...]
    """Tasks that were running when their process died."""
    quarantined: tuple[str, ...]
    """The orphans that have crashed too often: they wait for their next occurrence."""


def reconciled(
    stored: Mapping[str, CronState], registrations: Sequence[Registration], now: int, zone: tzinfo
) -> Reconciliation:
    """Return the states after reconciling, with what changed."""
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
    """Restart an orphan at once or, if it has crashed too often, end its firing."""
    firing = state.firing
    if firing is None or firing.retry_at is not None:
        return state
    crashes = firing.crashes + 1
    if quarantined(crashes):
        return crashed_too_often(state)
    return replace(state, firing=replace(firing, crashes=crashes, retry_at=now), last_outcome=RunOutcome.INTERRUPTED)


def _not_of_the_future(state: CronState, now: int) -> CronState:
    """Move instants in the future to now, so that nothing waits for a clock that was ahead.

    Occurrences that ran up to a day ahead do not run again. Further ones are forgotten: a clock wrong by a year would
    otherwise leave unexplained gaps a year later. Only a firing under way keeps its occurrence, however far ahead.
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
    # Keep the length of the delay: the failure that started it is moved to now as well.
    return retry_at - (state.last_failure_at - now)


def _by(at: int | None, now: int) -> int | None:
    return None if at is None else min(at, now)
