"""Paused time: while a task is paused, its age and its deadline stand still.

A timed pause ends at its set time even if no process runs then. Paused time before the ``paused_at`` of a task is
settled: it was already added to the times of the task, or the task was running. So each pause is added once, whichever
process reaches the task first (docs/decisions/0022).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from taskmill.model.controls import Controls, Pause
from taskmill.model.status import Status
from taskmill.policy.rules import Rules


class Clocked(Protocol):
    """The stored fields from which the age and deadline of a task are computed."""

    @property
    def type(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def status(self) -> Status: ...
    @property
    def created_at(self) -> int: ...
    @property
    def started_at(self) -> int | None: ...
    @property
    def paused_at(self) -> int | None: ...
    @property
    def expires_at(self) -> int | None: ...
    @property
    def aged_from(self) -> int: ...
    @property
    def clock_from(self) -> int: ...


class Clocks(NamedTuple):
    """The status, waiting time and deadline of a task at one instant."""

    status: Status
    """``paused`` also for a pending task whose group, domain or scheduler is paused."""
    waited: int
    expires_at: int | None
    stand_still: bool


def clocks(task: Clocked, rules: Rules, now: int) -> Clocks:
    if task.status is Status.RUNNING:
        return Clocks(task.status, (task.started_at or now) - task.aged_from, task.expires_at, stand_still=False)
    controls = rules.controls
    if not controls.pauses and not controls.ended_pauses and task.status is not Status.PAUSED:
        return Clocks(task.status, now - task.aged_from, task.expires_at, stand_still=False)
    held = any(pause.holds(now) for pause in rules.pauses(task.group, task.type).values())
    pauses = pauses_of(rules, task.group, task.type, task.paused_at)
    if task.status is Status.PAUSED:
        pauses.append(Pause(task.created_at if task.paused_at is None else task.paused_at))
    expires_at = task.expires_at
    return Clocks(
        Status.PAUSED if task.status is Status.PENDING and held else task.status,
        now - task.aged_from - paused_ms(pauses, task.aged_from, now),
        None if expires_at is None else expires_at + paused_ms(pauses, task.clock_from, now),
        stand_still=held or task.status is Status.PAUSED,
    )


class MayExpire(Protocol):
    """The stored field of a task that may expire."""

    @property
    def may_expire(self) -> bool | int: ...


def has_expired(task: MayExpire, shown: Clocks, now: int) -> bool:
    """True if the task is past its deadline, even if it was not yet moved to history."""
    return bool(task.may_expire) and shown.expires_at is not None and shown.expires_at <= now


def owed_at_most(controls: Controls, now: int) -> int:
    """Return an upper bound of the paused time that ended pauses may still have to add to a task."""
    pauses = (*controls.pauses.values(), *(pause for _, pause in controls.ended_pauses))
    return sum(pause.until - pause.since for pause in pauses if pause.until is not None and pause.until <= now)


def pauses_of(rules: Rules, group: str, type: str, settled_at: int | None) -> list[Pause]:
    """Return the pauses that apply to this type and group, ended ones included, without the part settled before."""
    return [
        Pause(pause.since if settled_at is None else max(pause.since, settled_at), pause.until)
        for pause in (*rules.pauses(group, type).values(), *rules.owed(group, type))
    ]


class WaitingTimes(Clocked, Protocol):
    """The stored fields of a task whose times move when a pause has ended."""

    @property
    def queued_at(self) -> int: ...
    @property
    def renewed_at(self) -> int | None: ...


class Settled(NamedTuple):
    """The times of a task after ended pauses were added."""

    queued_at: int
    renewed_at: int | None
    expires_at: int | None
    paused_at: int
    """Paused time before this instant is settled now."""


def settled(task: WaitingTimes, rules: Rules) -> Settled | None:
    """Add the time of ended pauses to a task that does not run; return ``None`` if there is none to add.

    If another pause still holds the task, only the time before that pause is added; the rest follows when it ends.
    """
    return settled_all([task], rules)[0]


def settled_all(tasks: Iterable[WaitingTimes], rules: Rules) -> list[Settled | None]:
    """Return :func:`settled` of each task. What is owed to tasks that are alike is found once."""
    found: list[Settled | None] = []
    known: dict[tuple[str, str, int | None, int | None], list[Pause]] = {}
    for task in tasks:
        held_at = None
        if task.status is Status.PAUSED:
            held_at = task.created_at if task.paused_at is None else task.paused_at
        alike = task.group, task.type, task.paused_at, held_at
        owed = known.get(alike)
        if owed is None:
            owed = known[alike] = _owed(*alike, rules)
        found.append(_moved(task, owed) if owed else None)
    return found


def _owed(group: str, type: str, paused_at: int | None, held_at: int | None, rules: Rules) -> list[Pause]:
    """Return the ended pauses, as far as they lie after ``paused_at`` and before anything that holds the task now."""
    holding = [pause.since for pause in rules.pauses(group, type).values()]
    if held_at is not None:
        holding.append(held_at)
    held_since = min(holding, default=None)
    owed: list[Pause] = []
    for pause in rules.owed(group, type):
        since = pause.since if paused_at is None else max(pause.since, paused_at)
        until = pause.until if held_since is None or pause.until is None else min(pause.until, held_since)
        if until is not None and since < until:
            owed.append(Pause(since, until))
    return owed


def _moved(task: WaitingTimes, owed: Sequence[Pause]) -> Settled:
    """Move the times of a task by the pauses that it is owed."""
    end = max(pause.until for pause in owed if pause.until is not None)
    aged_from, clock_from = task.aged_from, task.clock_from
    waited = paused_ms(owed, aged_from, end)
    expires_at, renewed_at = task.expires_at, task.renewed_at
    if expires_at is not None:
        expires_at += waited if clock_from == aged_from else paused_ms(owed, clock_from, end)
    return Settled(
        task.queued_at + waited,
        None if renewed_at is None else renewed_at + paused_ms(owed, renewed_at, end),
        expires_at,
        end,
    )


def paused_ms(pauses: Iterable[Pause], since: int, now: int) -> int:
    """Return how long, between ``since`` and ``now``, at least one of the pauses was in force."""
    total, reached = 0, since
    for pause in sorted(pauses, key=lambda pause: pause.since):
        end = now if pause.until is None else min(pause.until, now)
        begin = max(pause.since, reached)
        if end > begin:
            total += end - begin
            reached = end
    return total
