"""A task inside the engine: one type for each stage of its life, so that code cannot end a task it has not claimed.

``NewTask`` (about to be stored) → a ``Place`` in a ``Lane`` of the queue → ``Claimed`` (an attempt with its token) →
an ``Outcome`` → a ``Verdict`` (both in :mod:`taskmill.model.attempt`). All instants are milliseconds since the epoch.

The dispatcher holds up to 50,000 places in memory. Places, lanes and waiting tasks cannot be part of a reference cycle,
so the garbage collector does not track them (``gc=False``).
"""

from typing import NamedTuple

import msgspec

from taskmill.model.attempt import StopReason
from taskmill.model.io_budget import IoBudget
from taskmill.model.settings import Retry
from taskmill.model.status import OnDependencyFailure, OnDuplicate, OnParentExpiry, Status


class Links(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The connections of a new task. The order of the first five fields is that of the store's insert."""

    parent_id: int | None = None
    series_id: int | None = None
    on_dependency_failure: OnDependencyFailure | None = None
    on_parent_expiry: OnParentExpiry | None = None
    """``None`` means ``complete``."""
    held: bool = False
    """True if it waits until fewer of its siblings are in the queue."""
    depends_on: tuple[int | str, ...] = ()
    """Ids of tasks, or the ``ref`` names of submissions in the same request."""
    ref: str | None = None
    own_ttl: bool = False
    """True if its TTL comes from the call, the task type or the domain, and not from the scheduler's default."""
    every_ms: int | None = None
    max_runs: int | None = None


NO_LINKS = Links()


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a waiting task in its lane: the longest waiting first, then by the id of the place."""

    queued_at: int
    place_id: int
    """The id of the first task in this place, if ``id`` has replaced it; otherwise the task's own id."""
    id: int
    renewed_at: int | None = None
    """When its aging restarted, if it has taken the place of another task."""
    io: str | None = None
    """Its budget as JSON, or ``learn``."""

    def __lt__(self, other: "Place") -> bool:
        # msgspec's own order compares the last fields of equal values, and None has no order.
        return (self.queued_at, self.place_id, self.id) < (other.queued_at, other.place_id, other.id)

    @property
    def aged_from(self) -> int:
        return self.queued_at if self.renewed_at is None else self.renewed_at


class Lane(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The waiting tasks of one group, urgency and type.

    Inside a lane, a task that has waited longer is never less urgent. Tasks whose aging restarted would break that law,
    so they have lanes of their own.
    """

    group: str
    urgency: int
    type: str
    renewed: bool = False


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
    """A time-to-live that counts from the first attempt, which sets ``expires_at``."""
    gate_id: int | None
    """The task whose attempt must have ended before this one may start."""
    stop: str | None
    on_duplicate: OnDuplicate
    links: Links | None = None
    """Its connections to other tasks, if it has any."""
    replaced: str | None = None
    """The state that the task it replaces had saved."""
    io: str | None = None
    """Its budget as JSON, or ``learn``."""
    place_id: int | None = None
    """The task whose place in the queue it takes over."""

    @property
    def _renewed_at(self) -> int | None:
        # A replacement keeps an older place in the queue, but its aging starts now.
        return self.created_at if self.queued_at < self.created_at else None

    @property
    def lane(self) -> Lane:
        return Lane(self.group, self.priority, self.type, self._renewed_at is not None)

    def place(self, id: int) -> Place:
        return Place(self.queued_at, self.place_id or id, id, self._renewed_at, self.io)


class Waiting(msgspec.Struct, frozen=True, order=True, gc=False):
    """A waiting task, ranked: smaller starts sooner."""

    effective: int
    """Its effective priority at the time of ranking; its urgency before that."""
    queued_at: int
    place_id: int
    lane: Lane
    place: Place
    budget: IoBudget | None = None
    """The bytes it is expected to move, if the IO of the machine is watched."""
    by_share: bool = True
    """True if it starts by the share of its group, False if it is urgent enough to start beyond it."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """Its position in the queue; the lowest starts first."""
        return self.effective, self.queued_at, self.place_id

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


class DueTask(NamedTuple):
    """A delayed task, and the place that it takes in the queue when it is due."""

    at: int
    lane: Lane
    place: Place


class Crossing(NamedTuple):
    """The tasks of a lane that now age past a level: those that began to wait after ``since``, up to ``until``."""

    lane: Lane
    since: int
    until: int


class Family(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an attempt needs to know about the children of its task."""

    children: int
    """The number of children before this attempt."""
    finalizing: int
    """True if the handler has returned and ``finalize`` runs."""
    result: str | None
    """The handler's result."""


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
    """The priority it runs at: its own, or that of a more urgent task that waits for it."""
    family: Family | None
    is_tied: int
    """True if its ending affects others: a parent, a series, a cron task, or tasks that depend on it."""
    renewed_at: int | None
    """When its aging restarted, if it did."""
    place_id: int
    """The task whose place in the queue it has; its own id if none."""
    io: str | None = None
    """Its budget as JSON, or ``learn``."""
    cron: str | None = None
    """The cron task it is a firing of, if any."""
    prefetched: int = 0
    """True if it was claimed before a slot was free, and the store does not know that it has begun."""
    deadline: int | None = None
    """When it expires if it has not begun; None if this attempt may begin at any time."""
    effective: int = 0
    """The effective priority it was started with."""
    budget: IoBudget | None = None
    """The bytes it is expected to move, if the IO of the machine is watched."""

    @property
    def place(self) -> Place:
        return Place(self.queued_at, self.place_id, self.id, self.renewed_at, self.io)

    @property
    def aged_from(self) -> int:
        return self.queued_at if self.renewed_at is None else self.renewed_at

    @property
    def lane(self) -> Lane:
        return Lane(self.group, self.urgency, self.type, self.renewed_at is not None)

    def shift(self, by_ms: int) -> None:
        """Shift its instants by a step of the wall clock."""
        self.created_at += by_ms
        self.queued_at += by_ms
        self.started_at += by_ms
        if self.renewed_at is not None:
            self.renewed_at += by_ms

    @property
    def finalizes(self) -> bool:
        return self.family is not None and bool(self.family.finalizing)


class StoredTrace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tracing context of a submission, as the headers that carry it, such as ``traceparent``."""

    carrier: dict[str, str]
    recurs: bool = False
    """True if the submission started a recurring series."""


class Overrides(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of the call that matter when the task runs; they are stored with it."""

    retry: Retry | None = None
    timeout_ms: int | None = -1
    fail_fast: bool | None = None
    trace: StoredTrace | None = None
    """Present only if the submitting scheduler traces."""


NO_OVERRIDES = Overrides()
"""A ``timeout_ms`` of -1 means that the call gave none; ``None`` means that the call asked for no timeout."""


class Described(msgspec.Struct, frozen=True, array_like=True):
    """The fields that events need about a task without an attempt."""

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
    """The attempt that spawns tasks, and the options of its type for children."""

    id: int
    attempt: int
    sibling: bool
    """True if the new tasks become children of its parent, not of itself."""
    fail_fast: bool
    max_children: int | None
    effective: int
    """The effective priority it was started with, which its children inherit."""
