"""One type for each stage of a task's life inside the engine, so that finishing what nobody claimed cannot be written.

``NewTask`` (about to be stored) → a ``Place`` in a ``Lane`` of the queue → ``Claimed`` (an attempt with its token) →
an ``Outcome`` (:mod:`taskmill.model.outcome`) → a ``Verdict`` (:mod:`taskmill.model.verdict`).
All instants are milliseconds since the epoch.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from taskmill.model.io_budget import IoBudget
from taskmill.model.links import Links
from taskmill.model.outcome import StopReason
from taskmill.model.retry import Retry
from taskmill.model.status import Kind, OnDuplicate, Status


class NewTask(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row about to be written; the order of the fields is the order of the store's insert."""

    type: str
    key: str | None
    label: str | None
    group: str
    priority: int
    status: Status
    payload: str
    tags: dict[str, str] | None
    overrides: str | None
    created_at: int
    queued_at: int
    due_at: int | None
    due_is_relative: bool
    expires_at: int | None
    ttl_ms: int | None
    """A time-to-live that starts to run with the first attempt; ``expires_at`` follows from it then."""
    gate_id: int | None
    """The task whose attempt must have ended before this one may start."""
    stop: str | None
    on_duplicate: OnDuplicate
    links: Links | None = None
    """What ties it to other tasks, if anything does."""
    replaced: str | None = None
    """What the task that it replaces had saved."""
    io: str | None = None
    """Its budget as JSON, or ``learn``."""
    place_id: int | None = None
    """The task whose place in the queue it takes over."""


class Place(NamedTuple):
    """A waiting task's place among those of its lane: the longest waiting first, then by the id of the place."""

    queued_at: int
    place_id: int
    """The id of the task that had this place first, of which ``id`` is the last replacement; else its own."""
    id: int
    renewed_at: int | None = None
    """When its aging began anew, of a task that stands in the place of another."""
    io: str | None = None
    """Its budget as JSON, or ``learn``."""

    @property
    def aged_from(self) -> int:
        return self.queued_at if self.renewed_at is None else self.renewed_at


class Lane(NamedTuple):
    """The waiting tasks of one group, urgency and type.

    Inside a lane, older is never less urgent; tasks whose aging began anew are apart, or they would break that law.
    """

    group: str
    urgency: int
    type: str
    renewed: bool = False


class Waiting(NamedTuple):
    """A waiting task, ranked: smaller starts sooner."""

    effective: int
    """Its priority, grown by waiting, as of when it was ranked; its urgency before that."""
    queued_at: int
    place_id: int
    lane: Lane
    place: Place
    budget: IoBudget | None = None
    """What it is expected to read, write and send, if the machine's IO is watched."""
    by_share: bool = True
    """True if it starts by the share of its group, False if it is urgent enough to start beyond it."""

    @property
    def id(self) -> int:
        return self.place.id

    @property
    def group(self) -> str:
        return self.lane.group

    @property
    def type(self) -> str:
        return self.lane.type


def waiting(lane: Lane, place: Place) -> Waiting:
    """Rank a task by the urgency of its lane, before aging."""
    return Waiting(lane.urgency, place.queued_at, place.place_id, lane, place)


class Crossing(NamedTuple):
    """Tasks of a lane cross a line now if they began to wait in a span of time, its beginning excluded."""

    lane: Lane
    since: int
    until: int


class Stored(NamedTuple):
    """What became of one submission."""

    id: int
    kind: Kind
    replaced_id: int | None = None


class Family(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an attempt needs to know about the children of its task."""

    children: int
    """How many it had before this attempt."""
    finalizing: int
    """Whether the handler is done and it is ``finalize`` that runs."""
    result: str | None
    """What the handler returned."""


class Claimed(msgspec.Struct, array_like=True, gc=False):
    """A task with a live attempt. ``(id, attempt)`` is its token: without it nothing can be written."""

    id: int
    attempt: int
    type: str
    key: str | None
    label: str | None
    group: str
    priority: int
    payload: str
    tags: str | None
    overrides: str | None
    retries: int
    crashes: int
    created_at: int
    queued_at: int
    due_at: int | None
    expires_at: int | None
    started_at: int
    parent_id: int | None
    saved: str | None
    replaced: str | None
    stop: StopReason | None
    last_error: str | None
    urgency: int
    """The priority it runs at: its own, or that of a more urgent task which waits for it."""
    family: Family | None
    is_tied: int
    """Whether its ending concerns others: a parent, a series, a cron task, tasks that depend on it."""
    renewed_at: int | None
    """When its aging began anew, if it did."""
    place_id: int
    """The task whose place in the queue it has; else its own id."""
    io: str | None = None
    """Its budget as JSON, or ``learn``."""
    cron: str | None = None
    """The cron task it is a firing of, if any."""
    effective: int = 0
    """The priority it was started with: its urgency, grown by waiting."""
    budget: IoBudget | None = None
    """What it is expected to move, where anybody watches that."""

    @property
    def place(self) -> Place:
        return Place(self.queued_at, self.place_id, self.id, self.renewed_at, self.io)

    @property
    def lane(self) -> Lane:
        return Lane(self.group, self.urgency, self.type, self.renewed_at is not None)

    def shift(self, by_ms: int) -> None:
        """The wall clock was stepped."""
        self.queued_at += by_ms
        self.started_at += by_ms
        if self.renewed_at is not None:
            self.renewed_at += by_ms

    @property
    def finalizes(self) -> bool:
        return self.family is not None and bool(self.family.finalizing)


class Overrides(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the call said about running the task; stored with it, judged when it runs."""

    retry: Retry | None = None
    timeout_ms: int | None = -1
    fail_fast: bool | None = None


NO_OVERRIDES = Overrides()
"""``timeout_ms`` of -1 means the call said nothing; ``None`` means the call said no timeout."""


class Described(msgspec.Struct, frozen=True, array_like=True):
    """What events tell about a task that nobody has claimed."""

    id: int
    type: str
    key: str | None
    label: str | None
    group: str
    priority: int
    urgency: int
    tags: str | None
    created_at: int
    aged_from: int


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The attempt that spawns tasks, and how its type wants its children to be treated."""

    id: int
    attempt: int
    sibling: bool
    """True if the new tasks become children of its parent, not of itself."""
    fail_fast: bool
    max_children: int | None
    effective: int
    """The priority it was started with, which its children inherit."""
