"""The simulation: the dispatcher's own planner on a virtual clock (docs/decisions/0037).

:mod:`taskmill.dispatch` and :mod:`taskmill.policy` decide which task starts, as in a dispatcher. This module adds what
a dispatcher gets from outside: time, the ends of attempts, and the store of waiting tasks.

Laws: with the same durations, tasks start in the order in which a dispatcher starts them; the same beginning and the
same luck give the same run.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, tzinfo
from math import inf
from typing import NamedTuple

import msgspec

from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.front import Front
from taskmill.dispatch.limits import Load
from taskmill.dispatch.picker import Picker
from taskmill.model.attempt import Failed, Succeeded, TryAgain
from taskmill.model.controls import EVERYTHING
from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.machine import ThrottlePolicy
from taskmill.model.queue_state import QueuedTask, Turns
from taskmill.model.status import Ending, OnDependencyFailure
from taskmill.policy.aging import front_size
from taskmill.policy.dependencies import answer_ending
from taskmill.policy.holds import Held, out_of_slots
from taskmill.policy.io_room import expected_io
from taskmill.policy.paused_time import settled
from taskmill.policy.rates import take_for_starts
from taskmill.policy.rules import Rules
from taskmill.policy.verdicts import judge
from taskmill.simulation.agenda import RunAgenda
from taskmill.simulation.beginning import Beginning, Calm
from taskmill.simulation.changes import without_pauses
from taskmill.simulation.lanes import Lanes
from taskmill.simulation.luck import Luck
from taskmill.simulation.recurring import Recurring
from taskmill.simulation.stopping import IS_STOPPED, SimulationStopped

_SUCCESS, _FAILURE = Succeeded("null"), Failed("simulated")


class _Attempt(NamedTuple):
    task: QueuedTask
    began_at: int
    fails: bool
    budget: IoBudget | None


class Simulation:
    """One simulated future of a queue."""

    def __init__(self, beginning: Beginning, luck: Luck, zone: tzinfo = UTC, turns: Turns | None = None) -> None:
        queue = beginning.queue
        self._beginning = beginning
        self._luck = luck
        self.now = queue.now
        self._rules = beginning.rules
        self._changed: dict[int, QueuedTask] = {}
        """Tasks whose times have changed since the beginning, and new occurrences."""
        self._lanes = Lanes(beginning.lanes)
        self._load = Load()
        self._front = Front()
        self._backpressure = Backpressure(self._load, ThrottlePolicy())
        if any(queue.capacity.rates):
            self._backpressure.see(Calm(queue.capacity))
            self._backpressure.remember(queue.moved)
        self.picker = Picker(self._front, self._load, self._knows, self._backpressure)
        self._agenda = RunAgenda()
        self._at: Callable[[int, Callable[[int], None], int], None] = self._agenda.add
        self._running: dict[int, _Attempt] = {}
        self._attempts: Counter[int] = Counter()
        self._retries: dict[int, int] = {}
        self._blockers = dict(beginning.blockers)
        self._held = {parent: list(children) for parent, children in beginning.held.items()}
        self._children: dict[int, int] = {}
        self._recurring = Recurring(queue, zone, self._queue_new, self._at)
        self.starts: dict[int, int] = {}
        """When each task starts first, in the order of the starts."""
        self.waits: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.expired: list[int] = []
        self.busy_ms = 0
        """The time of all attempts together, since the beginning."""
        self.io = NO_IO
        self._left = len(beginning.tasks)
        self.work = 0
        """The number of turns, ended attempts and ended tasks so far: what the cost of a simulation grows with."""
        self.is_cut = False
        """True if the run has ended because it has made as many occurrences of recurring work as it may."""
        self._begin(beginning, queue.turns if turns is None else turns)

    def _knows(self, type: str) -> bool:
        return type not in self._beginning.queue.unknown_types

    def task(self, id: int) -> QueuedTask:
        return self._changed.get(id) or self._beginning.tasks[id]

    @property
    def slots(self) -> int:
        return self._rules.declared.max_concurrency

    @property
    def is_over(self) -> bool:
        """True if every task of the beginning has ended."""
        return not self._left

    @property
    def occurrences(self) -> int:
        """The number of occurrences of recurring work that the simulation has made."""
        return self._recurring.made

    def _is_only_recurring(self) -> bool:
        """True if recurring work can still run, but nothing else can happen to the tasks of the beginning any more."""
        if not self._recurring.is_any or not self._agenda.is_only_recurring:
            return False
        held = self._beginning.is_held
        return not self._lanes.may_start(lambda lane: self._knows(lane.type) and not held(lane.group, lane.type))

    # Beginning

    def _begin(self, beginning: Beginning, turns: Turns | None) -> None:
        queue = beginning.queue
        buckets = queue.controls.buckets if turns is None else turns.buckets
        self.picker.rule(beginning.rules_before, buckets.items(), self.now)
        if self._rules is not beginning.rules_before:
            # Permits carry over to a new rate.
            self.picker.rule(self._rules, (), self.now)
        self._agenda.fill((max(at, self.now), self._due, id) for at, id in beginning.due)
        self._agenda.fill((max(at, self.now), self._expire, id) for at, id in beginning.deadlines())
        for task in beginning.running:
            elapsed = max(self.now - (task.started_at or self.now), 0)
            left, fails = self._luck.left(task.type, task.group, task.id, elapsed)
            self._launch(task, elapsed_ms=elapsed, left_ms=0 if task.stop is not None else left, fails=fails)
        size = front_size(len(beginning.lanes))
        self._front.read({lane: self._lanes.first(lane, size) for lane in beginning.lanes}, size)
        if turns is not None:
            self.picker.take_turns(turns)
        for id in [id for id, blockers in self._blockers.items() if not blockers]:
            self._release(id)
        for id in beginning.stopping:
            self._end_task(id, Ending.CANCELLED)
        self._recurring.begin(self.now)
        self._await_resumption()

    def _await_resumption(self) -> None:
        at = self._rules.next_resumption()
        if at is not None:
            self._at(max(at, self.now), self._resume, 0)

    # Running

    def run(self, until: int, wanted: int | None = None, most_work: float = inf, most_occurrences: float = inf) -> None:
        """Run to ``until``, or until only recurring work happens, ``wanted`` starts or ends, or a limit is reached."""
        is_stopped = IS_STOPPED.get()
        while self.work < most_work:
            if is_stopped():
                raise SimulationStopped
            self.turn()
            self.work += 1
            if self.is_over or (wanted is not None and (wanted in self.starts or wanted in self.ends)):
                return
            if self._is_only_recurring():
                return
            if self.occurrences >= most_occurrences:
                self.is_cut = True
                return
            at = self.next_at()
            if at is None or at > until:
                self.now = until if at is not None else self.now
                return
            self.step_to(at)

    def step_to(self, at: int) -> None:
        """Move the clock, and let everything happen that is due by then."""
        self.now = max(at, self.now)
        self._agenda.happen(self.now)

    def next_at(self) -> int | None:
        """Return when something happens next; None if nothing does."""
        at = self._agenda.next_at
        # A dispatcher computes shares again when a limit ends, even if no slot is free.
        looks = len(self._running) < self.slots or self._rules.is_shared
        if looks and (moment := self.picker.limits.next_moment) is not None:
            at = moment if at is None else min(at, moment)
        return at

    def turn(self) -> None:
        """Start every task that may start now."""
        while True:
            if unread := self._front.unread():
                size = front_size(self._front.lane_count)
                self._front.read({lane: self._lanes.first(lane, size) for lane in unread}, size)
            picked = self.picker.pick(self.slots, self.slots - len(self._running), self.now)
            for pick in picked:
                self._lanes.remove(pick.lane, pick.place)
                self._start(self.task(pick.id), pick.budget)
            if picked and self._rules.limits_anything:
                rates = self.picker.limits.buckets.promised(self._rules)
                taken = take_for_starts(rates, [(pick.group, pick.type) for pick in picked], self.now)
                self.picker.turn_over(taken, all_started=True)
            if len(self._running) >= self.slots or (not picked and not self._front.unread()):
                return

    def hold(self) -> Held | None:
        """Return what holds back the first waiting task; None if none waits, or if only other tasks hold it back."""
        if (held := out_of_slots(len(self._running), self.slots)) is not None:
            return held if self._front.groups else None
        for group, lanes in self._front.groups.items():
            holds = [self.picker.limits.group_hold(group), *(self.picker.limits.type_hold(lane.type) for lane in lanes)]
            if (held := next((held for held in holds if held is not None), None)) is not None:
                return held
        if not self._front.groups or self._rules.is_paused(EVERYTHING):
            return Held("scheduler_paused") if self._front.groups else None
        return Held("io" if self._backpressure.is_watching else "share")

    # Attempts

    def _start(self, task: QueuedTask, budget: IoBudget | None) -> None:
        id = task.id
        if id not in self.starts:
            self.starts[id] = self.now
            self.waits[id] = self.now - task.queued_at
            if task.io is not None:
                moved = expected_io(task.io, self._beginning.queue.moved.get(task.type))
                self.io = self.io if moved is None else self.io + moved
        self._attempts[id] += 1
        drawn = self._luck.draw(task.type, task.group, id, task.retries + self._attempts[id])
        self._running[id] = _Attempt(task, self.now, drawn.fails, budget)
        if task.cron is not None:
            self._recurring.claimed(task.cron, self.now)
        self._at(self.now + drawn.duration_ms, self._attempt_ends, id)

    def _launch(self, task: QueuedTask, *, elapsed_ms: int, left_ms: int, fails: bool) -> None:
        """Continue an attempt that runs at the beginning."""
        budget = self._backpressure.budget_of(task.type, task.io)
        self._load.begin(task.group, task.type, budget)
        self._running[task.id] = _Attempt(task, self.now - elapsed_ms, fails, budget)
        self._at(self.now + left_ms, self._attempt_ends, task.id)

    def _attempt_ends(self, id: int) -> None:
        task = (attempt := self._running.pop(id)).task
        self.work += 1
        self._note_busy(attempt)
        self.picker.shares.ended(task.group, self.now - attempt.began_at)
        self._load.end(task.group, task.type, attempt.budget)
        retries = self._retries.get(id, task.retries)
        verdict = judge(
            _FAILURE if attempt.fails else _SUCCESS,
            retry=self._beginning.retry_of(task),
            retries=retries,
            crashes=0,
            now=self.now,
            random=self._luck.jitter(id, retries),
        )
        if task.stop is not None:
            self._end_task(id, Ending.CANCELLED)
        elif isinstance(verdict, TryAgain):
            self._retries[id] = retries + 1
            if verdict.due_at is None:
                self._queue(task)
            else:
                self._at(verdict.due_at, self._due, id)
        else:
            self._end_task(id, Ending.DEAD_LETTER if attempt.fails else Ending.COMPLETED)

    def _note_busy(self, attempt: _Attempt) -> None:
        self.busy_ms += self.now - max(attempt.began_at, self._beginning.now)

    def stop(self) -> None:
        """Count the time of the attempts that still run."""
        for attempt in self._running.values():
            self._note_busy(attempt)

    def _end_task(self, id: int, ending: Ending, *, contained: bool = False) -> None:
        """End a task, and release or end the tasks that wait for it."""
        if id in self.ends:
            return
        task = self.task(id)
        self.work += 1
        self.ends[id] = self.now
        self._left -= id in self._beginning.tasks
        for changed in self._beginning.lending.after(id, self.task, self.ends):
            self._move(changed)
        for dependent in self._beginning.blocks.get(id, ()):
            is_gated = self.task(dependent).gate_id == id
            policy = self.task(dependent).on_dependency_failure or OnDependencyFailure.CANCEL
            answer = "met" if is_gated else answer_ending(ending, policy, contained=contained)
            if answer == "met":
                self._unblock(dependent)
            else:
                self._end_task(dependent, Ending.DEPENDENCY_FAILED, contained=answer == "fails alone")
        if task.parent_id is not None:
            self._child_ended(task.parent_id)
        self._recurring.ended(task, ending, self.now)

    def _child_ended(self, parent_id: int) -> None:
        if held := self._held.get(parent_id):
            self._unblock(held.pop(0))
        parent = self._beginning.tasks.get(parent_id)
        if parent is None or parent_id in self._running:
            return
        left = self._children.get(parent_id, parent.children) - 1
        self._children[parent_id] = left
        if left <= 0 and parent_id not in self.ends and parent.status == "waiting":
            self._end_task(parent_id, Ending.COMPLETED)

    # Queueing

    def _unblock(self, id: int) -> None:
        left = self._blockers[id] = self._blockers.get(id, 1) - 1
        if not left and id not in self.ends:
            self._release(id)

    def _release(self, id: int) -> None:
        task = self.task(id)
        if task.due_at is not None and task.due_at > self.now:
            self._at(task.due_at, self._due, id)
        else:
            self._queue(task)

    def _due(self, id: int) -> None:
        if id not in self.ends:
            self._queue(self.task(id))

    def _queue(self, task: QueuedTask) -> None:
        lane, place = task.lane, task.place
        self._lanes.add(lane, place)
        self._front.add(lane, place)

    def _move(self, task: QueuedTask) -> None:
        """Change the urgency of a task, and its lane if it is in the queue."""
        before = self.task(task.id)
        self._changed[task.id] = task
        if self._lanes.has(before.lane, before.place):
            self._front.drop(before.lane, before.place)
            self._lanes.remove(before.lane, before.place)
            self._queue(task)

    def _queue_new(self, task: QueuedTask, due_at: int | None) -> None:
        """Add an occurrence of recurring work."""
        self._changed[task.id] = task
        if task.expires_at is not None:
            self._at(task.expires_at, self._expire, task.id)
        if due_at is None or due_at <= self.now:
            self._queue(task)
        else:
            self._at(due_at, self._due, task.id)

    def _expire(self, id: int) -> None:
        task = self.task(id)
        if id in self.starts or id in self.ends or id in self._running or task.expires_at is None:
            return
        if task.expires_at > self.now or any(
            pause.holds(self.now) for pause in self._rules.pauses(task.group, task.type).values()
        ):
            return  # its deadline has moved, or stands still
        if task.lane in self._front.of(task.group):
            self._front.drop(task.lane, task.place)
            self._lanes.remove(task.lane, task.place)
        self.expired.append(id)
        self._end_task(id, Ending.EXPIRED)

    # Pauses

    def _resume(self, _id: int) -> None:
        """End the pauses whose time is over, and give their time back to the tasks that waited."""
        controls = self._rules.controls
        over = {scope: pause for scope, pause in controls.pauses.items() if not pause.holds(self.now)}
        if over:
            self._rules = without_pauses(self._rules, over)
            for lane in self._lanes.names():
                if self._rules.owed(lane.group, lane.type):
                    for place in self._lanes.take_all(lane):
                        self._settle(self.task(place.id))
                    self._front.doubt([lane])
            paid = msgspec.structs.replace(self._rules.controls, ended_pauses=())
            self._rules = Rules(self._rules.declared, paid)
            self.picker.rule(self._rules, (), self.now)
        self._await_resumption()

    def _settle(self, task: QueuedTask) -> None:
        times = settled(task, self._rules)
        if times is not None:
            queued_at, renewed_at, expires_at, paused_at = times
            task = msgspec.structs.replace(
                task, queued_at=queued_at, renewed_at=renewed_at, expires_at=expires_at, paused_at=paused_at
            )
            self._changed[task.id] = task
            if task.may_expire and expires_at is not None:
                self._at(expires_at, self._expire, task.id)
        self._lanes.add(task.lane, task.place)
