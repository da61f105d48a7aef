"""The shapes of changes of settings: tried in a simulation, and applied."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from taskmill.web.shapes.basic import MOST_LISTED, Body, PageAnswer, Text
from taskmill.web.shapes.groups import GroupBody, RateBody

Names = Annotated[Sequence[Text], Meta(max_length=MOST_LISTED)]


class ResumeBody(Body):
    """What to resume."""

    groups: Names = ()
    domains: Names = ()
    scheduler: bool = False


class ChangesBody(Body):
    """The changes of ``Scheduler.simulate`` and ``Scheduler.apply``; at least one is needed.

    The changes of a remedy have this shape.
    """

    max_concurrency: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    """The number of slots. It can be applied only by the scheduler that dispatches."""
    groups: Annotated[dict[Text, GroupBody], Meta(max_length=MOST_LISTED)] | UnsetType = UNSET
    """Settings of groups, by name."""
    rates: Annotated[dict[Text, RateBody | None], Meta(max_length=MOST_LISTED)] | UnsetType = UNSET
    """Rate limits of task types, by name; null removes the limit."""
    resume: ResumeBody | UnsetType = UNSET


class WaitComparison(PageAnswer):
    """How long the tasks of a group wait before they start, in seconds; null if none of them starts."""

    name: str
    wait_p50: float | None
    """Half of the tasks start within this time."""
    wait_p90: float | None
    new_wait_p50: float | None
    new_wait_p90: float | None


class SimulatedRun(PageAnswer):
    """One simulated run of the queue."""

    started: int
    unstarted: int
    """The tasks that do not start within 7 days."""
    deadlines_missed: int
    slots_used: float | None
    """The slots in use, on average until the last task ends; null if some do not start."""
    ends_at: datetime | None
    """When the last task ends; null if some do not start."""


class SimulationAnswer(PageAnswer):
    """The queue under the present settings and under changed ones, simulated. Nothing is changed."""

    before: SimulatedRun
    after: SimulatedRun
    groups: Sequence[WaitComparison]
    """At most 200: first the groups with changed settings, then those whose waits change most."""
    total: int
    """The number of groups."""
    is_exact: bool
    """True if the run begins with the exact state of the dispatcher."""
    notes: Sequence[str]
    """What the simulation had to assume."""


class ChangedSettings(PageAnswer):
    """What was changed."""

    names: Sequence[str]
