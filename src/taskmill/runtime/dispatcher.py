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

from taskmill.define.registry import Registry
from taskmill.errors import StoreError, StoreLost
from taskmill.model.outcome import Outcome, StopReason, Succeeded
from taskmill.model.stages import Claimed
from taskmill.model.verdict import End, MakeWay, Return, TryAgain
from taskmill.observe.log import logger
from taskmill.policy.aging import effective_priority
from taskmill.ports import NO_EFFECTS, Arrived, Clock, Effects, Judged, Store, Turn, TurnResult
from taskmill.runtime.aging_watch import AgingWatch
from taskmill.runtime.announcer import Announcer
from taskmill.runtime.attempt import Attempt, Spawner
from taskmill.runtime.courtesy import Courtesy
from taskmill.runtime.cron_clock import CronClock
from taskmill.runtime.executors import Executors
from taskmill.runtime.judging import judgements, may_release, one_turns_worth, waiting_again
from taskmill.runtime.known_types import KnownTypes
from taskmill.runtime.load import Load
from taskmill.runtime.preempting import Preempting, ease
from taskmill.runtime.progress_pace import ProgressPace
from taskmill.runtime.setting_aside import SettingAside
from taskmill.runtime.settings import RunSettings
from taskmill.runtime.sweep_pace import SweepPace
from taskmill.runtime.upkeep import Upkeep
from taskmill.runtime.waiting_room import WaitingRoom
from taskmill.runtime.workshop import Workshop


