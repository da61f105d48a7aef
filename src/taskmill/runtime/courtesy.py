"""Courtesy: what the machine bears now. Who waits while it is pressed, and whose IO does not fit beside what runs.

Nobody is asked about a task that is not about to start: the picker passes over what is known to be held, and what has
been held once is looked at again when something has changed that could let it go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from taskmill.model.io_budget import LEARN, IoBudget, readable_budget
from taskmill.model.machine import Machine, MovedIo
from taskmill.model.readings import UNKNOWN_CAPACITY, Capacity
from taskmill.model.throttle import ThrottlePolicy
from taskmill.policy.io_gate import IoGate
from taskmill.policy.learned_io import LearnedIo, learned_from, learned_io
from taskmill.policy.throttling import (
    UNTHROTTLED,
    Throttle,
    held_from,
    limits_in_force,
    makes_way,
    stays_away,
)
from taskmill.runtime.load import Load


class Seen(Protocol):
    """What is known about the machine at the moment."""

    @property
    def pressures(self) -> Mapping[str, float]: ...
    @property
    def pressure(self) -> float: ...
    @property
    def capacity(self) -> Capacity: ...
    @property
    def known(self) -> Capacity: ...


class Courtesy:
    """Says who may start, as far as the machine is concerned. Until somebody watches it, all may."""

    def __init__(self, load: Load, policy: ThrottlePolicy) -> None:
        self._load = load
        self._policy = policy
        self._learned: dict[str, LearnedIo] = {}
        self._throttle: Throttle = UNTHROTTLED
        self._pressure = 0.0
        self.capacity = UNKNOWN_CAPACITY
        """What the machine can sustain, as far as is known."""
        self._gate = IoGate(UNKNOWN_CAPACITY, load.io)
        self._behind: set[tuple[str, str | None]] = set()
        """Budgets that are known to wait, as ``(io, type)``; the type counts for those that are learned."""
        self.io_held: set[str] = set()
        """Groups with tasks that are passed over because others wait before them for room for their IO."""
        self.is_watching = False
        """Whether anybody watches the machine."""
        self.held_from: int | None = None
        """From this effective priority on, tasks wait for the pressure to fall."""
        self.is_easing = False
        """Whether tasks that made way stay away until the pressure has fallen far enough."""
        self.arrived = False
        """Whether tasks with budgets came into sight, which may rank before those that were held."""

    def see(self, seen: Seen) -> bool:
        """The machine was looked at; says whether other tasks than before wait for the pressure to fall."""
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
        """What others are told, and the next dispatcher."""
        return Machine(
            known=seen.known,
            capacity=seen.capacity,
            limits=tuple(sorted(self._throttle)),
            easing=self._policy.easing,
            pressures=dict(seen.pressures) if self._throttle or self.is_easing else {},
            returns_below=self._policy.resume_below if self.is_easing else None,
        )

    def holds_back(self, effective: int) -> bool:
        """Whether a task of this effective priority waits for the pressure to fall."""
        return self.held_from is not None and effective >= self.held_from

    def makes_way(self, effective: int) -> bool:
        """Whether a running task of this effective priority is asked to pause."""
        return makes_way(self._policy, effective, self._pressure)

    # Budgets

    def budget_of(self, type: str, io: str | None) -> IoBudget | None:
        """What a task is expected to move, where anybody watches that."""
        if io is None or not self.is_watching:
            return None
        if io == LEARN:
            return learned.budget() if (learned := self._learned.get(type)) is not None else None
        return readable_budget(io)

    def remember(self, moved: Mapping[str, MovedIo]) -> None:
        """What tasks have moved before this dispatcher began."""
        self._learned = {type: learned_from(each) for type, each in moved.items()}

    def learn(self, type: str, moved: IoBudget) -> None:
        """A run has succeeded. Others of its type may fit now that did not."""
        if self.is_watching:
            self._learned[type] = learned_io(self._learned.get(type), moved)
            self._load.io_eased = True

    def reopen(self) -> set[str]:
        """Judge budgets anew if anything has changed; returns the groups to look at again."""
        if not self._load.io_eased and not (self.arrived and self.holds_io):
            return set()
        self._load.io_eased = self.arrived = False
        self._gate = IoGate(self.capacity, self._load.io)
        self._behind.clear()
        again, self.io_held = self.io_held, set()
        return again

    @property
    def holds_io(self) -> bool:
        """Whether anybody is known to wait for room."""
        return self._gate.keeps_room

    def may_pass(self, type: str, io: str | None) -> bool:
        """Whether a task is not known to be held."""
        if io is None:
            return True
        name = (io, type if io == LEARN else None)
        if name in self._behind:
            return False
        if self._gate.is_behind(self.budget_of(type, io)):
            self._behind.add(name)
            return False
        return True

    def admits(self, type: str, io: str | None) -> bool:
        """Whether a task whose turn has come fits beside what runs. If not, room is kept for it."""
        return io is None or self._gate.admit(self.budget_of(type, io)) is None
