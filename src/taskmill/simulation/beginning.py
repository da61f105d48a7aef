"""The beginning of a simulation: the queue, sorted for the planner. All samples of a forecast share it."""

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.machine import Capacity
from taskmill.model.queue_state import QueuedTask, WholeQueue
from taskmill.model.settings import DEFAULT_RETRY, Retry
from taskmill.model.status import OnDependencyFailure, Status
from taskmill.model.task import Lane, Overrides, Place
from taskmill.policy.paused_time import settled
from taskmill.policy.rules import Rules
from taskmill.simulation.lending import Lending

_decode_overrides = msgspec.json.Decoder(Overrides).decode


class Calm(NamedTuple):
    """Readings of a machine that is under no pressure."""

    capacity: Capacity
    pressures: dict[str, float] = {}  # noqa: RUF012 - it is never changed
    pressure: float = 0.0

    @property
    def known(self) -> Capacity:
        return self.capacity


class Beginning:
    """A queue at the beginning of a simulation. It is never changed."""

    def __init__(self, queue: WholeQueue, rules: Rules) -> None:
        self.queue = queue
        self.rules = self.rules_before = rules
        self.now = queue.now
        self.tasks: dict[int, QueuedTask] = {}
        self.lanes: dict[Lane, list[Place]] = {}
        self.running: list[QueuedTask] = []
        self.due: list[tuple[int, int]] = []
        self.expiries: list[tuple[int, int]] = []
        self.stopping: list[int] = []
        """Tasks that were asked to stop and do not run: they end at once."""
        self.blocks: dict[int, list[int]] = {}
        """By id: the tasks that wait for the end of a task."""
        self.blockers: dict[int, int] = {}
        """By id: the number of things that a blocked task waits for."""
        self.held: dict[int, list[int]] = {}
        """By parent: children that wait until fewer of their siblings are in the queue."""
        self._retries: dict[str, Retry] = {}
        series_paused = {series.id for series in queue.series if series.paused}
        for task in queue.tasks:
            self._add(self._settled(task, rules), series_paused)
        waits_for = [(waiting, on) for waiting, on in queue.waits_for if waiting in self.tasks and on in self.tasks]
        for waiting, on in waits_for:
            self._block(waiting, on)
        self.lending = Lending(waits_for)
        for places in self.lanes.values():
            places.sort()
        for children in self.held.values():
            children.sort(key=lambda child: (self.tasks[child].urgency, child))

    def under(self, rules: Rules) -> "Beginning":
        """Return the same queue at the moment at which other rules come into force."""
        # Only ended pauses change the tasks themselves.
        is_same = rules.controls.ended_pauses == self.rules.controls.ended_pauses
        changed = copy(self) if is_same else Beginning(self.queue, rules)
        changed.rules, changed.rules_before = rules, self.rules
        return changed

    def is_held(self, group: str, type: str) -> bool:
        """True if a pause without an end holds the tasks of this type and group; their deadlines stand still."""
        return any(pause.until is None for pause in self.rules.pauses(group, type).values())

    def deadlines(self) -> Iterator[tuple[int, int]]:
        """Yield the deadlines that do not stand still until the end, each with the id of its task."""
        for at, id in self.expiries:
            if not self.is_held((task := self.tasks[id]).group, task.type):
                yield at, id

    def _settled(self, task: QueuedTask, rules: Rules) -> QueuedTask:
        """Give the time of ended pauses back to a task."""
        if not rules.controls.ended_pauses or task.status is Status.RUNNING:
            return task
        times = settled(task, rules)
        if times is None:
            return task
        return msgspec.structs.replace(
            task,
            queued_at=times.queued_at,
            renewed_at=times.renewed_at,
            expires_at=times.expires_at,
            paused_at=times.paused_at,
        )

    def _add(self, task: QueuedTask, series_paused: set[int]) -> None:
        self.tasks[task.id] = task
        if task.stop is not None and task.status is not Status.RUNNING:
            self.stopping.append(task.id)
            return
        match task.status:
            case Status.RUNNING:
                self.running.append(task)
            case Status.SCHEDULED if task.due_at is not None:
                self.due.append((task.due_at, task.id))
            case Status.PENDING | Status.SCHEDULED:
                self._queue(task)
            case Status.PAUSED if task.series_id not in series_paused:
                # It was preempted, and returns soon.
                self._queue(task)
            case Status.BLOCKED:
                self.blockers[task.id] = 0
                if task.held and task.parent_id is not None:
                    self.blockers[task.id] = 1
                    self.held.setdefault(task.parent_id, []).append(task.id)
                if task.gate_id is not None:
                    self._block(task.id, task.gate_id)
            case _:
                pass  # it waits for its children, or its series is paused
        if task.may_expire and task.expires_at is not None:
            self.expiries.append((task.expires_at, task.id))

    def _queue(self, task: QueuedTask) -> None:
        self.lanes.setdefault(task.lane, []).append(task.place)

    def _block(self, waiting: int, on: int) -> None:
        self.blocks.setdefault(on, []).append(waiting)
        self.blockers[waiting] = self.blockers.get(waiting, 0) + 1

    def retry_of(self, task: QueuedTask) -> Retry:
        """Return the retry policy of a task: that of its call, else that of its type, else the built-in one."""
        if task.overrides is not None:
            found = self._retries.get(task.overrides)
            if found is None:
                found = self._retries[task.overrides] = self._retry_in(task)
            return found
        return self.queue.retries.get(task.type, DEFAULT_RETRY)

    def _retry_in(self, task: QueuedTask) -> Retry:
        own = self.queue.retries.get(task.type, DEFAULT_RETRY)
        try:
            return _decode_overrides(task.overrides or "{}").retry or own
        except (msgspec.MsgspecError, ConfigError):
            # The row is damaged; reading the task itself reports that.
            return own


def failure_policy(task: QueuedTask) -> OnDependencyFailure:
    return task.on_dependency_failure or OnDependencyFailure.CANCEL
