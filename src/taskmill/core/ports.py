"""The interfaces that adapters implement: the clock, the right to dispatch, and the store.

The runtime depends on these protocols only, never on SQLite, PostgreSQL, threads or the system's clock. The store is
split into small protocols; each is what one or two parts of the runtime need.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Protocol

from taskmill.core.cron_port import CronRow, CronStore
from taskmill.model.browsing import Kept, PageRequest, SpanOfHistory, SuggestField, TaskPage
from taskmill.model.cluster import NodeAtWork, WorkElsewhere
from taskmill.model.commit import CancelResult, Changes, Commit, Recovery, SeriesChange, SetAside
from taskmill.model.controls import Change, Controls, Declared, Scope
from taskmill.model.explanation import GroupLoad, Situation, Surroundings
from taskmill.model.filters import Filters
from taskmill.model.machine import Machine, MovedIo, NodeMachine
from taskmill.model.records import ErrorGroup, HistoryRecord, TaskGraph, TaskRecord, TypeStats
from taskmill.model.settings import PruneRule
from taskmill.model.snapshot import Schedule
from taskmill.model.status import Ending
from taskmill.model.submission import Stored
from taskmill.model.task import Crossing, Described, NewTask, Origin
from taskmill.model.turn import Turn, TurnResult

if TYPE_CHECKING:
    from taskmill.model.queue_state import PastTask, WholeQueue
    from taskmill.policy.rehearsal import Rehearsal


class Clock(Protocol):
    """The time: ``now`` is the wall clock, for instants; ``monotonic`` never jumps, for waiting and timeouts."""

    def now(self) -> datetime: ...
    def now_ms(self) -> int: ...
    def zone(self) -> tzinfo:
        """Return the time zone of the host, by which cron tasks run."""
        ...

    def monotonic(self) -> float:
        """Return seconds, with the time while the machine is suspended if the system counts it."""
        ...

    async def wait(self, event: asyncio.Event, until: float | None) -> None:
        """Return when ``event`` is set or ``monotonic()`` reaches ``until``, whichever is first.

        Return early, within a minute, after a step of the wall clock or a suspension of the machine.
        """
        ...

    def work_begins(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        """Report work outside the event loop; a manual clock lets it finish before time moves on.

        ``may_block`` marks user code, which may itself wait for the clock; ``thread`` is the thread that runs it.
        """
        ...

    def work_ends(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None: ...


class DispatchRight(Protocol):
    """The right to dispatch a store, held by one process at a time and freed by its death."""

    def release(self) -> None: ...
    def linger(self) -> None:
        """Start nothing more, and keep the right until the handlers that did not stop have ended."""

    def inheritable(self) -> Sequence[int]:
        """Return the file descriptors that keep the right alive in worker processes."""
        ...


class Dispatches(Protocol):
    """The store of the dispatch loop: the right to dispatch, turns, recovery."""

    name: str
    is_cluster: bool
    """True if other nodes may dispatch at the same time."""
    watch_cut_off: Callable[[], None]
    """Called when this node can no longer prove that it is alive: other nodes may then run its tasks."""

    async def acquire_dispatch(self) -> DispatchRight:
        """Take the right to dispatch or raise ``AlreadyRunning``."""
        ...

    def is_cut_off(self) -> bool:
        """True if this node cannot prove that it is alive: a task that it starts now may run elsewhere already."""
        ...

    def writes_beside(self, rows: int) -> bool:
        """True if handlers run while a turn of so many rows is committed."""
        ...

    def dispatcher_is_alive(self) -> bool:
        """True if some process dispatches."""
        ...

    async def recover(self, now: int) -> Recovery:
        """Return the tasks of dead dispatchers to the queue."""
        ...

    async def set_aside(self, now: int, *, running: bool) -> SetAside:
        """End tasks whose rows are damaged, so that the others run; running ones only with ``running``."""
        ...

    async def declare(self, declared: Declared) -> None:
        """Store the settings that the dispatching program declares."""

    async def turn(self, turn: Turn) -> TurnResult:
        """Commit a turn; return once it is committed, before it is durable. Cancelled callers get the result too."""
        ...

    def fetch(self) -> None:
        """Return the result of a patient turn now, or as soon as it is committed."""

    def note_beginnings(self, begun: Sequence[tuple[int, int, int]]) -> None:
        """Record that prefetched tasks begin, where the record survives this process, if the store has such a place.

        :meth:`recover` then counts the crash of a task whose beginning no transaction has stored.
        """

    async def note_begun(self, begun: Sequence[tuple[int, int, int]]) -> None:
        """Store when prefetched tasks began, for rows of ``(id, attempt, began at)``."""

    async def save(self, id: int, attempt: int, saved: str) -> bool:
        """Store the state of an attempt; False if its token is no longer held."""
        ...

    async def children(self, id: int) -> list[HistoryRecord]:
        """Return the ended children of a task, in the order of their ids."""
        ...

    async def crossings(self, crossings: Sequence[Crossing]) -> tuple[list[Described], list[int | None]]:
        """Return the waiting tasks within these spans, and for each span when the first task after it began to wait."""
        ...


class Durable(Protocol):
    """The durability of commits."""

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything committed so far is as durable as configured; never if the disk fails."""
        ...

    def make_durable_soon(self) -> None:
        """Make everything committed so far durable soon, even if no caller waits for it."""
        ...

    async def durable(self) -> None:
        """Wait until everything committed so far is as durable as configured."""
        ...


