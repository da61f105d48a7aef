"""The sockets that adapters fill: Clock, Store, and the values that pass through them.

The runtime knows these shapes and nothing of SQLite, threads or wall clocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Protocol

import msgspec

from taskmill.cron_socket import CronStore
from taskmill.model.cluster import Admission, Elsewhere, NodeAtWork, Others, Preemption
from taskmill.model.controls import Bucket, Change, Controls, Declared, Scope
from taskmill.model.effects import (
    NO_EFFECTS,
    Arrived,
    CancelResult,
    Effects,
    Ended,
    Recovery,
    Released,
    SeriesChange,
    SetAside,
    Skipped,
)
from taskmill.model.filters import Filters
from taskmill.model.graph import TaskGraph
from taskmill.model.machine import Machine, MovedIo, NodeMachine
from taskmill.model.outcome import StopReason
from taskmill.model.rate_limit import RateLimit
from taskmill.model.records import HistoryRecord, TaskRecord, TypeStats
from taskmill.model.retention import PruneRule
from taskmill.model.situation import GroupLoad, Situation, Surroundings
from taskmill.model.snapshot import Schedule
from taskmill.model.stages import Claimed, Crossing, Described, Lane, NewTask, Place, Stored
from taskmill.model.status import Ending
from taskmill.model.verdict import Verdict
from taskmill.store_meter import StoreMeter

__all__ = [
    "NO_EFFECTS",
    "Arrived",
    "CancelResult",
    "Effects",
    "Ended",
    "Recovery",
    "Released",
    "SeriesChange",
    "Skipped",
]


class Clock(Protocol):
    """Time. ``now`` is the wall, for instants; ``monotonic`` never jumps, for waiting and timeouts."""

    def now(self) -> datetime: ...
    def now_ms(self) -> int: ...
    def zone(self) -> tzinfo:
        """The zone of the host, by which cron tasks run."""
        ...

    def monotonic(self) -> float:
        """Seconds that also pass while the machine is suspended, where the system can tell."""
        ...

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Return when ``event`` is set or ``monotonic()`` reaches ``until``, whichever is first.

        Within a minute after the wall clock was stepped or the machine has slept, it returns all the same.
        """
        ...

    def work_begins(self, *, may_block: bool = False) -> None:
        """A thread works for the scheduler; a manual clock lets it finish before it moves on.

        ``may_block`` marks user code, which may itself wait for the clock.
        """
        ...

    def work_ends(self, *, may_block: bool = False) -> None: ...


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A verdict on a live attempt, with what the store needs to commit it."""

    task: Claimed
    verdict: Verdict
    duration_ms: int
    ended_at: int = 0
    """When the attempt ended, on the wall clock."""
    io: str | None = None
    """What the attempt has moved, as a budget in JSON."""
    stopped: bool = False
    """Whether the verdict already honours a request to stop; otherwise such a request defeats it."""


class Turn(msgspec.Struct):
    """What one turn of the loop commits, in this order and in one transaction."""

    now: int
    planned_at: float | None = None
    """When that was by the steady clock. A turn may have to wait for its transaction, and is as of that."""
    progress: Sequence[tuple[int, int, str]] = ()
    """``(id, attempt, progress)`` of attempts that reported some."""
    judged: Sequence[Judged] = ()
    returns: Sequence[Claimed] = ()
    """Claimed tasks that were not started after all."""
    at_work: Sequence[int] | None = None
    """What this node has begun, if a turn has failed and may have claimed something all the same: that is returned."""
    promote: bool = False
    expire: bool = False
    skip: bool = False
    """Skip the beats of recurring series that have come while their last occurrences are active."""
    resume_preempted: bool = False
    """Let tasks that made way for more urgent ones return to the queue."""
    resume_eased: bool = False
    """Let tasks that made way for pressure return to the queue."""
    hooks: Sequence[int] = ()
    """Tasks that were asked to stop and whose hooks are due; nothing holds those back."""
    claims: Sequence[int] = ()
    lanes: Mapping[int, tuple[Lane, int]] | None = None
    """The lanes of claims and since when they wait, if other nodes claim from there too: then any tasks of a lane will
    do that are the first from there on."""
    controls_version: int | None = None
    """The controls that the claims were planned with; under others nothing is claimed."""
    is_owed: bool = False
    """True if the claims were planned while paused time is still to be given back: they are given theirs first."""
    meters: Sequence[tuple[Scope, RateLimit, Bucket]] = ()
    """The rate limits that the claims are subject to. Permits are taken for tasks that start, and only for them."""
    slots: int | None = None
    """How many there are here, if other nodes dispatch too: then a survey tells what they hold."""
    admission: Admission | None = None
    """The plan of the claims, if limits that all nodes share concern it: what these do not allow is not claimed."""
    preempt: Preemption | None = None
    """The waiting tasks for which running ones of any node are to be preempted."""
    spare: int = 0
    """Slots that are left when nothing else waits: what this very turn releases may start in them."""
    survey: bool = False
    """Look for lanes, times and stop requests that another process may have changed."""
    refill: Sequence[Lane] = ()
    lanes_in_sight: int = 0
    """How many lanes share the memory for what is in sight."""

    def is_empty(self) -> bool:
        return not (self.survey or self.refill or self.writes())

    def writes(self) -> bool:
        """Whether it does more than look."""
        return bool(
            self.judged
            or self.returns
            or self.progress
            or self.promote
            or self.expire
            or self.skip
            or self.resume_preempted
            or self.resume_eased
            or self.hooks
            or self.claims
            or self.preempt is not None
            or self.at_work is not None
        )


UNREADABLE_ROW = "the stored row is unreadable"


class TurnResult(msgspec.Struct):
    """What a turn found and did."""

    lost: dict[tuple[int, int], str | None] = msgspec.field(default_factory=dict[tuple[int, int], "str | None"])
    """Tokens of judged attempts that did not count, with what the task was asked meanwhile, or ``None`` if the token
    is no longer held."""
    effects: Effects = msgspec.field(default_factory=Effects)
    waiting: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    """Judged tasks that wait for children, and how many."""
    claimed: list[Claimed] = msgspec.field(default_factory=list[Claimed])
    fronts: dict[Lane, list[Place]] = msgspec.field(default_factory=dict[Lane, list[Place]])
    front_size: int = 0
    """How many places of a lane were asked for; fewer mean that there are no more."""
    lanes: list[Lane] | None = None
    stops: list[tuple[int, StopReason]] = msgspec.field(default_factory=list[tuple[int, StopReason]])
    hooks: list[int] = msgspec.field(default_factory=list[int])
    """What a survey found: running tasks that were asked to stop and why, and tasks whose hooks may run."""
    controls: Controls | None = None
    """If they are not those that the turn was planned with."""
    buckets: Sequence[tuple[Scope, Bucket]] = ()
    """What the rate limits have left."""
    elsewhere: Elsewhere | None = None
    """What other nodes hold, if it was asked."""
    others: Others | None = None
    """What a survey found, if other nodes may dispatch."""
    refused: bool = False
    """Whether limits that all nodes share did not allow all of the claims."""
    urgencies: Sequence[tuple[int, int, int]] = ()
    """What a survey found: ``(id, priority, urgency)`` of running tasks, which others may have made more urgent."""
    has_preempted: bool = False
    has_eased: bool = False
    """What a survey found: whether tasks wait that have made way for more urgent ones, and for pressure."""
    next_due: int | None = None
    next_expiry: int | None = None
    next_beat: int | None = None


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The attempt that spawns tasks, and how its type wants its children to be treated."""

    id: int
    attempt: int
    sibling: bool
    """Whether the new tasks become children of its parent, not of itself."""
    fail_fast: bool
    max_children: int | None
    effective: int
    """The priority it was started with, which its children inherit."""


