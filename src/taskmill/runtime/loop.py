"""The loop: look → plan → commit → work → judge → commit → tell.

Each turn gathers the outcomes of attempts that ended, asks the policy for verdicts, picks what may start in the slots
that are free, and commits all of it in one transaction. Only then are handlers started and listeners told. The loop
sleeps until the next thing is due and is woken by submissions, endings and control.

A turn that cannot be committed (a full disk, a file that went away) loses nothing: its outcomes are kept and tried
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from taskmill.core.ports import Clock, Store
from taskmill.define.registry import Registry
from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.load import Load
from taskmill.dispatch.preempting import eased
from taskmill.dispatch.waiting import WaitingTasks
from taskmill.errors import StoreError, StoreLost
from taskmill.model.attempt import End, MakeWay, Outcome, Return, StopReason, Succeeded, TryAgain
from taskmill.model.commit import Commit
from taskmill.model.task import Claimed
from taskmill.model.turn import Judged, Turn, TurnResult
from taskmill.observe.log import logger
from taskmill.policy.aging import effective_priority
from taskmill.runtime.aging_watch import AgingWatch
from taskmill.runtime.announcer import Announcer
from taskmill.runtime.attempt import Attempt, Spawner
from taskmill.runtime.attempts import Attempts
from taskmill.runtime.commits import Commits
from taskmill.runtime.cron_clock import CronClock
from taskmill.runtime.executors import Executors
from taskmill.runtime.planning import Planner
from taskmill.runtime.setting_aside import SettingAside
from taskmill.runtime.settings import RunSettings
from taskmill.runtime.upkeep import Upkeep


class DispatchLoop:
    """Runs the tasks of one store. Exists while this scheduler holds the right to dispatch."""

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
        self._announcer, self._commits, self._upkeep = announcer, commits, upkeep
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
        self.cron = CronClock(store, registry, clock, announcer, commits, settings.cron)
        self._aging_watch = AgingWatch(store, announcer)
        self.setting_aside = SettingAside(store, clock, commits)
        self.woken = asyncio.Event()
        """Set when there is something to look at."""
        self._stops_meanwhile: list[tuple[int, str]] = []
        self.has_looked = False
        """Whether the store was asked what there is to do."""
        self._wake_at = wake_at
        """When ``until`` must be asked at the latest."""

    # What others tell the loop

    def wake(self) -> None:
        self.woken.set()

    async def settle_clock(self) -> bool:
        """Take note of a step of the wall clock, if there was one: True if so.

        What was stored before it moves with it; what is stored from here on counts from the new time.
        """
        if not self._upkeep.is_clock_stepped:
            return False
        await self._upkeep.step_noticed()
        return True

    def look_at_clock(self) -> None:
        if self._upkeep.is_clock_stepped:
            self.wake()

    def look_again(self) -> None:
        """Another process, or a verb of this one, has changed the store."""
        self._waiting.survey_wanted = True
        self.cron.look_again()
        self.woken.set()

    def follow(self, commit: Commit, now: int, durable: bool) -> None:  # noqa: ARG002 - a follower of commits
        """Follow a commit of this process, one of the loop's own turns included."""
        self._waiting.follow(commit)
        for _, task in commit.fresh:
            if task.links is not None:
                self.attempts.note_awaited(task.links.depends_on)
        self._upkeep.tasks_ended(len(commit.ended))
        self._stop_attempts(commit)
        self.cron.follow(commit.crons)
        self.woken.set()

    def _stop_attempts(self, commit: Commit) -> None:
        if self._waiting.in_turn:
            # Some of them may be claimed by the turn that is under way, and not started yet.
            self._stops_meanwhile += commit.stopping
        for id, reason in commit.stopping:
            self.attempts.stop(id, StopReason(reason))

    def _outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.is_first_ending(self._clock.monotonic()):
            self._waiting.picker.ended(attempt.task.group, attempt.duration_ms)
            if attempt.io is not None and isinstance(outcome, Succeeded):
                self.backpressure.learn(attempt.task.type, attempt.io)
        self._planner.outcomes.append((attempt, outcome))
        self.woken.set()

    def _progress_noticed(self) -> None:
        self._planner.progress.waits = True
        self.woken.set()

    def machine_changed(self, others_wait: bool) -> None:
        """The machine bears more or less than before; ``others_wait`` for the pressure to fall than did."""
        self._ease()
        if others_wait:
            self._waiting.picker.look_at_all()
        self.woken.set()

    def _ease(self) -> None:
        for id in eased(self.backpressure, self.attempts.open):
            self.attempts.stop(id, StopReason.EASE)

    # Running

    async def run(self, until: Callable[[], bool]) -> None:
        """Dispatch until ``until()`` says so; it is asked before each sleep."""
        while not until():
            await self._turn_or_sleep()

    async def _turn_or_sleep(self) -> None:
        self.woken.clear()
        self.attempts.enforce_deadlines()
        if step := await self._upkeep.notice_clock_step():
            self.attempts.clock_stepped(step)
            self._aging_watch.clock_stepped(step)
            self.cron.clock_stepped()
        self._upkeep.prune_if_due()
        if step or await self._upkeep.end_pauses(self._waiting.picker.rules):
            self._waiting.survey_wanted = True
        picker, now = self._waiting.picker, self._clock.now_ms()
        if self._aging_watch.is_due(picker.rules, now):
            await self._aging_watch.look(picker.rules, self._waiting.lanes(), now)
        if self._planner.claiming and self.cron.is_due(now):
            await self.cron.look()
        if self._planner.is_past(self._waiting.next_expiry) or self._planner.is_past(self._waiting.next_beat):
            # Short handlers end meanwhile: there is more to do than to sweep on, and no beat is skipped for them.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        turn = self._planner.plan()
        if turn.is_empty():
            self._announcer.reallocated(self._waiting.picker.shares.changes)
            await self._clock.wait(self.woken, self._sleep_until())
        else:
            await self._commit(turn)

    # What is left when nothing more is claimed: see runtime/closing.py

    def claim_no_more(self) -> None:
        self._planner.claiming = False

    @property
    def has_outcomes(self) -> bool:
        return bool(self._planner.outcomes)

    async def commit_turn(self) -> bool | None:
        """Commit what there is to commit; False if the store refused, None if there is nothing."""
        self.woken.clear()
        self.attempts.enforce_deadlines()
        turn = self._planner.plan()
        return None if turn.is_empty() else await self._commit(turn)

    async def commit_outcomes(self) -> None:
        """Commit the outcomes that have come, in as many turns as it takes, unless the store refuses them."""
        patience = 3
        while self._planner.outcomes and patience:
            before = len(self._planner.outcomes)
            await self._commit(self._planner.plan())
            patience -= len(self._planner.outcomes) >= before

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing may run now, here or on another node."""
        return not (
            self._planner.outcomes
            or self._planner.returns
            or self.attempts.slots_taken
            or self._planner.is_past(self._waiting.next_due)
            or self._planner.is_past(self._waiting.next_expiry)
            or self._planner.is_past(self._waiting.picker.rules.next_resumption())
            or self.cron.is_due(self._clock.now_ms())
            or not self._waiting.is_idle(self._settings.max_concurrency, self._clock.now_ms())
        )

    def _sleep_until(self) -> float | None:
        monotonic, now = self._clock.monotonic(), self._clock.now_ms()
        due = (self._aging_watch.next_look, self.cron.next_at)
        moments = [monotonic + (moment - now) / 1000 for moment in due if moment is not None]
        steady = (self.attempts.next_deadline(), self._upkeep.next_at, self._wake_at)
        moments += [moment for moment in steady if moment is not None]
        return min(moments + self._planner.next_moments(), default=None)

    # Committing

    async def _commit(self, turn: Turn) -> bool:
        """Commit a turn and do what follows from it; False if the store refused, after a pause."""
        self._waiting.turn_begins()
        self._planner.sweep_pace.begins()
        self.has_looked = self.has_looked or turn.look.survey
        try:
            result = await self._store.turn(turn)
        except StoreLost as wrong:
            logger.error("the store cannot be used any longer, nothing is run here: %s", wrong)
            self._turn_failed(turn)
            # Nothing can be noted: what has ended meanwhile runs again, where the queue is now.
            self._planner.outcomes, self._planner.returns = [], []
            if self._planner.claiming:
                raise
            return True
        except StoreError as wrong:
            self._turn_failed(turn)
            await self.setting_aside.or_wait(wrong)
            return False
        except BaseException:
            self._turn_failed(turn)
            raise
        finally:
            self._waiting.turn_ends()
        if turn.upkeep.expire:
            self._planner.sweep_pace.ended()
        self._apply(turn, result)
        return True

    def _turn_failed(self, turn: Turn) -> None:
        self._planner.turn_failed(turn)
        self._waiting.turn_failed()
        self._stops_meanwhile.clear()

    def _apply(self, turn: Turn, result: TurnResult) -> None:
        """The turn is committed: take note, start what was claimed, tell."""
        self._waiting.turn_committed(turn, result, self._settings.declared)
        if turn.progress:
            self._announcer.progressed(self._planner.progress.gathered)
        self.attempts.note_urgencies(result.urgencies, self._settings.declared.aging)
        self._apply_verdicts(turn, result)
        self._commits.publish(result.commit, result.now, durable=False)
        now, aging = self._clock.monotonic(), self._settings.declared.aging
        for claimed in result.claimed:
            claimed.effective = effective_priority(aging, claimed.urgency, result.now - claimed.place.aged_from)
            claimed.budget = self.backpressure.budget_of(claimed.type, claimed.io)
            self._start(claimed, now)
        # Pressure may have risen since the claims were planned.
        self._ease()
        self._announcer.reallocated(self._waiting.picker.shares.changes)
        for id, stop in (*result.stops, *self._stops_meanwhile):
            self.attempts.stop(id, StopReason(stop))
        self._stops_meanwhile.clear()

    def _apply_verdicts(self, turn: Turn, result: TurnResult) -> None:
        ended = 0
        counted: list[Judged] = []
        for (attempt, _outcome), judged in zip(self._planner.judging, turn.judged, strict=True):
            task = judged.task
            if (task.id, task.attempt) in result.lost:
                self._verdict_lost(attempt, result.lost[(task.id, task.attempt)])
                continue
            match judged.verdict:
                case End() if task.id not in result.waiting:
                    ended += 1
                case TryAgain(due_at=int(due_at)) | Return(due_at=int(due_at)):
                    self._waiting.note_due(due_at)
                case MakeWay(for_pressure) if task.id not in result.waiting:
                    self._waiting.note_preempted(turn.upkeep, for_pressure=for_pressure)
                case _:
                    pass  # its children end first, or it waits again, and the plan has put it in its place
            if isinstance(judged.verdict, TryAgain | Return) and task.expires_at is not None:
                self._waiting.note_expiry(task.expires_at)
            counted.append(judged)
        self._planner.judging = []
        if counted:
            self._announcer.once_durable(lambda: self._announcer.judged(counted, result))
        if ended:
            self._upkeep.tasks_ended(ended)

    def _verdict_lost(self, attempt: Attempt, stop: str | None) -> None:
        if stop is not None:
            # The request to stop was committed before this outcome, perhaps by another process: it counts.
            self.attempts.stop_after_verdict(attempt, StopReason(stop))
            return
        self._announcer.outcome_dropped(attempt.task)

    def _start(self, task: Claimed, now: float) -> None:
        registered = self._registry.find(task.type)
        if registered is not None:
            self._announcer.dispatched(task)
            self.attempts.launch(task, registered, now)
            return
        self.attempts.knows(task.type)
        self._planner.returns.append(task)
        self._waiting.doubt(task)
        self.woken.set()