class Submits(Protocol):
    """The store of new tasks."""

    committed: Callable[[Commit], None]
    """Called after each local commit of submissions, even if the caller has gone away."""

    async def publish_types(self, types: Mapping[str, str]) -> None:
        """Store the task types of this program, with their defaults, for programs that submit by name."""
        ...

    async def published_types(self) -> Mapping[str, str]: ...
    async def handled_types(self) -> frozenset[str] | None:
        """Return the types with a handler on a dispatching node; ``None`` if no dispatcher has stored its types."""
        ...

    def add(self, tasks: Sequence[NewTask]) -> Awaitable[list[Stored]]: ...
    def add_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        """Store tasks in the open transaction of the caller's connection, in the caller's thread."""
        ...

    async def add_within(self, connection: object, tasks: Sequence[NewTask]) -> list[Stored]:
        """Store tasks in the open transaction of the caller's asynchronous connection."""
        ...

    async def rehearse(self, tasks: Sequence[NewTask]) -> Rehearsal:
        """Return what would become of tasks that are stored in one request; store nothing."""
        ...

    async def spawn(self, tasks: Sequence[NewTask], origin: Origin) -> list[Stored]:
        """Store children or siblings of an attempt; raise ``InvalidState`` if it is over or was asked to stop."""
        ...


class Tunes(Protocol):
    """Changes of tasks and settings at run time."""

    async def controls(self) -> Controls: ...
    async def change(self, changes: Mapping[Scope, Change]) -> None:
        """Change settings; settings that are not mentioned stay."""
        ...

    async def pause(self, scope: Scope, now: int, until: int | None, *, relative: bool = False) -> bool:
        """Pause a scope, or change when its pause ends; return True if it was not paused before.

        ``relative`` is True if the caller gave a duration: the end then moves with a step of the wall clock.
        """
        ...

    async def resume(self, scope: Scope, now: int) -> bool:
        """End a pause as of ``now``; return True if there was one."""
        ...

    async def set_priority(self, id: int, priority: int) -> Commit | None:
        """Change the priority of an active task; return None if there is no such task."""
        ...

    async def cancel(self, ids: Sequence[int], now: int, prefetched: Sequence[tuple[int, int]] = ()) -> CancelResult:
        """End waiting tasks and ask running ones to stop; ``prefetched`` tokens return to the queue first."""
        ...

    async def revive(self, id: int, now: int) -> Described | None:
        """Return a dead letter to the queue; return None if there is no such dead letter."""
        ...

    async def revive_all(self, ids: Sequence[int], now: int) -> list[Described]:
        """Return dead letters to the queue, without those whose key another task holds; skip what is no dead letter."""
        ...

    async def pause_series(self, id: int, now: int) -> SeriesChange: ...
    async def resume_series(self, id: int, now: int) -> SeriesChange: ...
    async def cancel_series(self, id: int, now: int) -> SeriesChange: ...


class Maintained(Protocol):
    """The store of upkeep: pruning, steps of the wall clock, the ends of pauses."""

    async def prune(self, rules: Sequence[PruneRule], now: int, limit: int, *, durable: bool = True) -> int:
        """Delete history beyond the rules, at most ``limit`` records; return how many."""
        ...

    async def oldest_ended(self, endings: Sequence[Ending]) -> int | None:
        """Return when the oldest record with one of these endings ended."""
        ...

    async def shift_clock(self, by_ms: int) -> None:
        """Move delays and times-to-live with a step of the wall clock; leave given instants as they are."""
        ...

    async def end_pauses(self, now: int) -> list[Scope]:
        """End the timed pauses that are over, each as of its own end; return their scopes."""
        ...

    async def give_back(self) -> bool:
        """Give the time of an ended pause back to some of its tasks; return True if there is more to do."""
        ...


class Shared(Protocol):
    """The commits of other processes."""

    is_shared: bool
    """True if other processes may use the store."""
    news: asyncio.Event | None
    """Set when other processes may have written; None if the store has no notifications and must be polled."""

    async def foreign_changes(self) -> Changes | None:
        """Return what other processes have changed since the last call; None if they have committed nothing."""
        ...

    async def ended_among(self, ids: Sequence[int]) -> list[int]:
        """Return the ids of those tasks that have ended."""
        ...

    async def work_elsewhere(self, ended_since: int, news_since: int) -> WorkElsewhere:
        """Return the tasks that other processes run, and those that ended at ``ended_since`` or later.

        If too many tasks have ended, the earliest are left out; those of them that ended at ``news_since`` or later are
        counted.
        """
        ...

    async def records(self, ids: Sequence[int]) -> Mapping[int, TaskRecord | HistoryRecord]:
        """Return the records of these tasks, active or ended; deleted tasks are missing."""
        ...


