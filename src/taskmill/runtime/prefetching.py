"""When prefetched tasks begin (:mod:`taskmill.dispatch.prefetch`): in the order of the queue, as slots become free.

No prefetched task begins before a more urgent task has its slot. An attempt that did not succeed, or that other tasks
wait for, keeps its slot until its verdict is committed. If a rule changes, the pressure rises, a deadline passes or no
slot becomes free in time, prefetched tasks return to the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from taskmill.core.ports import Clock, Dispatches
from taskmill.define.registry import RegisteredType
from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.waiting import WaitingTasks
from taskmill.model.attempt import Outcome, StopReason, Succeeded
from taskmill.model.commit import Commit
from taskmill.model.status import PENDING
from taskmill.model.task import Claimed
from taskmill.model.turn import Turn, TurnResult
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.attempts import Attempts
from taskmill.runtime.planning import Planner, is_past
from taskmill.runtime.upkeep import STORE_RETRY

PATIENCE = 0.005
"""How long, in seconds, the result of a turn may wait until a handler ends."""
SHORT = 4
"""Iterations of the event loop in which a short task begins and ends, if its handler yields at most once."""


async def let_handlers_run() -> None:
    """Let handlers run that were started. One that never waits needs two iterations: to run, and to report its end."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def _keeps_slot(attempt: Attempt, outcome: Outcome) -> bool:
    """True if the task may run again at once, or if other tasks wait for it. These start before prefetched ones.

    Children do not count: only the last one releases the parent, so all others would keep their slots for nothing.
    """
    return not isinstance(outcome, Succeeded) or (bool(attempt.task.is_tied) and attempt.task.parent_id is None)


