"""The dispatch loop: look, plan, commit, run, judge, commit, announce.

Each turn gathers the outcomes of ended attempts, asks the policy for verdicts, picks the tasks that may start in free
slots, and commits all of it in one transaction. Only then does it start handlers and notify listeners. Between turns
the loop sleeps until the next instant that matters; submissions, endings and control calls wake it earlier.

A turn that cannot be committed (a full disk, a file that was removed) loses nothing: its outcomes are kept and judged
again in the next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from taskmill.core.logs import logger
from taskmill.core.ports import Clock, Store
from taskmill.define.registry import Registry
from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.limits import Load
from taskmill.dispatch.preempting import eased
from taskmill.dispatch.waiting import WaitingTasks
from taskmill.errors import StoreError, StoreLost
from taskmill.model.attempt import End, MakeWay, Outcome, Return, StopReason, Succeeded, TryAgain
from taskmill.model.commit import Changes, Commit
from taskmill.model.queue_state import Turns
from taskmill.model.task import Claimed
from taskmill.model.turn import Judged, Turn, TurnResult
from taskmill.policy.aging import effective_priority
from taskmill.runtime.announcer import AgingWatch, Announcer, Commits, to_the_end
from taskmill.runtime.attempt import Attempt, Spawner
from taskmill.runtime.attempts import Attempts
from taskmill.runtime.cron_clock import CronClock
from taskmill.runtime.executors import Executors
from taskmill.runtime.planning import Planner, is_past
from taskmill.runtime.prefetching import PATIENCE, Prefetching, let_handlers_run
from taskmill.runtime.settings import RunSettings
from taskmill.runtime.upkeep import DamagedRows, Upkeep


class DispatchLoop:
    """Runs the tasks of one store, while this scheduler holds the right to dispatch."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        executors: Executors,
        announcer: Announcer,
        commits: Commits,
        upkeep: Upkeep,
        settings: RunSettings,
        spawner: Spawner,
        *,
        wake_at: float | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._announcer, self._commits, self.upkeep = announcer, commits, upkeep
        upkeep.wake = self.wake
        self._settings = settings
        self.load = load = Load()
        self.backpressure = Backpressure(load, settings.throttle)
        self.attempts = Attempts(
            clock,
            registry,
            executors,
            settings.cancel_timeout,
            store,
            spawner,
            self._outcome,
            self._progress_noticed,
            self.wake,
            load,
        )
        self._waiting = WaitingTasks(load, self.attempts.knows, self.backpressure, in_cluster=store.is_cluster)
        self._planner = Planner(store, clock, settings, self._waiting, self.attempts, self.backpressure)
        self.prefetching = Prefetching(
            store,
            self._waiting,
            self._planner,
            self.attempts,
            self.backpressure,
            clock,
            lambda: settings.declared.max_concurrency,
            self._may_start,
            self._start,
        )
        self.cron = CronClock(store, registry, clock, announcer, commits, settings.cron)
        self._aging_watch = AgingWatch(store, announcer)
        self.damaged_rows = DamagedRows(store, clock, commits)
        self.woken = asyncio.Event()
        """Set when the loop has something to do before its next instant."""
        self._stops_meanwhile: list[tuple[int, str]] = []
        """Requests to stop that were committed while a turn was under way."""
        self.has_looked = False
        """True once a turn has read the waiting tasks from the store."""
        self._turn_count = 0
        self._wake_at = wake_at
        """The latest time at which :meth:`run` calls ``until`` again, on the monotonic clock."""

    # Events from outside the loop

    def wake(self) -> None:
        self.woken.set()

    def look_again(self) -> None:
        """Survey the store, because a method of this scheduler has changed it."""
        self._waiting.survey_wanted = True
        self.cron.look_again()
        self.woken.set()

    def changed_elsewhere(self, changes: Changes) -> None:
        """Read what another process has committed."""
        self._waiting.changed_elsewhere(changes)
        if changes.more:
            self.cron.look_again()
        self.woken.set()

    def rules_changed(self) -> None:
        """Survey the store, because a method of this scheduler has changed the rules for starting tasks."""
        self._planner.return_prefetched()
        self.look_again()

    def follow(self, commit: Commit, now: int, durable: bool) -> None:  # noqa: ARG002 - a follower of commits
        """Follow a commit of this process, one of the loop's own turns included."""
        self._waiting.follow(commit)
        for _, task in commit.fresh:
            if task.links is not None:
                self.attempts.note_awaited(task.links.depends_on)
        self.prefetching.follow(commit)
        self.upkeep.tasks_ended(len(commit.ended))
        if self._waiting.in_turn:
            # The turn under way may have claimed some of these tasks, without having started them yet.
            self._stops_meanwhile += commit.stopping
        for id, reason in commit.stopping:
            self._stop(id, StopReason(reason))
        self.cron.follow(commit.crons)
        self.woken.set()

    def _outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        now, succeeded = self._clock.monotonic(), isinstance(outcome, Succeeded)
        if attempt.is_first_ending(now):
            self._waiting.prefetch.ended(attempt.task, now - attempt.started)
            if (picker := self._waiting.picker).rules.is_shared:
                picker.shares.ended(attempt.task.group, attempt.duration_ms)
            if attempt.io is not None and succeeded:
                self.backpressure.learn(attempt.task.type, attempt.io)
        self._planner.outcomes.append((attempt, outcome))
        self.prefetching.attempt_ended(attempt, outcome)
        self.woken.set()

    def _stop(self, id: int, reason: StopReason) -> None:
        """Ask a running task to stop, and end a prefetched one."""
        if not self.prefetching.stop(id, reason):
            self.attempts.stop(id, reason)

    def _progress_noticed(self) -> None:
        self._planner.progress.waits = True
        self.woken.set()

    def machine_changed(self, others_wait: bool) -> None:
        """Apply new readings of the machine; ``others_wait`` if the pressure holds other tasks than before."""
        self._ease()
        if others_wait:
            self._waiting.picker.look_at_all()
        self.woken.set()

    def _ease(self) -> None:
        """Preempt running tasks that may not run under the current pressure."""
        for id in eased(self.backpressure, self.attempts.open):
            self.attempts.stop(id, StopReason.EASE)

    # Running

    async def run(self, until: Callable[[], bool]) -> None:
        """Run turns until ``until()`` returns True; it is called before each turn."""
        while not until():
            await self._turn_or_sleep()

    async def _turn_or_sleep(self) -> None:
        # Before anything that waits: a request to stop that comes meanwhile must not be missed.
        self.woken.clear()
        await self.prefetching.let_short_handlers_end()
        self.attempts.enforce_deadlines()
        if step := await self.upkeep.follow_clock_step():
            self._planner.return_prefetched()
            self.attempts.clock_stepped(step)
            self._waiting.picker.clock_stepped(step, self._clock.now_ms())
            self._aging_watch.clock_stepped(step)
            self.cron.clock_stepped()
        self.upkeep.prune_if_due()
        if step or await self.upkeep.end_pauses(self._waiting.picker.rules):
            self._waiting.survey_wanted = True
        picker, now = self._waiting.picker, self._clock.now_ms()
        if self._aging_watch.is_due(picker.rules, now):
            await self._aging_watch.announce_aged(picker.rules, self._waiting.lanes(), now)
        if self._planner.claiming and self.cron.is_due(now):
            await to_the_end(self.cron.fire_due())
        now = self._clock.now_ms()
        if is_past(self._waiting.next_expiry, now) or is_past(self._waiting.next_beat, now):
            # Let short handlers end first: the turn then commits their ends too, and skips no occurrence for them.
            await let_handlers_run()
        turn = self._planner.plan()
        if turn.is_empty():
            self.prefetching.begin_after_turn()
            self._announcer.reallocated(self._waiting.picker.shares.changes)
            if not self._planner.returns:
                await self._clock.wait(self.woken, self._sleep_until())
        elif await self._commit(turn) and not self.prefetching.turns_follow:
            # Handlers that were just started run before the next plan.
            await let_handlers_run()

    def turns(self) -> tuple[int, Turns | None]:
        """Return the number of turns so far, and a copy of what only this dispatcher knows, for simulations.

        While a turn is under way there is no copy: what it has taken is not committed yet.
        """
        return self._turn_count, None if self._waiting.in_turn else self._waiting.picker.turns()

    # For the shutdown (Closing in session.py)

    def claim_no_more(self) -> None:
        self._planner.claiming = False
        self._planner.return_prefetched()

    @property
    def left_to_commit(self) -> int:
        """The number of outcomes, and of tasks that were claimed but not started, that are not committed yet."""
        return len(self._planner.outcomes) + len(self._planner.returns)

    async def commit_turn(self) -> bool | None:
        """Commit a turn. Return False if the store refused it, None if there was nothing to commit."""
        self.woken.clear()
        self.attempts.enforce_deadlines()
        turn = self._planner.plan()
        return None if turn.is_empty() else await self._commit(turn)

    async def commit_outcomes(self) -> None:
        """Commit what is left, in as many turns as it takes; give up after three turns that the store refused."""
        tries = 3
        while (before := self.left_to_commit) and tries:
            await self._commit(self._planner.plan())
            tries -= self.left_to_commit >= before

    @property
    def is_idle(self) -> bool:
        """True if nothing runs and nothing may start now, here or on another node."""
        now = self._clock.now_ms()
        return not (
            self._planner.outcomes
            or self._planner.returns
            or self._waiting.prefetch.tasks
            or self.attempts.slots_taken
            or self._waiting.due.is_past(now)
            or is_past(self._waiting.next_expiry, now)
            or is_past(self._waiting.picker.rules.next_resumption(), now)
            or self.cron.is_due(now)
            or not self._waiting.is_idle(self._settings.declared.max_concurrency, now)
        )

    def _sleep_until(self) -> float | None:
        monotonic, now = self._clock.monotonic(), self._clock.now_ms()
        wall = (self._aging_watch.next_read, self.cron.next_at, *self._planner.next_moments())
        deadline, progress = self.attempts.deadlines.next_at(), self._planner.progress.next_at
        moments = [monotonic + (moment - now) / 1000 for moment in wall if moment is not None]
        limits = (deadline, progress, self._waiting.prefetch.next_at(), self.upkeep.next_at, self._wake_at)
        return min((*moments, *(at for at in limits if at is not None)), default=None)

    # Committing

    async def _commit(self, turn: Turn) -> bool:
        """Commit a turn and apply its result, even if cancelled. If the store refuses it, wait and return False."""
        if self.prefetching.is_patient(turn) and not self._announcer.is_awaited:
            turn = msgspec.structs.replace(turn, patience=PATIENCE)
        self._waiting.in_turn, began = True, self._clock.monotonic()
        self.has_looked = self.has_looked or turn.look.survey
        try:
            result = await self._store.turn(turn)
        except StoreLost as wrong:
            logger.error("the store can no longer be used; this scheduler runs no more tasks: %s", wrong)
            self._turn_failed(turn)
            # These outcomes cannot be stored: their tasks run again, wherever the queue is now.
            self._planner.outcomes, self._planner.returns = [], []
            if self._planner.claiming:
                raise
            return True
        except StoreError as wrong:
            self._turn_failed(turn)
            await self.damaged_rows.set_aside_or_wait(wrong)
            return False
        except BaseException:
            self._turn_failed(turn)
            raise
        finally:
            self._waiting.in_turn = False
        if turn.upkeep.expire:
            self._planner.sweep_pace.swept(began)
        self._apply(turn, result)
        if result.is_cancelled:
            raise asyncio.CancelledError
        return True

    def _turn_failed(self, turn: Turn) -> None:
        self._planner.turn_failed(turn)
        self._waiting.turn_failed()
        self._stops_meanwhile.clear()

    def _apply(self, turn: Turn, result: TurnResult) -> None:
        """Apply the result of a committed turn: update the queue, announce verdicts, start claimed tasks."""
        self._turn_count += 1
        self._waiting.turn_committed(turn, result, self._settings.declared)
        if turn.progress:
            self._announcer.progressed(self._planner.progress.gathered)
        self.attempts.note_urgencies(result.urgencies, self._settings.declared.aging)
        self._apply_verdicts(turn, result)
        self._commits.publish(result.commit, result.now, durable=False)
        if result.seen is not None:
            self.follow(result.seen, result.now, durable=False)
        now, wall, aging = self._clock.monotonic(), self._clock.now_ms(), self._settings.declared.aging
        for claimed in result.claimed:
            claimed.effective = effective_priority(aging, claimed.urgency, result.now - claimed.aged_from)
            if claimed.prefetched:
                continue
            if is_past(claimed.deadline, wall):
                # The deadline passed while the claim was committed. The next turn ends the task.
                self._waiting.note_expiry(wall)
                self._planner.return_unstarted(claimed)
            else:
                self._start(claimed, now)
        self.prefetching.turn_committed(turn, result)
        # Pressure may have risen since the claims were planned.
        self._ease()
        self._announcer.reallocated(self._waiting.picker.shares.changes)
        for id, stop in (*result.stops, *self._stops_meanwhile):
            self._stop(id, StopReason(stop))
        self._stops_meanwhile.clear()

    def _apply_verdicts(self, turn: Turn, result: TurnResult) -> None:
        ended = 0
        counted: list[Judged] = []
        lost, waiting = result.lost, result.waiting
        for (attempt, _outcome), judged in zip(self._planner.judging, turn.judged, strict=True):
            task = judged.task
            if lost and (token := (task.id, task.attempt)) in lost:
                self._verdict_lost(attempt, lost[token])
                continue
            counted.append(judged)
            match judged.verdict:
                case End() if task.id not in waiting:
                    ended += 1
                case TryAgain(due_at=due_at) | Return(due_at=due_at):
                    if due_at is not None:
                        self._waiting.due.note_retry(due_at, task)
                    if task.expires_at is not None:
                        self._waiting.note_expiry(task.expires_at)
                case MakeWay(for_pressure) if task.id not in waiting:
                    self._waiting.note_preempted(turn.upkeep, for_pressure=for_pressure)
                case _:
                    pass  # It waits for its children.
        self._planner.judging = []
        if counted:
            self._announcer.once_durable(lambda: self._announcer.judged(counted, result))
        if ended:
            self.upkeep.tasks_ended(ended)

    def _verdict_lost(self, attempt: Attempt, stop: str | None) -> None:
        if stop is not None:
            # The request to stop was committed first, perhaps by another process, so it decides.
            self.attempts.stop_after_verdict(attempt, StopReason(stop))
            return
        self._announcer.outcome_dropped(attempt.task)

    def _may_start(self, now: int, monotonic: float) -> bool:
        """True if this node is alive and no step of the clock is pending, which would shift the times of starts."""
        return not self._store.is_cut_off() and not self.upkeep.is_stepped(now, monotonic)

    def _start(self, task: Claimed, now: float) -> None:
        registered = self._registry.find(task.type)
        if registered is None:
            self.attempts.knows(task.type)
            self._waiting.doubt(task)
            self._planner.return_unstarted(task)
            return
        if task.prefetched:
            self.prefetching.note_beginning(task, registered)
        self._announcer.dispatched(task)
        self.attempts.launch(task, registered, now)
