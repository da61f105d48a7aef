"""The part of the ``Store`` socket that cron needs, and the values that pass through it.

What a task row says about running (its status, its attempts, its retry) is the truth about a firing; what is stored
about the cron task itself follows it, in the same transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from taskmill.model.cron import CronState
    from taskmill.model.effects import Effects
    from taskmill.model.stages import NewTask
    from taskmill.policy.cron.expression import CronExpression
    from taskmill.policy.cron.reconciling import Difference
    from taskmill.policy.cron.registrations import Registration


class CronDeclaration(NamedTuple):
    """A declared cron task, and what its firings have in common."""

    registration: Registration
    type: str
    payload: str
    overrides: str | None


class CronBeginning(NamedTuple):
    """What the declarations came to."""

    states: Sequence[CronState]
    difference: Difference
    effects: Effects


class Occasion(NamedTuple):
    """A cron task that may be due, and the task that it would fire."""

    name: str
    expression: CronExpression
    task: NewTask


class Fired(NamedTuple):
    """An occurrence that was fired as this task."""

    name: str
    occurrence: int
    id: int
    task: NewTask


class Firings(NamedTuple):
    """What became of occasions: what was fired, what was left to another task, and the states as they are now."""

    fired: Sequence[Fired]
    left: Sequence[tuple[str, str]]
    """Names whose occurrence another task stands for, and why."""
    states: Sequence[CronState]
    forgotten: Sequence[str] = ()
    """Names that are not declared any longer: another node has declared a list without them."""


class CronRow(NamedTuple):
    """A cron task as it is stored."""

    state: CronState
    type: str
    task_id: int | None
    """The firing at work, if any."""
    runs: int
    """How often it has fired."""


class CronStore(Protocol):
    """What is durable about cron tasks."""

    async def begin_cron(self, declared: Sequence[CronDeclaration], now: int, zone: tzinfo) -> CronBeginning:
        """Make the declared tasks those that exist, whole or not at all. Nothing runs meanwhile."""
        ...

    async def fire_cron(self, occasions: Sequence[Occasion], now: int, zone: tzinfo) -> Firings:
        """Fire those that are due; ``watch_added`` is told of the tasks."""
        ...

    async def cron_rows(self, names: Sequence[str] | None = None) -> list[CronRow]:
        """These cron tasks, or all, in the order of their declaration."""
        ...
