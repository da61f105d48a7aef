"""The answers of ``dry_run``, ``forecast`` and ``simulate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Generic, Literal, TypeVar

import msgspec

from taskmill.errors import TaskmillError, TaskNotFound
from taskmill.model.io_budget import IoBudget
from taskmill.model.options import checked_id

T = TypeVar("T")

Fate = Literal["inserted", "duplicate", "upgraded", "requeued", "superseded", "rejected"]
"""What would become of a submission."""

PhaseEnd = Literal["slots", "cap", "share", "dependency", "io", "rate", "due", "paused", "no_handler", "done"]
"""Why no further submission starts with a phase; ``done`` if none is left."""


class Range(msgspec.Struct, Generic[T], frozen=True):
    """Nine of ten samples are at or after ``p10``, half are at or before ``p50``, nine of ten at or before ``p90``.

    A part is ``None`` if it lies beyond the horizon.
    """

    p10: T | None
    p50: T | None
    p90: T | None


class ProjectedPhase(msgspec.Struct, frozen=True):
    """Submissions that would start together."""

    submissions: Sequence[int]
    """Their indexes in the list that was given."""
    ends: PhaseEnd
    """Why no further submission starts with them."""
    detail: str
    """The same as a sentence."""
    io: IoBudget
    """The bytes that they are expected to move."""


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of submissions. Nothing was stored."""

    outcomes: Sequence[Fate]
    """One word for each submission, in input order."""
    errors: Mapping[int, TaskmillError]
    """For each rejected submission, by its index: the exception that submitting it would raise."""
    phases: Sequence[ProjectedPhase]
    """The submissions that would start together, if nothing else were in the queue and all took equally long."""
    total_io: IoBudget
    """The bytes that they are expected to move."""
    estimated_duration: timedelta | None
    """How long they would take if nothing else were in the queue; ``None`` if some of them cannot start."""


class Outlook(msgspec.Struct, frozen=True):
    """When a task, or the tasks of a group, type or priority, start and end; ``None`` if not before the horizon."""

    start: Range[datetime] | None
    end: Range[datetime] | None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When the tasks of a queue will start and end, if nothing more is submitted."""

    empty_at: Range[datetime] | None
    """When every task that is active now has ended; ``None`` if not before the horizon."""
    groups: Mapping[str, Outlook]
    types: Mapping[str, Outlook]
    priorities: Mapping[int, Outlook]
    samples: int
    """The number of simulated futures."""
    notes: Sequence[str]
    """What the forecast had to assume."""
    tasks: Mapping[int, Outlook]
    """By task id."""

    def of(self, id: int) -> Outlook:
        """Return when a task starts and ends; raise ``TaskNotFound`` if it was not active."""
        if checked_id(id) not in self.tasks:
            raise TaskNotFound(f"task {id} was not active when the forecast was made")
        return self.tasks[id]


class Waits(msgspec.Struct, frozen=True):
    """How long tasks wait before they start."""

    groups: Mapping[str, Range[timedelta]]
    priorities: Mapping[int, Range[timedelta]]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated run of the queue."""

    starts: Mapping[int, datetime]
    """When each task starts first, in the order of the starts."""
    waits: Waits
    deadlines_missed: int
    """The number of tasks that expire before they start."""
    slots_used: float
    """The number of slots in use, on average, until the last task has ended."""
    io: IoBudget
    """The bytes that the started tasks are expected to move."""
    unstarted: int
    """The number of tasks that do not start before the horizon."""
    ends_at: datetime
    """When the last task ends, or the horizon."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The queue under the present settings, and under changed ones, with the same durations and failures."""

    before: Run
    after: Run
    is_exact: bool
    """True if the run begins with the exact state of the dispatcher; False if turns and permits are estimated."""
    notes: Sequence[str]
    """What the simulation had to assume."""
