"""The sockets that adapters fill: Clock, Store, and the values that pass through them.

The runtime knows these shapes and nothing of SQLite, threads or wall clocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Protocol

from taskmill.cron_socket import CronStore
from taskmill.model.cluster import NodeAtWork
from taskmill.model.commit import CancelResult, Commit, Recovery, SeriesChange, SetAside
from taskmill.model.controls import Change, Controls, Declared, Scope
from taskmill.model.filters import Filters
from taskmill.model.graph import TaskGraph
from taskmill.model.machine import Machine, MovedIo, NodeMachine
from taskmill.model.records import HistoryRecord, TaskRecord, TypeStats
from taskmill.model.retention import PruneRule
from taskmill.model.situation import GroupLoad, Situation, Surroundings
from taskmill.model.snapshot import Schedule
from taskmill.model.stages import Crossing, Described, NewTask, Origin, Stored
from taskmill.model.status import Ending
from taskmill.model.turn import Turn, TurnResult
from taskmill.store_meter import StoreMeter


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
    committed: Callable[[Commit], None]
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

    async def set_priority(self, id: int, priority: int) -> Commit | None:
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
