"""The shapes of lists of tasks, of one task, and of changes of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from taskmill import AttemptError, Explanation, PriorityStep
from taskmill.web.shapes.basic import MOST_CHANGED, AnyRecord, Body, Id, Limit, PageAnswer, Query, State, Text


class TaskFilters(Query):
    """Filters that select tasks; all of them must match."""

    type: Text | None = None
    """The full name of a task type: ``domain::task``."""
    domain: Text | None = None
    group: Text | None = None
    """A group; empty for ungrouped tasks."""
    state: State | None = None
    """A status, an ending, ``active`` or ``ended``; without it all tasks, by id."""
    tag: Annotated[list[Text], Meta(max_length=32)] = msgspec.field(default_factory=list[str])
    """A tag as ``name=value``; may be repeated."""
    key: Text | None = None
    parent: Id | None = None


class TaskQuery(TaskFilters):
    """Filters, order and place of a page of tasks."""

    sort: Literal["newest", "oldest"] = "newest"
    """By id; with an ending or ``ended`` as the state, by the time of the end."""
    limit: Limit = 50
    before: Id | None = None
    """Tasks before this one: older ones by id, or those that ended earlier."""
    after: Id | None = None


class TaskPageAnswer(PageAnswer):
    """A page of tasks. Each search is bounded: if ``is_complete`` is false, continue with ``next``.

    Records in lists have no tracebacks, and payloads and results of more than 4 KiB are left out.
    """

    tasks: Sequence[AnyRecord]
    next: int | None
    """The ``before`` of the following page (``after`` with ``sort=oldest``); null after the last page."""
    searched: int
    is_complete: bool


class SuggestQuery(Query):
    """What the user has typed so far."""

    field: Literal["type", "domain", "group", "state", "tag", "key"]
    prefix: Text = ""
    """For tags the beginning of a name, or a name and the beginning of its value: ``user=a``."""
    limit: Limit = 20


class SuggestAnswer(PageAnswer):
    """Values that begin with the prefix, in order. With ``redact``, keys and tags are never suggested."""

    values: Sequence[str]


class Moment(PageAnswer):
    """An entry of the timeline of a task."""

    at: datetime
    kind: Literal["submitted", "due", "started", "failed", "paused", "expires", "estimated_start", "ended"]
    text: str


class Link(PageAnswer):
    """Another task and how it is related: ``open`` is true while it is still waited for."""

    id: int
    open: bool
    task: AnyRecord | None
    """Null if it is no longer in history."""


class Equivalent(PageAnswer):
    """An action on the task, as a command line and as a request."""

    action: Literal["show", "why", "cancel", "retry", "priority"]
    command: str
    method: str
    path: str
    """Relative to the root of the page."""
    body: Mapping[str, Any] | None
    is_possible: bool
    """False if the state of the task does not allow it."""


class TaskAnswer(PageAnswer):
    """Everything about one task."""

    task: AnyRecord
    explanation: Explanation
    priorities: Sequence[PriorityStep]
    """The effective priority as a curve: each step holds until the next."""
    timeline: Sequence[Moment]
    saved: Mapping[str, Any] | None
    attempts: Sequence[AttemptError]
    """Failed attempts, the latest first, with tracebacks."""
    children: Sequence[AnyRecord]
    """At most 100; ``GET api/tasks?parent=`` has all."""
    children_counts: Mapping[str, int]
    depends_on: Sequence[Link]
    dependents: Sequence[Link]
    same_key: Sequence[AnyRecord]
    """The latest tasks of its type with its key, newest first."""
    superseded_by: int | None
    supersedes: int | None
    is_recurring: bool
    equivalents: Sequence[Equivalent]


class PriorityBody(Body):
    """The new priority, from 0 (most urgent) to 255."""

    priority: Annotated[int, Meta(ge=0, le=255)]


class ChangedAnswer(PageAnswer):
    """The tasks that were changed."""

    ids: Sequence[int]


class BulkFilters(Body):
    """The filters of ``GET api/tasks``; at least one is needed."""

    type: Text | None = None
    domain: Text | None = None
    group: Text | None = None
    state: State | None = None
    tags: Mapping[Text, Text] = {}
    key: Text | None = None
    parent: Id | None = None


class BulkBody(Body):
    """An action on the tasks with these ids, or on those that match the filters, at most 1,000 at once."""

    action: Literal["cancel", "retry", "priority"]
    ids: Annotated[list[Id], Meta(min_length=1, max_length=MOST_CHANGED)] | None = None
    filters: BulkFilters | None = None
    priority: Annotated[int, Meta(ge=0, le=255)] | None = None
    """The new priority, for the action ``priority``."""
    dry_run: bool = False
    """Only count the tasks, and change nothing."""


class SkippedTask(PageAnswer):
    """A task that was left as it is, and why."""

    id: int
    message: str


class BulkAnswer(PageAnswer):
    """What was changed or, with ``dry_run``, what would be."""

    count: int
    is_exact: bool
    """False if there are more: repeat the request."""
    ids: Sequence[int]
    skipped: Sequence[SkippedTask]