class Prefetching:
    """Begins prefetched tasks, stops them, and returns them to the queue."""

    def __init__(
        self,
        store: Dispatches,
        waiting: WaitingTasks,
        planner: Planner,
        attempts: Attempts,
        backpressure: Backpressure,
        clock: Clock,
        slots: Callable[[], int],
        may_start: Callable[[int, float], bool],
        start: Callable[[Claimed, float], None],
    ) -> None:
        self._store = store
        self._waiting = waiting
        self._prefetch = waiting.prefetch
        self._planner = planner
        self._attempts = attempts
        self._backpressure = backpressure
        self._clock = clock
        self._slots = slots
        self._may_start = may_start
        self._start = start
        self._slots_kept = 0
        """Slots of ended attempts whose verdicts must be committed before a prefetched task takes the slot."""
        self._is_beginning = self._begins_soon = False
        self._is_patient = False
        """True if the result of the last turn could wait until a handler ends."""
        self._in_one_call = store.is_cluster
        """True if the store committed the last turn in one call, or waits for a server."""
        self._beginnings: list[tuple[int, int, int]] = []
        """``(id, attempt, began at)`` of tasks whose beginning is not yet written."""
        self._loop = asyncio.get_running_loop()

    def follow(self, commit: Commit) -> None:
        """Note the tasks that a commit has put into the queue."""
        if not self._prefetch.tasks:
            return
        awaited = {on for _, task in commit.fresh if task.links is not None for on in task.links.depends_on}
        for prefetched in self._prefetch.tasks if awaited else ():
            prefetched.is_tied = prefetched.is_tied or prefetched.id in awaited
        fresh = (
            (task.group, (task.priority, task.queued_at, task.place_id or id))
            for id, task in commit.fresh
            if task.status is PENDING
        )
        released = ((task.group, task.rank) for task in commit.released)
        self._prefetch.first_waiting = self._prefetch.first_waiting.plus((*fresh, *released))
        if commit.reordered:
            # A task that waits for prefetched ones may have made them more urgent.
            self._planner.return_prefetched()

    def is_patient(self, turn: Turn) -> bool:
        """True if the result of a turn may wait until a handler ends (docs/decisions/0044).

        All slots are taken, so no task can start earlier, and the last handlers took a few milliseconds.
        """
        starts, upkeep = turn.starts, turn.upkeep
        needs_result = starts.hooks or starts.preempt is not None or upkeep.is_due() or turn.look.survey or turn.returns
        self._is_patient = (
            self._attempts.slots_taken >= self._slots()
            and not (needs_result or self._planner.serves_readers)
            and bool(turn.judged)
            and all(self._prefetch.takes_long(each.task.type) for each in turn.judged)
        )
        return self._is_patient

    def attempt_ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """Begin tasks in the next iteration of the event loop, in the slots of all attempts that end in this one."""
        if self._is_patient:
            self._store.fetch()
        self._slots_kept += _keeps_slot(attempt, outcome)
        if self._prefetch.tasks and not self._begins_soon:
            self._begins_soon = True
            self._loop.call_soon(self._begin_soon)

    async def let_short_handlers_end(self) -> None:
        """Let tasks run one after the other while some end immediately: one turn commits all their verdicts."""
        while self._is_plentiful and self._prefetch.may_begin and not self._planner.readers:
            if self._waiting.due.is_past(self._clock.now_ms()):
                return
            before = len(self._planner.outcomes)
            for _ in range(SHORT):
                await asyncio.sleep(0)
                if len(self._planner.outcomes) > before:
                    break
            else:
                return

    @property
    def _is_plentiful(self) -> bool:
        """True if slots stay busy for a while without another turn.

        A turn that is written beside the handlers begins while half of the tasks are left.
        """
        return self._prefetch.has_half if self._runs_beside else bool(self._prefetch.tasks)

    @property
    def _runs_beside(self) -> bool:
        """True if handlers can run while a turn is committed."""
        return self._in_one_call and self._store.writes_beside(self._prefetch.full)

    @property
    def turns_follow(self) -> bool:
        """True if the next turn is to be planned before handlers run.

        Then at least as many verdicts wait for it as prefetched tasks are left to begin beside it.
        """
        return self._runs_beside and 0 < len(self._prefetch.tasks) <= len(self._planner.outcomes)

    async def store_beginnings(self) -> None:
        """Store which tasks have begun, so that a reader of the store sees them as running.

        It must not see more running tasks than there are slots. So if verdicts wait for a turn, that turn stores both.
        """
        begun = self._prefetch.to_store()
        if begun and not self._planner.outcomes:
            # The verdicts of a turn under way are committed first.
            await self._store.note_begun(begun)
            self._prefetch.stored(begun)
        elif begun:
            reader = asyncio.Future[None]()
            self._planner.readers.append(reader)
            # The loop may be about to end.
            await asyncio.wait([reader], timeout=STORE_RETRY)

    def turn_committed(self, turn: Turn, result: TurnResult) -> None:
        """Add the tasks that a turn has prefetched, and begin as many as there are free slots."""
        self._prefetch.stored(turn.begun)
        self._planner.turn_committed(turn, result)
        self._in_one_call = result.in_one_call or self._store.is_cluster
        self._prefetch.add((task for task in result.claimed if task.prefetched), self._clock.monotonic())
        self._slots_kept = sum(_keeps_slot(attempt, outcome) for attempt, outcome in self._planner.outcomes)
        if result.controls is not None:
            self._planner.return_prefetched()
        self.begin_after_turn()

    def begin_after_turn(self) -> None:
        """Begin tasks that waited for a turn, unless others start before them."""
        self._waiting.hold_prefetched(self._slots(), self._clock.now_ms())
        self.begin()

    def _begin_soon(self) -> None:
        self._begins_soon = False
        self.begin()

    def begin(self) -> None:
        """Begin tasks in the free slots."""
        tasks = self._prefetch.tasks
        if self._is_beginning or not tasks:
            return
        self._is_beginning = True  # A handler that cannot start ends at once, which calls this method again.
        free = self._slots() - self._attempts.slots_taken - self._slots_kept
        now, monotonic = self._clock.now_ms(), self._clock.monotonic()
        may_start = free <= 0 or self._may_start(now, monotonic)
        while free > 0 and self._prefetch.may_begin:
            if self._waiting.due.come_before(tasks[0], now):
                # The next turn releases tasks that may be more urgent.
                break
            is_held_back = self._backpressure.holds_back(tasks[0].effective)
            if is_past(tasks[0].expires_at, now) or is_held_back or not may_start:
                self._planner.return_prefetched()
                break
            task = self._prefetch.begin(monotonic)
            task.started_at = now
            self._start(task, monotonic)
            free -= 1
        self._is_beginning = False

    def note_beginning(self, task: Claimed, type: RegisteredType) -> None:
        """Have the store write that a task begins, before any code of the task runs.

        Handlers that begin in this iteration of the event loop run in the next one, after the callback that is
        scheduled here with the first of them. So one write serves all of them. A thread, a process or an eager task
        factory runs the handler at once.
        """
        self._beginnings.append((task.id, task.attempt, task.started_at))
        is_async = type.handler.main.is_async and not type.in_process
        if not is_async or self._loop.get_task_factory() is not None:
            self._write_beginnings()
        elif len(self._beginnings) == 1:
            self._loop.call_soon(self._write_beginnings)

    def _write_beginnings(self) -> None:
        begun, self._beginnings = self._beginnings, []
        if begun:
            self._store.note_beginnings(begun)

    def withhold(self, ids: Collection[int]) -> list[Claimed]:
        """Remove and return those of the given tasks that have not begun, so that they cannot begin."""
        withheld = [task for task in self._prefetch.tasks if task.id in ids]
        for task in withheld:
            self._prefetch.remove(task.id)
            self._attempts.load.end(task.group, task.type, task.budget)
        return withheld

    def return_withheld(self, tasks: Sequence[Claimed]) -> None:
        """Return withheld tasks to the queue with the next turn, where they end if they were asked to stop.

        All other prefetched tasks return too, so that none of them begins before an older one.
        """
        self._planner.returns += tasks
        self._planner.return_prefetched()

    def stop(self, id: int, reason: StopReason) -> bool:
        """End a task that has not begun; return False if there is none with this id."""
        task = self._prefetch.remove(id) if reason.ends_task else None
        if task is not None:
            self._attempts.stop_prefetched(task, reason, self._clock.monotonic())
        return task is not None
