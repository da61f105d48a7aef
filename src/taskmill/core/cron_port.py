"""The part of the ``Store`` port that cron uses, with its values.

The task row of a firing (its status, attempts and retry) is the source of truth. The stored state of the cron task
follows it, in the same transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from taskmill.model.commit import Commit
    from taskmill.model.cron import CronState
    from taskmill.model.task import NewTask
    from taskmill.policy.cron.expression import CronExpression
    from taskmill.policy.cron.registrations import Difference, Registration


class CronDeclaration(NamedTuple):
    """A declared cron task, with the type, payload and options of its firings."""

    registration: Registration
    type: str
    payload: str
    overrides: str | None
    options: str | None = None
    """Options for other processes that fire it, as JSON."""


class CronBeginning(NamedTuple):
    """The result of reconciling the declarations with the store."""

    states: Sequence[CronState]
    difference: Difference
    commit: Commit


class Occasion(NamedTuple):
    """A cron task that may be due, and the task that it would fire."""

    name: str
    expression: CronExpression
    task: NewTask


class Fired(NamedTuple):
    """An occurrence that was fired, and its task."""

    name: str
    occurrence: int
    id: int
    task: NewTask


class Firings(NamedTuple):
    """The result of firing: fired occurrences, those left to another task, and the new states."""

    fired: Sequence[Fired]
    left: Sequence[tuple[str, str]]
    """Cron tasks whose occurrence another task already covers, with the reason."""
    states: Sequence[CronState]
    forgotten: Sequence[str] = ()
    """Cron tasks that are no longer declared, because another node has declared a list without them."""


class CronRow(NamedTuple):
    """A cron task as it is stored."""

    state: CronState
    type: str
    task_id: int | None
    """The active firing, if any."""
    runs: int
    """How often it has fired."""


class CronStore(Protocol):
    """The storage of cron tasks."""

    async def begin_cron(self, declared: Sequence[CronDeclaration], now: int, zone: tzinfo) -> CronBeginning:
        """Replace the stored cron tasks with the declared ones, in one transaction. Nothing runs meanwhile."""
        ...

    async def fire_cron(self, occasions: Sequence[Occasion], now: int, zone: tzinfo) -> Firings:
        """Fire the occasions that are due; the tasks are reported to ``committed``."""
        ...

    async def run_cron(self, name: str, task: NewTask, now: int) -> Fired:
        """Fire a cron task beside its schedule; the task is reported to ``committed``.

        Raise ``TaskNotFound`` if there is no such cron task, ``DuplicateTask`` if it runs or is about to run.
        """
        ...

    async def cron_rows(self, names: Sequence[str] | None = None) -> list[CronRow]:
        """Return these cron tasks, or all, in the order of their declaration."""
        ...
