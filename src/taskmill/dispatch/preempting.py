"""Preemption: which running tasks give their slots to more urgent ones, and when they return to the queue.

In a cluster the least urgent task of all nodes is preempted. The node with the urgent task asks the store. The store
chooses by ``policy/preemption.py`` and marks the chosen task, and the node that runs it finds the mark.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.limits import Load
from taskmill.dispatch.waiting import WaitingTasks
from taskmill.model.attempt import StopReason
from taskmill.model.cluster import Ask, Preemption
from taskmill.model.io_budget import IoBudget
from taskmill.model.task import Claimed
from taskmill.policy.preemption import PATIENCE_MS, UrgentTask, fits_after, victims


class RunningTask(Protocol):
    """A running attempt."""

    @property
    def task(self) -> Claimed: ...
    @property
    def stop_reason(self) -> StopReason | None: ...
    @property
    def has_family(self) -> bool: ...


def eased(backpressure: Backpressure, running: Mapping[int, RunningTask]) -> list[int]:
    """Return the running tasks to preempt because of pressure."""
    if not backpressure.is_easing:
        return []
    return [
        id
        for id, attempt in running.items()
        if attempt.stop_reason is None and backpressure.preempts(attempt.task.effective)
    ]


class Request(NamedTuple):
    """When the other nodes were first asked for a slot for a task of this urgency, and when to ask again."""

    effective: int
    since: int
    again_at: int


class Victims(NamedTuple):
    """How slots are freed for urgent tasks."""

    here: Sequence[int] = ()
    """Tasks to preempt on this node."""
    anywhere: Preemption | None = None
    """A request to the store, in a cluster: it chooses among the tasks of all nodes."""


class Preempting:
    """Frees slots for urgent tasks."""

    def __init__(self, waiting: WaitingTasks, load: Load) -> None:
        self._waiting = waiting
        self._load = load
        self._requests: dict[int, Request] = {}
        """By urgent waiting task."""
        self.next_at: int | None = None
        """When to ask the other nodes again."""
        self._is_spawned: dict[int, bool] = {}
        """By the id of an urgent waiting task, as far as that was read: True if it was spawned."""
        self.unknown: Collection[int] = ()
        """Urgent waiting tasks for which that is not read yet. They preempt nothing."""

    def victims(self, running: Collection[RunningTask], taken: int, slots: int, now: int) -> Victims:
        """Choose the least urgent tasks to preempt for urgent ones, if all slots are ``taken``."""
        self.next_at, self.unknown = None, ()
        if taken < slots:
            return Victims()
        picker = self._waiting.picker
        picker.settle(slots, now)
        pressing = picker.pressing(now, slots)
        if self._waiting.in_cluster:
            return Victims(anywhere=self._ask(pressing, running, now))
        if not pressing:
            return Victims()
        parents = [attempt.task.id for attempt in running if attempt.has_family]
        if parents:
            self._is_spawned = {each.id: self._is_spawned[each.id] for each in pressing if each.id in self._is_spawned}
            self.unknown = [each.id for each in pressing if each.id not in self._is_spawned]
            known = [each for each in pressing if each.id in self._is_spawned]
            pressing = [each._replace(is_spawned=self._is_spawned[each.id]) for each in known]
        stoppable = [(attempt.task, attempt.stop_reason is not None) for attempt in running]
        return Victims(victims(pressing, stoppable, picker.backpressure.capacity, self._load.io, parents))

    def read(self, urgent: Collection[int], spawned: Collection[int]) -> None:
        """Note which of these urgent tasks were spawned."""
        self._is_spawned |= {id: id in spawned for id in urgent}

    def _ask(self, pressing: Sequence[UrgentTask], running: Collection[RunningTask], now: int) -> Preemption | None:
        """Return a request to the store for urgent tasks that are new or that the last request has not helped."""
        requests: dict[int, Request] = {}
        for each in pressing:
            known = self._requests.get(each.id)
            if known is None or known.effective != each.effective:
                known = Request(each.effective, now, now)
            requests[each.id] = known
        self._requests = requests
        if not pressing:
            return None
        question: Preemption | None = None
        if any(request.again_at <= now for request in self._requests.values()):
            leaving = [attempt.task.id for attempt in running if attempt.stop_reason is not None]
            question = Preemption(
                self._asks(pressing, running, now), leaving, self._waiting.picker.rules.declared.aging
            )
            again_at = now + PATIENCE_MS
            self._requests = {id: request._replace(again_at=again_at) for id, request in self._requests.items()}
        self.next_at = min(request.again_at for request in self._requests.values())
        return question

    def _asks(self, pressing: Sequence[UrgentTask], running: Iterable[RunningTask], now: int) -> list[Ask]:
        asks: list[Ask] = []
        has_budget = False
        for each in pressing:
            if each.budget is None or not has_budget:
                # Budgets add up, so one task with a budget is asked for at a time.
                has_budget = has_budget or each.budget is not None
                counts_free = now < self._requests[each.id].since + PATIENCE_MS
                choices = None if each.budget is None else self._leaving_room(each.budget, running)
                asks.append(Ask(each.id, each.effective, each.type, counts_free, choices))
        return asks

    def _leaving_room(self, budget: IoBudget, running: Iterable[RunningTask]) -> list[int]:
        """Return the tasks on this node whose end would leave room for a budget of IO."""
        capacity, load = self._waiting.picker.backpressure.capacity, self._load.io
        return [attempt.task.id for attempt in running if fits_after(budget, attempt.task.budget, capacity, load)]

    def may_return(self, running: Iterable[RunningTask], taken: int, slots: int, now: int) -> bool:
        """True if preempted tasks wait, and no urgent task needs their slots any more.

        An urgent task that a cap, a rate or a pause holds back does not count: its slot would be idle until it may
        start. When it may, it preempts again, so each start of an urgent task stops at most one other task. An urgent
        task on another node does not count either, while a slot is free here.
        """
        waiting = self._waiting
        line = waiting.picker.rules.declared.preempt_at
        if not waiting.has_preempted or any(attempt.task.effective <= line for attempt in running):
            return False
        elsewhere = waiting.others.most_urgent
        if elsewhere is not None and elsewhere <= line and taken >= slots:
            return False
        waiting.picker.settle(slots, now)
        return not waiting.picker.pressing(now, slots)
