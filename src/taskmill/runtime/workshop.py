"""The workshop: starts attempts, asks them to stop, runs their hooks, and hands each outcome on exactly once.

Deadlines (timeouts, and how long a handler may ignore being asked to stop) are kept here and looked at by the loop,
so that they follow the scheduler's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial

import msgspec

from taskmill.define.registry import RegisteredType
from taskmill.define.task import PartName
from taskmill.dispatch.load import Load
from taskmill.errors import StoreError
from taskmill.execute.results import error_text
from taskmill.execute.work import Work
from taskmill.exits import ends_program
from taskmill.model.aging import Aging
from taskmill.model.outcome import Failed, Interrupted, Outcome, RawOutcome, Stopped, StopReason, Succeeded, Unrunnable
from taskmill.model.records import TaskRecord
from taskmill.model.stages import Claimed
from taskmill.observe.log import about, logger
from taskmill.policy.aging import effective_priority
from taskmill.policy.outcomes import settled
from taskmill.ports import Clock, Store
from taskmill.runtime.attempt import Attempt, Spawner
from taskmill.runtime.deadlines import Deadlines
from taskmill.runtime.executors import Executors
from taskmill.runtime.hooks import HookInterrupted, Hooks

Deliver = Callable[[Attempt, Outcome], None]


class Workshop:
    """All attempts of this scheduler that are alive."""

    def __init__(
        self,
        clock: Clock,
        executors: Executors,
        cancel_timeout: float,
        store: Store,
        spawner: Spawner,
        deliver: Deliver,
        noticed: Callable[[], None],
        wake: Callable[[], None],
        load: Load,
    ) -> None:
        self.load = load
        self._executors = executors
        self._cancel_timeout = cancel_timeout
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._spawner = spawner
        self._deliver = deliver
        self._noticed = noticed
        self._deadlines = Deadlines(clock, wake)
        self._hooks = Hooks(clock, executors, cancel_timeout)
        self._helpers: dict[asyncio.Task[None], Attempt] = {}
        """What works for an attempt beside its handler."""
        self.attempts: dict[int, Attempt] = {}
        """Attempts without an outcome, by task id."""
        self._when_quiet: Callable[[], None] | None = None
        self.lingering: set[Attempt] = set()
        """Attempts whose ending is settled but whose handler has not ended; each still holds its slot."""
        self._unreturned: list[Attempt] = []
        """Attempts that did not stop with the scheduler, and whose tasks are still marked as running."""

    def when_quiet(self, callback: Callable[[], None]) -> None:
        """Call back once no handler lingers."""
        self._when_quiet = callback
        self._check_quiet()

    def _check_quiet(self) -> None:
        if self._when_quiet is not None and not self.lingering:
            callback, self._when_quiet = self._when_quiet, None
            callback()

    def with_live_progress(self, record: TaskRecord) -> TaskRecord:
        attempt = self.attempts.get(record.id)
        if attempt is None or attempt.task.attempt != record.attempt:
            return record
        live, guess = attempt.current_progress(), record.progress
        if live is None:
            return record
        if live.fraction is None and guess is not None:
            live = msgspec.structs.replace(live, fraction=guess.fraction, eta=live.eta or guess.eta)
        return msgspec.structs.replace(record, progress=live)

    def note_awaited(self, ids: Iterable[int | str]) -> None:
        """New tasks depend on these; some may be running here."""
        for id in ids:
            if isinstance(id, int) and id in self.attempts:
                self.attempts[id].task.is_tied = 1

    def note_urgencies(self, rows: Iterable[tuple[int, int, int]], aging: Aging | None) -> None:
        """Running tasks may be more or less urgent now: ``(id, priority, urgency)``."""
        for id, priority, urgency in rows:
            if (attempt := self.attempts.get(id)) is not None and attempt.task.urgency != urgency:
                attempt.task.priority, attempt.task.urgency = priority, urgency
                task = attempt.task
                task.effective = effective_priority(aging, urgency, task.started_at - task.place.aged_from)

    def clock_stepped(self, by_ms: int) -> None:
        """Nobody has waited longer or shorter for it."""
        for attempt in self.attempts.values():
            attempt.task.shift(by_ms)

    def at_work(self) -> list[int]:
        """The tasks that are being run here, also those that are about to end."""
        return [*self.attempts, *(attempt.task.id for attempt in self.lingering)]

    @property
    def slots_taken(self) -> int:
        return len(self.attempts) + len(self.lingering)

    def launch(self, task: Claimed, type: RegisteredType, now: float) -> None:
        attempt = Attempt(task, type, now, self._store.save, self._spawner, self._noticed, self._loop)
        self._take_slot(attempt)
        if task.stop is not None:
            # Its children had to end first, or its process died meanwhile: only the hook is left to do.
            attempt.stop_reason = StopReason(task.stop)
            attempt.ended = True
            self._finish_cancelled(attempt, None)
            return
        if attempt.unreadable is not None:
            self._cannot_start(attempt, attempt.unreadable)
        elif not task.finalizes:
            self._start(attempt, "main")
        elif type.handler.finalize is None:
            # There was one when the handler ran.
            self._handler_ended(attempt, Succeeded("null"))
        elif type.handler.finalize.wants_context:
            self._beside(attempt, self._start_finalize(attempt))
        else:
            self._start(attempt, "finalize")

    async def _start_finalize(self, attempt: Attempt) -> None:
        """``finalize`` may read about the children; their records are fetched first."""
        try:
            attempt.children = await self._store.children(attempt.task.id)
        except StoreError as wrong:
            self._handler_ended(attempt, Failed(f"its children could not be read: {wrong}"))
            return
        except asyncio.CancelledError:
            self._handler_ended(attempt, Interrupted(from_outside=True))
            raise
        if attempt.stop_reason is None:
            self._start(attempt, "finalize")
        elif not attempt.delivered:
            self._handler_ended(attempt, Interrupted())

    def _beside(self, attempt: Attempt, work: Coroutine[None, None, None]) -> None:
        """Run what belongs to an attempt and is not its handler."""
        task = self._loop.create_task(work)
        self._helpers[task] = attempt
        task.add_done_callback(self._helpers.pop)

    def _start(self, attempt: Attempt, part: PartName) -> None:
        task, type = attempt.task, attempt.type
        if self._store.is_cut_off():
            # We were suspended since it was claimed. It returns to the queue, if it is still ours.
            attempt.stop(StopReason.CUT_OFF)
            self._handler_ended(attempt, Interrupted())
            return
        try:
            args, kwargs = type.handler.signature.decode(task.payload)
            work = Work(
                type.handler,
                part,
                task.id,
                task.attempt,
                task.payload,
                args,
                kwargs,
                attempt.record,
                attempt.context,
                attempt,
                task.saved,
                task.replaced,
                attempt.children,
            )
            attempt.running = self._executors.choose(type, part).start(work, partial(self._handler_ended, attempt))
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            # The task's own data or types may raise anything.
            self._cannot_start(attempt, error_text(wrong))
            return
        if (timeout_ms := attempt.timeout_ms) is not None:
            self._deadlines.add(timeout_ms / 1000, "timeout", attempt)

    def _cannot_start(self, attempt: Attempt, why: str) -> None:
        task = attempt.task
        logger.warning("task %d (%s) cannot start: %s", task.id, task.type, why, extra=about(task.id, task.type))
        attempt.ended = True
        self._hand_on(attempt, Unrunnable(f"the task cannot start: {why}"))

    def stop(self, id: int, reason: StopReason) -> None:
        """Ask a running attempt to stop; its outcome follows."""
        attempt = self.attempts.get(id)
        if attempt is None or attempt.is_ending or (attempt.stop_reason is not None and not reason.ends_task):
            return
        attempt.stop(reason)
        self._deadlines.add(self._cancel_timeout, "overdue", attempt)
        self._noticed()

    def next_deadline(self) -> float | None:
        return self._deadlines.next_at()

    def enforce_deadlines(self) -> None:
        for deadline in self._deadlines.missed():
            if deadline.kind == "timeout":
                self.stop(deadline.attempt.task.id, StopReason.TIMEOUT)
            else:
                self._overdue(deadline.attempt)

    def _overdue(self, attempt: Attempt) -> None:
        task = attempt.task
        logger.warning(
            "task %d (%s) was asked to stop (%s) and has not for %g s; its slot stays taken until it ends",
            task.id,
            task.type,
            attempt.stop_reason,
            self._cancel_timeout,
            extra=about(task.id, task.type),
        )
        if attempt.running is not None:
            attempt.running.interrupt()
        self._deadlines.add(self._cancel_timeout, "overdue", attempt)
        # A task with a key waits for its handler whatever it takes: whoever has the key next must not run beside it.
        # So does the firing of a cron task, for its next one.
        nobody_follows = task.key is None and task.cron is None
        if attempt.stop_reason is StopReason.CANCEL and nobody_follows and not attempt.recorded:
            self.abandon(attempt)
            self._stopped(attempt, f"did not stop within {self._cancel_timeout:g} s of being cancelled")

    def abandon(self, attempt: Attempt) -> None:
        """Settle the ending of an attempt that will not end; a handler still at work keeps its slot until it does."""
        attempt.recorded = True
        had_slot = self.attempts.pop(attempt.task.id, None) is not None
        if not attempt.ended or attempt in self._hooks.at_work:
            self.lingering.add(attempt)
        elif had_slot:
            self._give_slot_back(attempt)

    def interrupt_for_shutdown(self) -> None:
        """Give up what would not end in time, until it is returned; a hook that is at work will run again."""
        given_up = list(self.attempts.values())
        self._unreturned += given_up
        for attempt in given_up:
            id, type = attempt.task.id, attempt.task.type
            logger.warning("task %d (%s) did not stop for shutdown; it will run again", id, type, extra=about(id, type))
            self.abandon(attempt)
            if attempt.running is not None:
                # It was asked before, and has not listened: nothing of it keeps the program alive.
                attempt.running.interrupt()
            for helper, owner in self._helpers.items():
                if owner is attempt:
                    helper.cancel()

    def return_unwilling(self, *, lingering: bool) -> bool:
        """Return what was given up, what lingers only if nobody begins it meanwhile; whether there was anything."""
        ready = [attempt for attempt in self._unreturned if lingering or attempt not in self.lingering]
        self._unreturned = [attempt for attempt in self._unreturned if attempt not in ready]
        for attempt in ready:
            self._hand_on(attempt, Stopped(StopReason.SHUTDOWN))
        return bool(ready)

    def _handler_ended(self, attempt: Attempt, raw: RawOutcome) -> None:
        attempt.ended = True
        # The two hold each other; apart, they go at once and not when somebody collects garbage.
        attempt.running = None
        if attempt.recorded:
            self._lingers_no_more(attempt)
        elif attempt.is_ending:
            self._stopped(attempt, None)
        else:
            self._hand_on(attempt, settled(raw, attempt.stop_reason, attempt.timeout_ms))

    def _lingers_no_more(self, attempt: Attempt) -> None:
        if attempt in self.lingering:
            self.lingering.remove(attempt)
            self._give_slot_back(attempt)
        self._noticed()
        self._check_quiet()

    def _take_slot(self, attempt: Attempt) -> None:
        self.attempts[attempt.task.id] = attempt
        self.load.begin(attempt.task.group, attempt.task.type, attempt.task.budget)

    def _give_slot_back(self, attempt: Attempt) -> None:
        self.load.end(attempt.task.group, attempt.task.type, attempt.task.budget)

    def stop_after_all(self, attempt: Attempt, reason: StopReason) -> None:
        """The handler is over, but a request to stop was committed before its outcome: the request counts."""
        attempt.stop_reason = reason
        attempt.delivered = False
        self._take_slot(attempt)
        self._stopped(attempt, None)

    def _stopped(self, attempt: Attempt, note: str | None) -> None:
        """An attempt was stopped for good. Children end before their parents, so a parent's hook runs later."""
        if attempt.has_family:
            attempt.hook_waits = True
            self._hand_on(attempt, Stopped(attempt.stop_reason or StopReason.CANCEL, note))
        else:
            self._finish_cancelled(attempt, note)

    def _finish_cancelled(self, attempt: Attempt, note: str | None) -> None:
        if attempt.type.handler.on_cancel is None or attempt.stop_reason is StopReason.FAIL:
            self._hand_on(attempt, Stopped(attempt.stop_reason or StopReason.CANCEL, note))
            return
        self._beside(attempt, self._run_hook(attempt, note))

    async def _run_hook(self, attempt: Attempt, note: str | None) -> None:
        is_left = False

        def ended() -> None:
            if attempt.recorded:
                if attempt.ended:
                    self._lingers_no_more(attempt)
            elif is_left:
                self._hand_on(attempt, Stopped(StopReason.OUTSIDE))

        try:
            problem = await self._hooks.run(attempt, ended)
        except HookInterrupted:
            self._hand_on(attempt, Stopped(StopReason.OUTSIDE))
            return
        except asyncio.CancelledError:
            is_left = True
            if attempt not in self._hooks.at_work:
                ended()
            raise
        notes = [text for text in (note, problem) if text]
        self._hand_on(attempt, Stopped(attempt.stop_reason or StopReason.CANCEL, "; ".join(notes) or None))

    def _hand_on(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.delivered:
            return
        attempt.delivered = True
        if self.attempts.get(attempt.task.id) is attempt:
            del self.attempts[attempt.task.id]
            self._give_slot_back(attempt)
        self._deliver(attempt, outcome)
