"""The shapes of groups, pauses and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from taskmill import GroupSnapshot, HistoryRecord, RateSnapshot
from taskmill.web.shapes.basic import MOST_LISTED, Body, Limit, PageAnswer, Query, Text
from taskmill.web.shapes.overview import Paused


class ListQuery(Query):
    """A list without filters."""

    limit: Limit = 100


class GroupListAnswer(PageAnswer):
    """Groups, those with the most running and waiting tasks first."""

    groups: Sequence[GroupSnapshot]
    total: int
    rates: Sequence[RateSnapshot]
    max_concurrency: int
    is_shared: bool


class RateBody(Body):
    """At most ``permits`` starts in ``interval`` seconds, and ``burst`` at once."""

    permits: Annotated[int, Meta(ge=1, le=1_000_000)]
    interval: Annotated[float, Meta(gt=0, le=31_536_000)] = 1.0
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class ShareBody(Body):
    """Settings of a group that decide its share; those left out stay as they are."""

    weight: Annotated[float, Meta(gt=0, le=1_000_000)] | UnsetType = UNSET
    cap: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType | None = UNSET
    """Null removes the cap."""
    min_slots: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET


class GroupBody(ShareBody):
    """Settings of a group; those left out stay as they are."""

    rate: RateBody | UnsetType | None = UNSET
    """Null removes the limit."""


class PreviewBody(Body):
    """Settings of groups to try."""

    groups: Annotated[dict[Text, ShareBody], Meta(min_length=1, max_length=MOST_LISTED)]


class SharePreview(PageAnswer):
    """The share of a group before and after a change."""

    name: str
    slots: int
    new_slots: int
    weight: float
    new_weight: float
    running: int
    pending: int


class PreviewAnswer(PageAnswer):
    """The shares under the changed settings, by the rule that dispatch uses. Nothing is changed."""

    groups: Sequence[SharePreview]
    max_concurrency: int
    is_shared: bool


class PauseBody(Body):
    """How long to pause; without it, until it is resumed."""

    duration: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None
    """Seconds."""


class PauseAnswer(PageAnswer):
    """What is paused now."""

    paused: Paused


# Schedules


class ScheduleEntry(PageAnswer):
    """A cron task or a recurring series."""

    id: str
    """Its name in paths: ``cron:NAME`` or ``series:TASK``."""
    kind: Literal["cron", "series"]
    name: str
    type: str
    key: str | None
    expression: str | None
    every: float | None
    """The interval of a series, in seconds."""
    words: str
    """The expression or the interval in words."""
    next_run: datetime | None
    last_run: datetime | None
    last_outcome: str | None
    recent: Sequence[HistoryRecord]
    """The latest ended runs of its task type, at most five."""
    task_id: int | None
    runs: int
    max_runs: int | None
    paused: bool


class ScheduleListAnswer(PageAnswer):
    """Cron tasks and recurring series."""

    schedules: Sequence[ScheduleEntry]
    total: int
