"""All attempts of this scheduler that are alive, and the steps that each of them takes.

Step by step:

1. :meth:`Attempts.launch` chooses the first step.
2. ``_start_finalize`` fetches the records of the children, for a ``finalize`` that wants them.
3. ``_start`` calls the handler and sets its timeout.
4. :meth:`Attempts.stop` asks the handler to stop, on request or at its timeout.
5. ``_handler_ended`` turns the end of the handler into an outcome.
6. ``_clean_up`` runs ``on_cancel``, if the task itself was stopped.
7. ``_hand_on`` frees the slot and delivers the outcome, exactly once.

Code that ignores a request to stop lingers after step 7: ``_linger`` and ``_leave`` keep its slot until it has ended.
The dispatcher enforces all time limits, so that they follow the scheduler's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from taskmill.core.exits import ends_program
from taskmill.core.logs import about, logger
from taskmill.core.ports import Clock, Dispatches
from taskmill.define.registry import RegisteredType, Registry
from taskmill.define.task import PartName
from taskmill.dispatch.limits import Load
from taskmill.errors import StoreError
from taskmill.execute.tracebacks import details_of
from taskmill.execute.work import error_text, outcome_of_exception
from taskmill.model.attempt import Failed, Interrupted, Outcome, RawOutcome, Stopped, StopReason, Succeeded, Unrunnable
from taskmill.model.records import TaskRecord
from taskmill.model.settings import Aging
from taskmill.model.task import Claimed
from taskmill.policy.aging import effective_priority
from taskmill.policy.verdicts import settled
from taskmill.runtime.attempt import Attempt, Deadlines, Phase, Spawner
from taskmill.runtime.executors import Executors

ABANDON_HOOK_AFTER = 1.0
"""Seconds of real time that a hook has to end after a shutdown has cancelled it, before it is abandoned."""

Deliver = Callable[[Attempt, Outcome], None]

# Python 3.11 is slow to look up members of an enum, and every attempt needs these.
_RUNNING, _HANDLER_LINGERS, _ENDED = Phase.RUNNING, Phase.HANDLER_LINGERS, Phase.ENDED


class Attempts:
    """All attempts of this scheduler that are alive."""

    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        executors: Executors,
        cancel_timeout: float,
        store: Dispatches,
        spawner: Spawner,
        deliver: Deliver,
        noticed: Callable[[], None],
        wake: Callable[[], None],
        load: Load,
    ) -> None:
        self.load = load
        self._registry = registry
        self._executors = executors
        self._cancel_timeout = cancel_timeout
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._spawner = spawner
        self._deliver = deliver
        self._noticed = noticed
        self.deadlines = Deadlines(clock, wake)
        self._unknown: set[str] = set()
        """Task types without a handler here; each is logged once."""
        self.open: dict[int, Attempt] = {}
        """Attempts that have no outcome yet and do not linger, by task id."""
        self.lingering: set[Attempt] = set()
        """Attempts in phase ``HANDLER_LINGERS`` or ``HOOK_LINGERS``; each still holds its slot."""
        self._fetches: dict[asyncio.Task[None], Attempt] = {}
        """The attempts for which the records of children are being read, by the asyncio task that reads them."""
        self._when_quiet: Callable[[], None] | None = None

    # Called by the dispatcher

    def knows(self, type: str) -> bool:
        """True if this scheduler has a handler for the task type; if not, log that once."""
        if self._registry.find(type) is not None:
            return True
        if type not in self._unknown:
            self._unknown.add(type)
            logger.warning("no handler for %s is registered here; its tasks wait", type)
        return False

    def task_ids(self) -> list[int]:
        """Return the tasks that hold a slot here, lingering ones included."""
        return [*self.open, *(attempt.task.id for attempt in self.lingering)]

    @property
    def slots_taken(self) -> int:
        return len(self.open) + len(self.lingering)

    def with_live_progress(self, record: TaskRecord) -> TaskRecord:
        """Return the record with the progress that its running attempt has reported, if any."""
        attempt = self.open.get(record.id)
        if attempt is not None and attempt.task.prefetched:
            # The store does not know yet that it has begun.
            return msgspec.structs.replace(attempt.record(), errors=record.errors)
        if attempt is None or attempt.task.attempt != record.attempt:
            return record
        live, guess = attempt.current_progress(), record.progress
        if live is None:
            return record
        if live.fraction is None and guess is not None:
            live = msgspec.structs.replace(live, fraction=guess.fraction, eta=live.eta or guess.eta)
        return msgspec.structs.replace(record, progress=live)

    def note_awaited(self, ids: Iterable[int | str]) -> None:
        """Note that new tasks depend on these tasks, some of which may be running here."""
        for id in ids:
            if isinstance(id, int) and id in self.open:
                self.open[id].task.is_tied = 1

    def note_urgencies(self, rows: Iterable[tuple[int, int, int]], aging: Aging | None) -> None:
        """Update the urgency of running tasks from rows ``(id, priority, urgency)``."""
        for id, priority, urgency in rows:
            if (attempt := self.open.get(id)) is not None and attempt.task.urgency != urgency:
                attempt.task.priority, attempt.task.urgency = priority, urgency
                task = attempt.task
                task.effective = effective_priority(aging, urgency, task.started_at - task.aged_from)

    def clock_stepped(self, by_ms: int) -> None:
        """Shift the stored times of running tasks by a step of the wall clock, so that durations keep their length."""
        for attempt in self.open.values():
            attempt.task.shift(by_ms)

    # Starting

    def launch(self, task: Claimed, type: RegisteredType, now: float) -> None:
        """Start the handler, the ``finalize`` or the ``on_cancel`` hook of a claimed task, which holds a slot."""
        attempt = Attempt(task, type, now, self._store.save, self._spawner, self._noticed, self._loop)
        self.open[task.id] = attempt
        unreadable = attempt.read_overrides(task.overrides) if task.overrides else None
        if task.stop is not None:
            attempt.stop(StopReason(task.stop))
            # If this is the first attempt, the task was prefetched and has never begun. Otherwise its handler ended
            # earlier: the children had to end first, or the process died.
            self._hand_on(attempt, attempt.stopped()) if task.attempt == 1 else self._clean_up(attempt)
        elif unreadable is not None:
            self._cannot_start(attempt, Unrunnable(unreadable))
        elif not task.finalizes:
            self._start(attempt, "main")
        elif type.handler.finalize is None:
            # The type had a finalize when the handler ran.
            self._handler_ended(attempt, Succeeded("null"))
        elif type.handler.finalize.wants_context:
            fetch = self._loop.create_task(self._start_finalize(attempt))
            self._fetches[fetch] = attempt
            fetch.add_done_callback(self._fetches.pop)
        else:
            self._start(attempt, "finalize")

    async def _start_finalize(self, attempt: Attempt) -> None:
        """Fetch the records of the children, which ``finalize`` may read, and start it."""
        try:
            attempt.children = await self._store.children(attempt.task.id)
        except StoreError as wrong:
            self._handler_ended(attempt, Failed(f"its children could not be read: {wrong}"))
            return
        except asyncio.CancelledError:
            self._handler_ended(attempt, Interrupted(from_outside=True))
            raise
        if attempt.phase is Phase.STARTING:
            self._start(attempt, "finalize")
        else:
            self._handler_ended(attempt, Interrupted())

    def _start(self, attempt: Attempt, part: PartName) -> None:
        if self._store.is_cut_off():
            # This node was suspended since the claim. The task returns to the queue, if it still belongs to this node.
            attempt.stop(StopReason.CUT_OFF)
            self._handler_ended(attempt, Interrupted())
            return
        try:
            attempt.running = self._executors.start(attempt, part, partial(self._handler_ended, attempt))
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            # The task's own data or types may raise anything.
            self._cannot_start(attempt, Unrunnable(error_text(wrong), details_of(wrong)))
            return
        attempt.enter(_RUNNING)
        if (timeout_ms := attempt.timeout_ms) is not None:
            self.deadlines.add(timeout_ms / 1000, "handler", attempt)

    def _cannot_start(self, attempt: Attempt, why: Unrunnable) -> None:
        _warn(attempt, "task %d (%s) cannot start: %s", why.error)
        self._hand_on(attempt, msgspec.structs.replace(why, error=f"the task cannot start: {why.error}"))

    # Stopping

    def stop(self, id: int, reason: StopReason) -> None:
        """Ask a running attempt to stop; its outcome follows."""
        attempt = self.open.get(id)
        if attempt is None or attempt.ends_task or (attempt.stop_reason is not None and not reason.ends_task):
            return
        attempt.stop(reason)
        self.deadlines.add(self._cancel_timeout, "stopping", attempt)
        self._noticed()

    def stop_prefetched(self, task: Claimed, reason: StopReason, now: float) -> None:
        """End a task that was asked to stop before it began, and so has nothing to clean up."""
        if (type := self._registry.find(task.type)) is not None:
            task.prefetched, task.stop = 0, reason
            self.launch(task, type, now)

    def stop_after_verdict(self, attempt: Attempt, reason: StopReason) -> None:
        """Stop an attempt whose verdict the store refused, because a request to stop had been committed earlier."""
        attempt.stop_reason, attempt.outcome = reason, None
        if attempt.phase is Phase.ENDED:
            attempt.enter(Phase.STOPPING)
            self.open[attempt.task.id] = attempt
            self.load.begin(attempt.task.group, attempt.task.type, attempt.task.budget)
            self._stopped(attempt)
        elif attempt.has_family or not _has_hook(attempt):
            self._stopped(attempt)
        # Else it lingers, because this scheduler is shutting down: the next dispatcher runs the hook.

    def enforce_deadlines(self) -> None:
        for deadline in self.deadlines.missed():
            attempt = deadline.attempt
            match deadline.limits:
                case "handler":
                    self.stop(attempt.task.id, StopReason.TIMEOUT)
                case "stopping":
                    self._handler_ignores_stop(attempt)
                case "hook":
                    self._hook_exceeds_limit(attempt)

    def _handler_ignores_stop(self, attempt: Attempt) -> None:
        task, limit, reason = attempt.task, self._cancel_timeout, attempt.stop_reason
        _warn(
            attempt,
            "task %d (%s) was asked to stop (%s) and still runs after %g s; its slot stays taken until it ends",
            reason,
            limit,
        )
        if attempt.running is not None:
            attempt.running.interrupt()
        self.deadlines.add(limit, "stopping", attempt)
        # The next task with the same key must not run beside this handler, nor must the next firing of a cron task.
        has_successor = task.key is not None or task.cron is not None
        if attempt.phase is Phase.STOPPING and reason is StopReason.CANCEL and not has_successor:
            self._linger(attempt, Phase.HANDLER_LINGERS)
            attempt.add_note(f"did not stop within {limit:g} s of being cancelled")
            self._stopped(attempt)

    # Ending

    def _handler_ended(self, attempt: Attempt, raw: RawOutcome) -> None:
        # Break the reference cycle of attempt and handler, so that both are freed now and not by the garbage collector.
        attempt.running = None
        if attempt.phase is _HANDLER_LINGERS:
            self._leave(attempt)
        elif attempt.stop_reason is None:
            self._hand_on(attempt, settled(raw, None))
        elif attempt.stop_reason.ends_task:
            self._stopped(attempt)
        else:
            self._hand_on(attempt, settled(raw, attempt.stop_reason, attempt.timeout_ms))

    def _stopped(self, attempt: Attempt) -> None:
        """End an attempt whose task ends. Children end before their parents, and a parent's hook runs after that."""
        if attempt.has_family:
            self._hand_on(attempt, attempt.stopped(awaits_children=True))
        else:
            self._clean_up(attempt)

    def _clean_up(self, attempt: Attempt) -> None:
        if not _has_hook(attempt):
            self._hand_on(attempt, attempt.stopped())
            return
        if attempt.phase is Phase.STOPPING:
            attempt.enter(Phase.CLEANING_UP)
        self._start_hook(attempt)

    def _start_hook(self, attempt: Attempt) -> None:
        ended = partial(self._hook_ended, attempt)
        try:
            attempt.hook = self._executors.start_hook(attempt, ended)
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            # The task's own data or types may raise anything.
            ended(outcome_of_exception(wrong))
            return
        self.deadlines.add(self._hook_limit(attempt), "hook", attempt)

    def _hook_limit(self, attempt: Attempt) -> float:
        """Return the seconds that a hook may take: ``cancel_timeout``, or the task's timeout if that is shorter."""
        timeout_ms = attempt.timeout_ms
        return self._cancel_timeout if timeout_ms is None else min(self._cancel_timeout, timeout_ms / 1000)

    def _hook_ended(self, attempt: Attempt, raw: RawOutcome) -> None:
        attempt.hook = None
        if attempt.phase is Phase.HOOK_LINGERS:
            self._leave(attempt)
        elif attempt.outcome is None:
            match raw:
                case Interrupted(from_outside=True):
                    # It was cancelled, but not by the scheduler: it has to run again.
                    self._hand_on(attempt, Stopped(StopReason.OUTSIDE))
                    return
                case Succeeded():
                    pass
                case _:
                    self._hook_failed(attempt, f"on_cancel failed: {getattr(raw, 'error', 'CancelledError')}")
            self._hand_on(attempt, attempt.stopped())

    def _hook_exceeds_limit(self, attempt: Attempt) -> None:
        if attempt.hook is not None:
            attempt.hook.interrupt()
            attempt.hook = None
        self._hook_failed(attempt, f"on_cancel did not end within {self._hook_limit(attempt):g} s")
        self._hand_on(attempt, attempt.stopped())

    def _hook_failed(self, attempt: Attempt, problem: str) -> None:
        _warn(attempt, "task %d (%s): %s", problem)
        attempt.add_note(problem)

    def _hand_on(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.outcome is not None:
            return
        attempt.outcome = outcome
        if self.open.get(attempt.task.id) is attempt:
            del self.open[attempt.task.id]
            self._free_slot(attempt)
        self._deliver(attempt, outcome)

    def _free_slot(self, attempt: Attempt) -> None:
        attempt.enter(_ENDED)
        self.load.end(attempt.task.group, attempt.task.type, attempt.task.budget)

    # Lingering, and shutting down

    def _linger(self, attempt: Attempt, phase: Phase) -> None:
        """Stop waiting for code that does not end. The attempt keeps its slot until the code ends."""
        attempt.enter(phase)
        del self.open[attempt.task.id]
        self.lingering.add(attempt)

    def _leave(self, attempt: Attempt) -> None:
        """Free the slot of lingering code that has ended."""
        self.lingering.remove(attempt)
        self._free_slot(attempt)
        self._noticed()
        self._check_quiet()

    def give_up(self, attempt: Attempt) -> None:
        """Stop waiting for an attempt and abandon its code, so that the code does not keep the program alive."""
        is_cleaning_up = attempt.phase is Phase.CLEANING_UP
        self._linger(attempt, Phase.HOOK_LINGERS if is_cleaning_up else Phase.HANDLER_LINGERS)
        if attempt.running is not None:
            attempt.running.interrupt()
        if attempt.hook is not None:
            attempt.hook.interrupt()
            self._loop.call_later(ABANDON_HOOK_AFTER, attempt.hook.interrupt)
            attempt.hook = None
        for fetch, owner in self._fetches.items():
            if owner is attempt:
                fetch.cancel()

    def return_given_up(self, attempt: Attempt) -> None:
        """Return to the queue the task of an attempt that was given up."""
        self._hand_on(attempt, Stopped(StopReason.SHUTDOWN))

    def when_quiet(self, callback: Callable[[], None]) -> None:
        """Call back once no attempt lingers."""
        self._when_quiet = callback
        self._check_quiet()

    def _check_quiet(self) -> None:
        if self._when_quiet is not None and not self.lingering:
            callback, self._when_quiet = self._when_quiet, None
            callback()


def _has_hook(attempt: Attempt) -> bool:
    """True if ``on_cancel`` runs for this attempt; it does not if a child's failure fails the task."""
    return attempt.type.handler.on_cancel is not None and attempt.stop_reason is not StopReason.FAIL


def _warn(attempt: Attempt, message: str, *values: object) -> None:
    """Log a warning whose message starts with ``task %d (%s)``."""
    task = attempt.task
    logger.warning(message, task.id, task.type, *values, extra=about(task))