class Dispatcher:
    """Runs the tasks of one store. Exists while this scheduler holds the right to dispatch."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock,
        executors: Executors,
        announcer: Announcer,
        upkeep: Upkeep,
        settings: RunSettings,
        spawner: Spawner,
        *,
        wake_at: float | None = None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._announcer, self._upkeep = announcer, upkeep
        upkeep.wake = self.wake
        self._settings = settings
        self._progress = ProgressPace()
        self.load = load = Load()
        self.courtesy = Courtesy(load, settings.throttle)
        self.workshop = Workshop(
            clock,
            executors,
            settings.cancel_timeout,
            store,
            spawner,
            self._outcome,
            self._progress_noticed,
            self.wake,
            load,
        )
        self._knows = KnownTypes(registry)
        self._room = WaitingRoom(load, self._knows, settings, self.courtesy, in_cluster=store.is_cluster)
        self._preempting = Preempting(self._room, self.workshop)
        self.cron = CronClock(store, registry, clock, announcer, settings.cron)
        self._aging_watch = AgingWatch(store, announcer)
        self._sweep_pace = SweepPace(clock, settings.expiry_sweep_interval)
        self.setting_aside = SettingAside(store, clock, announcer)
        self.woken = asyncio.Event()
        """Set when there is something to look at."""
        self._outcomes: list[tuple[Attempt, Outcome]] = []
        self._judging: list[tuple[Attempt, Outcome]] = []
        """The outcomes of the turn under way, in the order of its verdicts."""
        self._returns: list[Claimed] = []
        """Claimed tasks that nobody here can run; the next turn returns them."""
        self._stops_meanwhile: list[tuple[int, str]] = []
        self._claiming = True
        self._looked_first = False
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
        self._room.survey_wanted = True
        self.cron.look_again()
        self.woken.set()

    def added(self, arrived: Arrived) -> None:
        """New tasks are committed, and others may have to make way for them."""
        self._room.take_in(arrived)
        for _, task in arrived.fresh:
            if task.kin is not None:
                self.workshop.note_awaited(task.kin.depends_on)
        self._upkeep.tasks_ended(len(arrived.effects.ended))
        self._stop_attempts(arrived.effects)
        self.cron.follow(arrived.effects.crons)
        self.woken.set()

    def follow(self, effects: Effects) -> None:
        """A verb of this process was committed, with these consequences."""
        self.added(Arrived(effects=effects))

    def _stop_attempts(self, effects: Effects) -> None:
        if self._room.in_turn:
            # Some of them may be claimed by the turn that is under way, and not started yet.
            self._stops_meanwhile += effects.stopping
        for id, reason in effects.stopping:
            self.workshop.stop(id, StopReason(reason))

    def _outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        if attempt.is_first_ending(self._clock.monotonic()):
            self._room.picker.ended(attempt.task.group, attempt.duration_ms)
            if attempt.io is not None and isinstance(outcome, Succeeded):
                self.courtesy.learn(attempt.task.type, attempt.io)
        self._outcomes.append((attempt, outcome))
        self.woken.set()

    def _progress_noticed(self) -> None:
        self._progress.waits = True
        self.woken.set()

    def machine_changed(self, others_wait: bool) -> None:
        """The machine bears more or less than before; ``others_wait`` for the pressure to fall than did."""
        ease(self.courtesy, self.workshop)
        if others_wait:
            self._room.picker.look_at_all()
        self.woken.set()

    # Running

    async def run(self, until: Callable[[], bool]) -> None:
        """Dispatch until ``until()`` says so; it is asked before each sleep."""
        while not until():
            await self._turn_or_sleep()

    async def _turn_or_sleep(self) -> None:
        self.woken.clear()
        self.workshop.enforce_deadlines()
        if step := await self._upkeep.notice_clock_step():
            self.workshop.clock_stepped(step)
            self._aging_watch.clock_stepped(step)
            self.cron.clock_stepped()
        self._upkeep.prune_if_due()
        if step or await self._upkeep.end_pauses(self._room.picker.rules):
            self._room.survey_wanted = True
        picker, now = self._room.picker, self._clock.now_ms()
        if self._aging_watch.is_due(picker.rules, now):
            await self._aging_watch.look(picker.rules, self._room.lanes(), now)
        if self._claiming and self.cron.is_due(now):
            await self.cron.look()
        if self._is_past(self._room.next_expiry) or self._is_past(self._room.next_beat):
            # Short handlers end meanwhile: there is more to do than to sweep on, and no beat is skipped for them.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        turn = self._plan()
        if turn.is_empty():
            self._announcer.reallocated(self._room.picker.shares.changes)
            await self._clock.wait(self.woken, self._sleep_until())
        else:
            await self._commit(turn)

    # What is left when nothing more is claimed: see runtime/closing.py

    def claim_no_more(self) -> None:
        self._claiming = False

    @property
    def has_outcomes(self) -> bool:
        return bool(self._outcomes)

    async def commit_turn(self) -> bool | None:
        """Commit what there is to commit; False if the store refused, None if there is nothing."""
        self.woken.clear()
        self.workshop.enforce_deadlines()
        turn = self._plan()
        return None if turn.is_empty() else await self._commit(turn)

    async def commit_outcomes(self) -> None:
        """Commit the outcomes that have come, in as many turns as it takes, unless the store refuses them."""
        patience = 3
        while self._outcomes and patience:
            before = len(self._outcomes)
            await self._commit(self._plan())
            patience -= len(self._outcomes) >= before

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing may run now, here or on another node."""
        return not (
            self._outcomes
            or self._returns
            or self.workshop.slots_taken
            or self._is_past(self._room.next_due)
            or self._is_past(self._room.next_expiry)
            or self._is_past(self._room.picker.rules.next_resumption())
            or self.cron.is_due(self._clock.now_ms())
            or not self._room.is_idle(self._settings.max_concurrency, self._clock.now_ms())
        )

    def _is_past(self, at: int | None) -> bool:
        return at is not None and at <= self._clock.now_ms()

    # Planning

    def _plan(self) -> Turn:
        now = self._clock.now_ms()
        self._judging, self._outcomes = one_turns_worth(self._outcomes)
        judged = judgements(self._judging, now, self._clock.monotonic(), leaving=not self._claiming)
        version = self._room.picker.rules.controls.version
        turn = Turn(now, self._clock.monotonic(), judged=judged, controls_version=version)
        turn.returns, self._returns = self._returns, []
        turn.promote, turn.skip = self._is_past(self._room.next_due), self._is_past(self._room.next_beat)
        turn.survey, self._room.survey_wanted = self._room.survey_wanted, False
        turn.progress = self._progress.gather(
            self._clock.monotonic(), [attempt for attempt, _ in self._judging], self.workshop.attempts.values()
        )
        for task in waiting_again(turn.judged):
            # Verdicts are committed before claims: what returns to the queue may start in the same turn.
            self._room.queue_again(task.lane, task.place)
        # What is due, or is released by an ending, may be more urgent than what is known to wait: it comes into sight
        # before anything is claimed, though not twice in a row, or a stream of such turns would keep the slots empty.
        releases = not self._room.is_empty and may_release(turn.judged)
        looks_first = self._room.in_doubt or (not self._looked_first and (turn.promote or releases))
        self._looked_first = looks_first
        slots = self._settings.max_concurrency
        if self._store.is_cluster:
            turn.slots = slots
            if self._room.in_doubt:
                turn.at_work = [*self.workshop.at_work(), *(judged.task.id for judged in turn.judged)]
        # Outcomes that are left for the next turn hold their slots until then.
        if self._claiming and not looks_first and not self._outcomes and not self._store.is_cut_off():
            # Who made way comes into sight before anything less urgent starts.
            turn.resume_preempted = self._preempting.may_return(slots, now)
            turn.resume_eased = self._room.has_eased and not self.courtesy.is_easing
            if not (turn.resume_preempted or turn.resume_eased):
                self._room.choose(turn, slots, slots - self.workshop.slots_taken)
                self._preempting.make_way(turn, slots)
        turn.expire = self._is_past(self._room.next_expiry) and (turn.is_empty() or not self._sweep_pace.rests)
        return turn

    def _sleep_until(self) -> float | None:
        monotonic, now = self._clock.monotonic(), self._clock.now_ms()
        due = (*self._room.next_moments(), self._aging_watch.next_look, self._preempting.next_at, self.cron.next_at)
        moments = [monotonic + (moment - now) / 1000 for moment in due if moment is not None]
        steady = (self.workshop.next_deadline(), self._upkeep.next_at, self._wake_at)
        moments += [moment for moment in steady if moment is not None]
        if self._progress.waits:
            moments.append(self._progress.next_at)
        return min(moments, default=None)

    # Committing

    async def _commit(self, turn: Turn) -> bool:
        """Commit a turn and do what follows from it; False if the store refused, after a pause."""
        self._room.turn_begins()
        self._sweep_pace.begins()
        self.has_looked = self.has_looked or turn.survey
        try:
            result = await self._store.turn(turn)
        except StoreLost as wrong:
            logger.error("the store cannot be used any longer, nothing is run here: %s", wrong)
            self._turn_failed(turn)
            # Nothing can be noted: what has ended meanwhile runs again, where the queue is now.
            self._outcomes, self._returns = [], []
            if self._claiming:
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
            self._room.turn_ends()
        if turn.expire:
            self._sweep_pace.ended()
        self._apply(turn, result)
        return True

    def _turn_failed(self, turn: Turn) -> None:
        self._returns[:0] = turn.returns
        self._outcomes[:0] = self._judging
        self._judging = []
        self._room.turn_failed()
        self._stops_meanwhile.clear()

    def _apply(self, turn: Turn, result: TurnResult) -> None:
        """The turn is committed: take note, start what was claimed, tell."""
        self._room.read(turn, result)
        if turn.progress:
            self._announcer.progressed(self._progress.gathered)
        self.workshop.note_urgencies(result.urgencies, self._settings.declared.aging)
        self._apply_verdicts(turn, result)
        if result.effects != NO_EFFECTS:
            self._announcer.once_durable(self._store, lambda: self._announcer.effects(result.effects, turn.now))
            self._upkeep.tasks_ended(len(result.effects.ended))
            self._stop_attempts(result.effects)
            self.cron.follow(result.effects.crons)
        now, aging = self._clock.monotonic(), self._settings.declared.aging
        for claimed in result.claimed:
            claimed.effective = effective_priority(aging, claimed.urgency, turn.now - claimed.place.aged_from)
            claimed.budget = self.courtesy.budget_of(claimed.type, claimed.io)
            self._start(claimed, now)
        # They were claimed by what was known then.
        ease(self.courtesy, self.workshop)
        self._announcer.reallocated(self._room.picker.shares.changes)
        for id, stop in (*result.stops, *self._stops_meanwhile):
            self.workshop.stop(id, StopReason(stop))
        self._stops_meanwhile.clear()

    def _apply_verdicts(self, turn: Turn, result: TurnResult) -> None:
        ended = 0
        counted: list[Judged] = []
        for (attempt, _outcome), judged in zip(self._judging, turn.judged, strict=True):
            task = judged.task
            if (task.id, task.attempt) in result.lost:
                self._verdict_lost(attempt, result.lost[(task.id, task.attempt)])
                continue
            match judged.verdict:
                case End() if task.id not in result.waiting:
                    ended += 1
                case TryAgain(due_at=int(due_at)) | Return(due_at=int(due_at)):
                    self._room.note_due(due_at)
                case MakeWay(for_pressure) if task.id not in result.waiting:
                    self._room.noted_away(turn, for_pressure=for_pressure)
                case _:
                    pass  # its children end first, or it waits again, and the plan has put it in its place
            if isinstance(judged.verdict, TryAgain | Return) and task.expires_at is not None:
                self._room.note_expiry(task.expires_at)
            counted.append(judged)
        self._judging = []
        if counted:
            self._announcer.once_durable(self._store, lambda: self._announcer.judged(counted, turn.now, result))
        if ended:
            self._upkeep.tasks_ended(ended)

    def _verdict_lost(self, attempt: Attempt, stop: str | None) -> None:
        if stop is not None:
            # The request to stop was committed before this outcome, perhaps by another process: it counts.
            self.workshop.stop_after_all(attempt, StopReason(stop))
            return
        self._announcer.outcome_dropped(attempt.task)

    def _start(self, task: Claimed, now: float) -> None:
        registered = self._registry.find(task.type)
        if registered is not None:
            self._announcer.dispatched(task)
            self.workshop.launch(task, registered, now)
            return
        self._knows(task.type)
        self._returns.append(task)
        self._room.doubt(task)
        self.woken.set()
