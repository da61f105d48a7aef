"""Backpressure: which tasks wait because of the machine.

Low-priority tasks wait while CPU, memory, disk, network or battery is under load, and a task with an IO budget waits
while its budget does not fit beside those of running tasks. Only tasks that are about to start are judged. A task that
was held is judged again when something has changed that may let it start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from taskmill.dispatch.limits import Load
from taskmill.model.io_budget import LEARN, IoBudget, readable_budget
from taskmill.model.machine import UNKNOWN_CAPACITY, Capacity, Machine, MovedIo, ThrottlePolicy
from taskmill.policy.io_room import IoRoom, LearnedIo, learned_from, learned_io
from taskmill.policy.pressure import (
    UNTHROTTLED,
    Throttle,
    held_from,
    limits_in_force,
    makes_way,
    stays_away,
)


class Seen(Protocol):
    """The latest readings of the machine."""

    @property
    def pressures(self) -> Mapping[str, float]: ...
    @property
    def pressure(self) -> float: ...
    @property
    def capacity(self) -> Capacity: ...
    @property
    def known(self) -> Capacity: ...


class Backpressure:
    """Decides which tasks the machine has room for. Until readings arrive, it has room for all."""

    def __init__(self, load: Load, policy: ThrottlePolicy) -> None:
        self._load = load
        self._policy = policy
        self._learned: dict[str, LearnedIo] = {}
        self._throttle: Throttle = UNTHROTTLED
        self._pressure = 0.0
        self.capacity = UNKNOWN_CAPACITY
        """The rates that the machine can sustain, as far as they are known."""
        self._io_room = IoRoom(UNKNOWN_CAPACITY, load.io)
        self._behind: set[tuple[str, str | None]] = set()
        """Budgets that are known to wait, as ``(io, type)``; the type is given for learned budgets only."""
        self.io_held: set[str] = set()
        """Groups with tasks that are skipped because tasks ahead of them wait for IO room."""
        self.is_watching = False
        """True once readings of the machine arrive."""
        self.held_from: int | None = None
        """Tasks of this effective priority, and less urgent ones, wait for the pressure to fall."""
        self.is_easing = False
        """True if tasks that were preempted because of pressure stay paused for now."""
        self.arrived = False
        """True if tasks with budgets entered the front; they may rank before those that are held."""

    def see(self, seen: Seen) -> bool:
        """Apply new readings; return True if the priority from which tasks are throttled has changed."""
        self.is_watching = True
        before, policy = self.held_from, self._policy
        self._pressure = seen.pressure
        self._throttle = limits_in_force(policy, self._throttle, seen.pressure)
        self.held_from = held_from(self._throttle)
        self.is_easing = stays_away(policy, self.is_easing, seen.pressure)
        if seen.capacity != self.capacity:
            self.capacity = seen.capacity
            self._load.io_eased = True
        return before != self.held_from

    def report(self, seen: Seen) -> Machine:
        """Return the readings and limits to store, for ``explain`` on other nodes and for the next dispatcher."""
        return Machine(
            known=seen.known,
            capacity=seen.capacity,
            limits=tuple(sorted(self._throttle)),
            easing=self._policy.easing,
            pressures=dict(seen.pressures) if self._throttle or self.is_easing else {},
            returns_below=self._policy.resume_below if self.is_easing else None,
        )

    def holds_back(self, effective: int) -> bool:
        """True if a task of this effective priority waits for the pressure to fall."""
        return self.held_from is not None and effective >= self.held_from

    def preempts(self, effective: int) -> bool:
        """True if the pressure preempts a running task of this effective priority."""
        return makes_way(self._policy, effective, self._pressure)

    # Budgets

    def budget_of(self, type: str, io: str | None) -> IoBudget | None:
        """Return the bytes that a task is expected to read, write and send; None if the machine is not watched."""
        if io is None or not self.is_watching:
            return None
        if io == LEARN:
            return learned.budget() if (learned := self._learned.get(type)) is not None else None
        return readable_budget(io)

    def remember(self, moved: Mapping[str, MovedIo]) -> None:
        """Start from the measured IO of earlier runs, by task type."""
        self._learned = {type: learned_from(each) for type, each in moved.items()}

    def learn(self, type: str, moved: IoBudget) -> None:
        """Learn the IO of a type from a run that succeeded. Other tasks of the type may fit now."""
        if self.is_watching:
            self._learned[type] = learned_io(self._learned.get(type), moved)
            self._load.io_eased = True

    def reopen(self) -> set[str]:
        """Judge budgets again if anything has changed; return the groups to look at again."""
        if not self._load.io_eased and not (self.arrived and self.holds_io):
            return set()
        self._load.io_eased = self.arrived = False
        self._io_room = IoRoom(self.capacity, self._load.io)
        self._behind.clear()
        again, self.io_held = self.io_held, set()
        return again

    @property
    def holds_io(self) -> bool:
        """True if a task is known to wait for IO room."""
        return self._io_room.keeps_room

    def may_pass(self, type: str, io: str | None) -> bool:
        """True if a task is not known to be held."""
        if io is None:
            return True
        name = (io, type if io == LEARN else None)
        if name in self._behind:
            return False
        if self._io_room.is_behind(self.budget_of(type, io)):
            self._behind.add(name)
            return False
        return True

    def admits(self, type: str, io: str | None) -> bool:
        """True if the IO of the next task fits beside that of running tasks. If not, keep room for it."""
        return io is None or self._io_room.admit(self.budget_of(type, io)) is None
