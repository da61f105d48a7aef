"""Planning a turn: what it commits, what it starts, what it reads; and until when the loop may sleep."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from taskmill.core.ports import Clock, Dispatches
from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.preempting import Preempting
from taskmill.dispatch.waiting import WaitingTasks
from taskmill.model.attempt import Outcome, StopReason
from taskmill.model.task import Claimed
from taskmill.model.turn import NO_STARTS, Look, Starts, Turn, TurnUpkeep
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.attempts import Attempts
from taskmill.runtime.judging import judgements, may_release, one_turns_worth, waiting_again
from taskmill.runtime.settings import RunSettings

PROGRESS_INTERVAL = 0.5
"""Seconds between two writes of the progress of running attempts, however often it is reported."""
SWEEP_REST = 5.0
"""After each batch of a sweep, other work has this many times the time that the batch took."""

_encode = msgspec.json.Encoder().encode


class ProgressReports:
    """Collects reported progress: the last report of each attempt that ended, and now and then those of the others."""

    def __init__(self) -> None:
        self.waits = False
        """True if progress was reported since the running attempts were last asked."""
        self._asked_at = float("-inf")
        self.gathered: list[Attempt] = []
        """The attempts whose progress was written last."""

    @property
    def next_at(self) -> float:
        """When the running attempts are asked again."""
        return self._asked_at + PROGRESS_INTERVAL

    def gather(self, now: float, ended: Sequence[Attempt], running: Iterable[Attempt]) -> list[tuple[int, int, str]]:
        """Return ``(id, attempt, progress)`` of attempts with new progress."""
        attempts = [attempt for attempt in ended if attempt.latest is not None]
        if self.waits and now >= self.next_at:
            self.waits = False
            self._asked_at = now
            attempts.extend(running)
        self.gathered = [attempt for attempt in attempts if attempt.take_progress(now)]
        return [
            (attempt.task.id, attempt.task.attempt, _encode(attempt.progress).decode()) for attempt in self.gathered
        ]


class SweepPace:
    """How much of the loop's time a sweep of expired tasks takes.

    An expired task is never claimed, so a late sweep does no harm. A turn with other work sweeps only now and then,
    though no later than ``longest`` seconds after a sweep is due. A turn without other work sweeps at once.
    """

    def __init__(self, clock: Clock, longest: float) -> None:
        self._clock = clock
        self._longest = longest
        self._began = 0.0
        self._rests_until = float("-inf")

    @property
    def rests(self) -> bool:
        """True if other work comes first, if there is any."""
        return self._clock.monotonic() < self._rests_until

    def begins(self) -> None:
        self._began = self._clock.monotonic()

    def ended(self) -> None:
        now = self._clock.monotonic()
        self._rests_until = now + min(SWEEP_REST * (now - self._began), self._longest)


class Planner:
    """Makes the plan of each turn from what has happened since the last one."""

    def __init__(
        self,
        store: Dispatches,
        clock: Clock,
        settings: RunSettings,
        waiting: WaitingTasks,
        attempts: Attempts,
        backpressure: Backpressure,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._waiting = waiting
        self._attempts = attempts
        self._backpressure = backpressure
        self._preempting = Preempting(waiting, attempts.load)
        self.progress = ProgressReports()
        self.sweep_pace = SweepPace(clock, settings.expiry_sweep_interval)
        self.outcomes: list[tuple[Attempt, Outcome]] = []
        """Outcomes of attempts that no turn has judged yet."""
        self.judging: list[tuple[Attempt, Outcome]] = []
        """The outcomes of the turn under way, in the order of its verdicts."""
        self.returns: list[Claimed] = []
        """Claimed tasks without a handler here; the next turn returns them to the queue."""
        self.claiming = True
        """False once the scheduler is stopping: nothing more is started."""
        self._looked_first = False

    def is_past(self, at: int | None) -> bool:
        return at is not None and at <= self._clock.now_ms()

    def turn_failed(self, turn: Turn) -> None:
        """Keep for the next turn what this one could not commit."""
        self.returns[:0] = turn.returns
        self.outcomes[:0] = self.judging
        self.judging = []

    def plan(self) -> Turn:
        """Plan the next turn."""
        now, slots, waiting = self._clock.now_ms(), self._settings.max_concurrency, self._waiting
        self.judging, self.outcomes = one_turns_worth(self.outcomes)
        judged = judgements(self.judging, now, self._clock.monotonic(), leaving=not self.claiming)
        returns, self.returns = self.returns, []
        promote, skip = self.is_past(waiting.next_due), self.is_past(waiting.next_beat)
        survey, waiting.survey_wanted = waiting.survey_wanted, False
        progress = self.progress.gather(
            self._clock.monotonic(), [attempt for attempt, _ in self.judging], self._attempts.open.values()
        )
        for task in waiting_again(judged):
            # Verdicts are committed before claims: what returns to the queue may start in the same turn.
            waiting.queue_again(task.lane, task.place)
        # A task that is due, or is released by an ending, may be more urgent than those that are known to wait. So it
        # is read before anything is claimed, though not twice in a row: a stream of such turns would keep slots empty.
        releases = not waiting.is_empty and may_release(judged)
        looks_first = waiting.in_doubt or (not self._looked_first and (promote or releases))
        self._looked_first = looks_first
        at_work: list[int] | None = None
        shown_slots = slots if self._store.is_cluster else None
        if self._store.is_cluster and waiting.in_doubt:
            at_work = [*self._attempts.task_ids(), *(each.task.id for each in judged)]
        resume_preempted = resume_eased = False
        starts, look = NO_STARTS, Look(survey, slots=shown_slots)
        # Outcomes that are left for the next turn hold their slots until then.
        if self.claiming and not looks_first and not self.outcomes and not self._store.is_cut_off():
            taken = self._attempts.slots_taken
            # Preempted tasks return to the queue before anything less urgent starts.
            resume_preempted = self._preempting.may_return(self._attempts.open.values(), taken, slots, now)
            resume_eased = waiting.has_eased and not self._backpressure.is_easing
            if not (resume_preempted or resume_eased):
                starts = self._choose(slots, taken, now, released_may_start=not survey and not promote)
                look = waiting.look(survey=survey, slots=shown_slots)
        turn = Turn(
            now,
            self._clock.monotonic(),
            progress=progress,
            judged=judged,
            returns=returns,
            at_work=at_work,
            upkeep=TurnUpkeep(promote=promote, skip=skip, resume_preempted=resume_preempted, resume_eased=resume_eased),
            starts=starts,
            look=look,
        )
        if self.is_past(waiting.next_expiry) and (turn.is_empty() or not self.sweep_pace.rests):
            return msgspec.structs.replace(turn, upkeep=msgspec.structs.replace(turn.upkeep, expire=True))
        return turn

    def _choose(self, slots: int, taken: int, now: int, *, released_may_start: bool) -> Starts:
        """Choose what starts, and preempt less urgent tasks for urgent ones that have no slot."""
        waiting, counters = self._waiting, self._settings.counters
        if counters is not None and not waiting.is_measured:
            waiting.measure(counters.denied, counters.redistributed)
        starts = waiting.choose(slots, slots - taken, now, released_may_start=released_may_start)
        victims = self._preempting.victims(self._attempts.open.values(), taken + len(starts.claims), slots, now)
        for id in victims.here:
            self._attempts.stop(id, StopReason.PREEMPT)
        if victims.anywhere is None:
            return starts
        return msgspec.structs.replace(starts, preempt=victims.anywhere)

    def next_moments(self) -> list[float]:
        """Return the instants, on the monotonic clock, at which something is to be planned again."""
        monotonic, now = self._clock.monotonic(), self._clock.now_ms()
        due = (*self._waiting.next_moments(), self._preempting.next_at)
        moments = [monotonic + (moment - now) / 1000 for moment in due if moment is not None]
        if self.progress.waits:
            moments.append(self.progress.next_at)
        return moments