class DispatchRight(Protocol):
    """The right to dispatch a store, held by one process at a time and freed by its death."""

    def release(self) -> None: ...
    def linger(self) -> None:
        """Nothing is begun any longer, and the right is kept until what would not stop has ended."""
        ...

    def inheritable(self) -> Sequence[int]:
        """File descriptors that keep the right alive in processes which run handlers."""
        ...


class Store(CronStore, Protocol):
    """Everything durable. A coroutine that writes returns when its transaction is durable, ``turn`` when committed."""

    name: str
    is_shared: bool
    """Whether other processes may use the store."""
    is_cluster: bool
    """Whether other nodes may dispatch at the same time."""
    watch_added: Callable[[Arrived], None]
    """Called after each local commit of submissions, even if the caller has gone away."""
    watch_cut_off: Callable[[], None]
    """Called when this node can no longer prove that it is alive: others are about to run what it runs."""
    news: asyncio.Event | None
    """Set when others may have written, if the store is told of that; else it has to be asked."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def measure(self, meter: StoreMeter) -> None:
        """Tell ``meter`` what writing costs, until the store is closed."""
        ...

    async def acquire_dispatch(self) -> DispatchRight:
        """Take the right to dispatch or raise ``AlreadyRunning``."""
        ...

    async def recover(self, now: int) -> Recovery: ...
    async def set_aside(self, now: int, *, running: bool) -> SetAside:
        """End tasks whose rows are damaged, so that the others go on; those that run only with ``running``."""
        ...

    async def publish_types(self, types: Mapping[str, str]) -> None: ...
    async def published_types(self) -> Mapping[str, str]: ...

    def add(self, tasks: Sequence[NewTask]) -> Awaitable[list[Stored]]: ...
    def add_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        """Store tasks in the transaction of the caller's own connection, in the caller's thread."""
        ...

    async def add_within(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        """The same for a connection of whatever kind callers on an event loop may have."""
        ...

    async def spawn(self, tasks: Sequence[NewTask], origin: Origin) -> list[Stored]:
        """Store children, or siblings, of an attempt; ``InvalidState`` if it is over or was asked to stop."""
        ...

    async def turn(self, turn: Turn) -> TurnResult: ...
    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything committed so far is as durable as was asked for; never if the disk refuses."""
        ...

    def make_durable_soon(self) -> None:
        """Nobody waits for what was committed; make it durable within a moment all the same."""
        ...

    async def durable(self) -> None: ...

    async def controls(self) -> Controls: ...
    async def declare(self, declared: Declared) -> None:
        """The program that begins to dispatch says what it was written to do."""
        ...

    async def change(self, changes: Mapping[Scope, Change]) -> None:
        """Settings made at run time; those of before that are not mentioned stay."""
        ...

    async def pause(self, scope: Scope, now: int, until: int | None, *, relative: bool = False) -> bool:
        """Pause a scope, or change when its pause ends; says whether it was not paused before.

        ``relative`` if the end follows from a length: it moves with a step of the clock.
        """
        ...

    async def resume(self, scope: Scope, now: int) -> bool:
        """End a pause as of ``now``: meanwhile no task of the scope has waited or come closer to its deadline."""
        ...

    async def end_pauses(self, now: int) -> list[Scope]:
        """End the pauses whose time has come, each as of that time; returns which."""
        ...

    async def give_back(self) -> bool:
        """Give the time of an ended pause back to some of its tasks; says whether there is more to do."""
        ...

    async def set_priority(self, id: int, priority: int) -> Effects | None:
        """``None`` if there is no such active task."""
        ...

    async def save(self, id: int, attempt: int, saved: str) -> bool: ...
    async def cancel(self, ids: Sequence[int], now: int) -> CancelResult: ...
    async def revive(self, id: int, now: int) -> Described | None: ...
    async def pause_series(self, id: int, now: int) -> SeriesChange: ...
    async def resume_series(self, id: int, now: int) -> SeriesChange: ...
    async def cancel_series(self, id: int, now: int) -> SeriesChange: ...
    async def prune(self, rules: Sequence[PruneRule], now: int, limit: int) -> int: ...
    async def oldest_ended(self, endings: Sequence[Ending]) -> int | None: ...
    async def shift_clock(self, by_ms: int) -> None:
        """The wall clock was stepped: delays and times-to-live move with it, instants do not."""
        ...

    async def foreign_changes(self) -> bool:
        """Whether another process has written since the last call."""
        ...

    async def get(self, id: int) -> TaskRecord | HistoryRecord | None: ...
    async def find(self, type: str, key: str) -> TaskRecord | HistoryRecord | None: ...
    async def children(self, id: int) -> list[HistoryRecord]:
        """The children of a task that have ended, in the order of their ids."""
        ...

    async def graph(self, id: int) -> TaskGraph | None:
        """Everything that is tied to a task: what it waits for and what waits for it."""
        ...

    async def schedules(self) -> list[Schedule]: ...
    async def ended_among(self, ids: Sequence[int]) -> list[int]: ...
    async def tasks(self, filters: Filters) -> list[TaskRecord]: ...
    async def history(self, filters: Filters) -> list[HistoryRecord]: ...
    async def count(self, filters: Filters) -> int: ...
    async def at_work(self) -> tuple[list[TaskRecord], list[NodeAtWork]]:
        """What runs, and which node runs what, as of one moment."""
        ...

    async def counts(self) -> dict[str, int]: ...
    async def load_of_groups(self) -> GroupLoad: ...
    async def situation(self, id: int) -> tuple[Situation, Surroundings, Controls] | None:
        """What an active task waits for."""
        ...

    async def crossings(self, crossings: Sequence[Crossing]) -> tuple[list[Described], list[int | None]]:
        """The waiting tasks within these spans, and for each span when the first task after it began to wait."""
        ...

    def is_cut_off(self) -> bool:
        """Whether this node cannot prove that it is alive: what it would begin now, others may run already."""
        ...

    def dispatcher_is_alive(self) -> bool:
        """Whether some process dispatches."""
        ...

    async def moved_io(self) -> Mapping[str, MovedIo]:
        """What the runs of each task type have moved."""
        ...

    async def running_budgets(self) -> Sequence[tuple[str, str, int | None]]:
        """``(type, io, node)`` of running tasks that have a budget."""
        ...

    async def machine(self) -> Machine | None:
        """What was last seen of this machine, or of that of the last dispatcher, if there is one at a time."""
        ...

    async def machines(self) -> Sequence[NodeMachine]:
        """What those have seen of their machines that dispatch now."""
        ...

    async def note_machine(self, seen: Machine) -> None: ...
    async def stats(self, type: str) -> TypeStats: ...
    async def tag_values(self, name: str) -> dict[str, int]: ...
    async def facts(self, *, integrity: bool = False) -> dict[str, Any]:
        """Return what ``doctor`` shows: versions, sizes, settings; with ``integrity``, after reading a whole file."""
        ...