class Reads(Protocol):
    """Reads of tasks, history, groups and the store itself."""

    async def get(self, id: int) -> TaskRecord | HistoryRecord | None: ...
    async def find(self, type: str, key: str) -> TaskRecord | HistoryRecord | None: ...
    async def graph(self, id: int) -> TaskGraph | None:
        """Return every task that is linked to a task: parents, children, dependencies, dependents."""
        ...

    async def schedules(self) -> list[Schedule]: ...
    async def tasks(self, filters: Filters) -> list[TaskRecord]: ...
    async def next_due(self) -> TaskRecord | None: ...
    async def history(self, filters: Filters) -> list[HistoryRecord]: ...
    async def count(self, filters: Filters) -> int: ...
    async def running_tasks(self) -> tuple[list[TaskRecord], list[NodeAtWork]]:
        """Return the running tasks, and the nodes with the tasks that each runs, as of one moment."""
        ...

    async def counts(self) -> dict[str, int]: ...
    async def load_of_groups(self) -> GroupLoad: ...
    async def situation(self, id: int) -> tuple[Situation, Surroundings, Controls] | None: ...
    async def queue_state(self, types: Collection[str] = (), *, only_runs: bool = False) -> WholeQueue:
        """Return what decides when tasks start, with the last runs of their types; with ``only_runs``, those alone."""
        ...

    async def past_tasks(self, since: int) -> list[PastTask]:
        """Return the tasks that were submitted since then and have run and ended, oldest first."""
        ...

    async def stats(self, type: str) -> TypeStats: ...
    async def error_groups(self, since: int) -> list[ErrorGroup]: ...
    async def ended_ids(self, filters: Filters) -> list[int]:
        """Return the ids of the tasks in history that match, the last to end first."""
        ...

    async def tag_values(self, name: str) -> dict[str, int]: ...
    async def page(self, wanted: PageRequest) -> TaskPage: ...
    async def suggest(self, field: SuggestField, prefix: str, limit: int) -> list[str]: ...
    async def activity(self, spans: Sequence[tuple[int, int]], sample: int) -> list[SpanOfHistory]:
        """Return what ended in each span of time, with the times of the last ``sample`` tasks of each ending."""
        ...

    async def kept(self, record: TaskRecord | HistoryRecord) -> Kept | None:
        """Return what is stored about a task beside its record; None if it was deleted meanwhile."""
        ...

    async def facts(self, *, integrity: bool = False) -> dict[str, Any]:
        """Return versions, sizes and settings; with ``integrity``, check every page of a file."""
        ...


class StoreReader(Reads, Protocol):
    """A store that is open for reading: all that the reading methods of a scheduler need."""

    name: str
    is_cluster: bool
    declared: Declared
    """The settings that the program of this process declares."""

    async def controls(self) -> Controls: ...
    async def cron_rows(self, names: Sequence[str] | None = None) -> list[CronRow]: ...
    async def machines(self) -> Sequence[NodeMachine]:
        """Return the last readings of each node that dispatches now."""
        ...

    async def published_types(self) -> Mapping[str, str]: ...
    async def handled_types(self) -> frozenset[str] | None: ...
    def dispatcher_is_alive(self) -> bool:
        """True if some process dispatches."""
        ...


class KnowsMachine(Protocol):
    """The stored readings of the machine, and the measured IO of tasks."""

    is_cluster: bool

    async def moved_io(self) -> Mapping[str, MovedIo]:
        """Return the measured IO of each task type."""
        ...

    async def running_budgets(self) -> Sequence[tuple[str, str, int | None]]:
        """Return ``(type, io, node)`` of running tasks that have a budget."""
        ...

    async def machine(self) -> Machine | None:
        """Return the last readings: of this machine in a cluster, else of the last dispatcher's machine."""
        ...

    async def machines(self) -> Sequence[NodeMachine]:
        """Return the last readings of each node that dispatches now."""
        ...

    async def note_machine(self, seen: Machine) -> None: ...


class StoreCounters(Protocol):
    """Receives the cost of writing, on the event loop; durations are in seconds."""

    def committed(self, seconds: float, requests: int) -> None:
        """Record a transaction: its duration, from requesting the write lock to the commit, and its requests."""
        ...

    def synced(self, seconds: float) -> None:
        """Record the duration of forcing committed data to disk."""
        ...


class Store(Dispatches, Durable, Submits, Tunes, Maintained, Shared, StoreReader, KnowsMachine, CronStore, Protocol):
    """Everything durable. A coroutine that writes returns when its transaction is durable, except ``turn``."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    def measure(self, counters: StoreCounters) -> None:
        """Report the cost of writing to ``counters`` until the store is closed."""
        ...
