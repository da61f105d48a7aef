"""Plan a turn of the loop: the verdicts it commits, the tasks it starts, and the lanes it reads.

:meth:`Planner.plan` turns everything that happened since the last turn into one :class:`~taskmill.model.turn.Turn`. The
outcomes of ended attempts become verdicts, changes that are due become upkeep, and free slots become starts. If a turn
cannot be committed, :meth:`Planner.turn_failed` keeps its outcomes for the next one.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterable, Sequence

import msgspec

from taskmill.core.ports import Clock, Dispatches
from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.preempting import Preempting
from taskmill.dispatch.prefetch import Running
from taskmill.dispatch.waiting import WaitingTasks
from taskmill.model.attempt import (
    End,
    Failed,
    GaveUp,
    Outcome,
    Return,
    Stopped,
    StopReason,
    Succeeded,
    TryAgain,
    Unrunnable,
    Verdict,
    Wait,
)
from taskmill.model.io_budget import budget_to_store
from taskmill.model.task import Claimed
from taskmill.model.turn import NO_STARTS, Judged, Look, Starts, Turn, TurnResult, TurnUpkeep
from taskmill.policy.cron.decisions import retry_at
from taskmill.policy.families import family_verdict
from taskmill.policy.verdicts import completed, failure_of, judge
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.attempts import Attempts
from taskmill.runtime.settings import RunSettings

PROGRESS_INTERVAL = 0.5
"""Seconds between two writes of the progress of running attempts, however often it is reported."""
SWEEP_REST = 5.0
"""After each batch of a sweep, other work has this many times the time that the batch took."""
MOST_TEXT = 32 * 2**20
"""The most characters of results and errors to store in one turn; PostgreSQL refuses more than 256 MB in one value."""
MOST_OF_ERROR = 32 * 2**10
"""An upper bound for the characters of one error with its traceback."""

_encode = msgspec.json.Encoder().encode
_jitter = random.Random()  # noqa: S311 - not for secrets. The program may have seeded the module's own generator.

Ended = tuple[Attempt, Outcome]


def is_past(at: int | None, now: int) -> bool:
    """True if the instant has come."""
    return at is not None and at <= now


# Verdicts


def one_turns_worth(ended: list[Ended]) -> tuple[list[Ended], list[Ended]]:
    """Split outcomes into those that one turn stores and those that are left for the next."""
    characters = 0
    for number, (_, outcome) in enumerate(ended):
        if isinstance(outcome, Succeeded):
            characters += len(outcome.result)
        elif isinstance(outcome, Failed | GaveUp | Unrunnable):
            characters += MOST_OF_ERROR
        if characters > MOST_TEXT and number:
            return ended[:number], ended[number:]
    return ended, []


def judge_all(ended: Sequence[Ended], now: int, monotonic: float, *, leaving: bool) -> list[Judged]:
    """Return the verdicts on ended attempts, in order; ``leaving`` if the scheduler is shutting down."""
    judged: list[Judged] = []
    for attempt, outcome in ended:
        # The attempt may have ended long before its verdict is committed.
        ended_at = now if attempt.ended_at is None else now - round((monotonic - attempt.ended_at) * 1000)
        judged.append(
            Judged(
                task=attempt.task,
                verdict=_verdict(attempt, outcome, now, ended_at, leaving=leaving),
                duration_ms=attempt.duration_ms,
                ended_at=ended_at,
                began_at=attempt.task.started_at if attempt.task.prefetched else None,
                io=None if attempt.io is None else budget_to_store(attempt.io),
                stopped=attempt.ends_task,
                failure=None if type(outcome) is Succeeded else failure_of(outcome),
            )
        )
    return judged


def _verdict(attempt: Attempt, outcome: Outcome, now: int, ended_at: int, *, leaving: bool) -> Verdict:
    task = attempt.task
    if isinstance(outcome, Succeeded):
        verdict: Verdict = completed(outcome)
    elif isinstance(outcome, Stopped) and outcome.awaits_children:
        return Wait(None)
    else:
        verdict = judge(
            outcome,
            retry=attempt.retry,
            retries=task.retries,
            crashes=task.crashes,
            now=now,
            random=_jitter.random(),
            leaving=leaving,
        )
    if task.cron is not None and isinstance(verdict, TryAgain):
        # A cron task has a minimum delay, whatever the handler asked for. The delay counts from the failure.
        verdict = TryAgain(verdict.error, retry_at(ended_at, 0 if verdict.due_at is None else verdict.due_at - now))
    if not attempt.has_family:
        return verdict
    finalizes = attempt.type.handler.finalize is not None
    return family_verdict(verdict, task.family, finalizes=finalizes, spawned_now=attempt.spawned)


# Plans


class ProgressReports:
    """Collects reported progress: the last report of each attempt that ended, and now and then those of the others."""

    def __init__(self) -> None:
        self.waits = False
        """True if progress was reported since the running attempts were last asked."""
        self._asked_at = float("-inf")
        self.gathered: list[Attempt] = []
        """The attempts whose progress was written last."""

    @property
    def next_at(self) -> float | None:
        """When the running attempts are asked again; None if they have reported nothing."""
        return self._asked_at + PROGRESS_INTERVAL if self.waits else None

    def gather(self, now: float, ended: Sequence[Ended], running: Iterable[Attempt]) -> list[tuple[int, int, str]]:
        """Return ``(id, attempt, progress)`` of attempts with new progress."""
        attempts = [attempt for attempt, _ in ended if attempt.latest is not None]
        if (next_at := self.next_at) is not None and now >= next_at:
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
        self._rests_until = float("-inf")

    @property
    def rests(self) -> bool:
        """True if other work comes first, if there is any."""
        return self._clock.monotonic() < self._rests_until

    def swept(self, began: float) -> None:
        """Rest after a turn with a sweep, which began at ``began`` on the monotonic clock."""
        now = self._clock.monotonic()
        self._rests_until = now + min(SWEEP_REST * (now - began), self._longest)


class Planner:
    """Makes the plan of each turn from everything that happened since the last one."""

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
        self.outcomes: list[Ended] = []
        """Outcomes of attempts that no turn has judged yet."""
        self.judging: list[Ended] = []
        """The outcomes of the turn under way, in the order of its verdicts."""
        self.returns: list[Claimed] = []
        """Claimed tasks that are not started after all; the next turn returns them to the queue."""
        self.readers: list[asyncio.Future[None]] = []
        """Readers that wait for a turn which stores all outcomes and beginnings."""
        self._served: list[asyncio.Future[None]] = []
        """The readers that the turn under way serves."""
        self.claiming = True
        """False once the scheduler is stopping: nothing more is started."""
        self._looked_first_at: int | None = None
        """The time of the last turn, if it claimed nothing because other tasks had to be read first."""

    @property
    def serves_readers(self) -> bool:
        """True if readers wait for the turn under way."""
        return bool(self._served)

    def turn_failed(self, turn: Turn) -> None:
        """Keep the outcomes and returns of a turn that could not be committed for the next one."""
        self.returns[:0] = turn.returns
        self.outcomes[:0] = self.judging
        self.judging = []
        self.readers += self._served

    def turn_committed(self, turn: Turn, result: TurnResult) -> None:
        self._preempting.read(turn.look.urgent, result.spawned)
        for reader in self._served:
            if not reader.done():
                reader.set_result(None)

    def plan(self) -> Turn:
        """Plan the next turn."""
        now, monotonic = self._clock.now_ms(), self._clock.monotonic()
        slots, waiting = self._settings.declared.max_concurrency, self._waiting
        self.judging, self.outcomes = one_turns_worth(self.outcomes)
        judged = judge_all(self.judging, now, monotonic, leaving=not self.claiming)
        progress = self.progress.gather(monotonic, self.judging, self._attempts.open.values())
        returns = self._take_returns(monotonic)
        for each in judged:
            # Verdicts are committed before claims: a task that returns to the queue may start in the same turn.
            if isinstance(each.verdict, End):
                continue
            if isinstance(each.verdict, Return | TryAgain) and each.verdict.due_at is None:
                waiting.queue_again(each.task.lane, each.task.place)
        promote, skip = waiting.due.is_past(now), is_past(waiting.next_beat, now)
        survey, waiting.survey_wanted = waiting.survey_wanted, False
        looks_first = self._looks_first(judged, now, surveys=survey, promotes=promote)
        at_work = self._at_work()
        shown_slots = slots if self._store.is_cluster else None
        resume_preempted = resume_eased = False
        starts, look = NO_STARTS, Look(survey, slots=shown_slots)
        # Outcomes that are left for the next turn hold their slots until then.
        if self.claiming and not looks_first and not self.outcomes and not self._store.is_cut_off():
            taken = self._attempts.slots_taken
            # Preempted tasks return to the queue before anything less urgent starts.
            resume_preempted = self._preempting.may_return(self._attempts.open.values(), taken, slots, now)
            resume_eased = waiting.has_eased and not self._backpressure.is_easing
            if not (resume_preempted or resume_eased):
                starts = self._choose(slots, taken, now, surveys=survey, promotes=promote)
                look = waiting.look(survey=survey, slots=shown_slots, urgent=self._preempting.unknown)
        turn = Turn(
            now,
            monotonic,
            progress=progress,
            begun=self._take_begun(monotonic, preempts=starts.preempt is not None),
            judged=judged,
            returns=returns,
            at_work=at_work,
            upkeep=TurnUpkeep(promote=promote, skip=skip, resume_preempted=resume_preempted, resume_eased=resume_eased),
            starts=starts,
            look=look,
        )
        if is_past(waiting.next_expiry, now) and (turn.is_empty() or not self.sweep_pace.rests):
            return msgspec.structs.replace(turn, upkeep=msgspec.structs.replace(turn.upkeep, expire=True))
        return turn

    def _take_returns(self, monotonic: float) -> list[Claimed]:
        """Take the claimed tasks that return to the queue in this turn, and let them wait again."""
        waiting = self._waiting
        has_paused = waiting.has_preempted or waiting.has_eased
        if waiting.prefetch.is_overdue(monotonic) or has_paused or not self.claiming or self._store.is_cut_off():
            self.return_prefetched()
        returns, self.returns = self.returns, []
        for task in returns:
            if task.prefetched:
                waiting.queue_again(task.lane, task.place)
                if task.expires_at is not None:
                    waiting.note_expiry(task.expires_at)
        return returns

    def _looks_first(self, judged: Sequence[Judged], now: int, *, surveys: bool, promotes: bool) -> bool:
        """True if this turn only reads waiting tasks, and the next one starts them.

        A task that an ending releases, or that is due in an unknown place, may be more urgent than the known ones. If
        such turns follow each other, only those of one millisecond do so: otherwise a stream of them would keep slots
        empty.
        """
        waiting = self._waiting
        releases = not waiting.is_empty and any(each.stopped or each.task.is_tied for each in judged)
        releases_unknown = promotes and (surveys or not waiting.admit_due(now))
        may_look = self._looked_first_at is None or self._looked_first_at == now
        looks_first = waiting.in_doubt or waiting.looks_first or (may_look and (releases_unknown or releases))
        self._looked_first_at, waiting.looks_first = now if looks_first else None, False
        return looks_first

    def _at_work(self) -> list[int] | None:
        """Return the tasks that this node has claimed, so that the store returns all others it finds to the queue.

        This is necessary if the answer to a claim may have been lost; otherwise return None.
        """
        if not (self._store.is_cluster and self._waiting.in_doubt):
            return None
        ended = (attempt.task.id for attempt, _ in (*self.judging, *self.outcomes))
        return [*self._attempts.task_ids(), *(task.id for task in self._waiting.prefetch.tasks), *ended]

    def _take_begun(self, monotonic: float, *, preempts: bool) -> list[tuple[int, int, int]]:
        """Return the running tasks whose beginning this turn stores, and take the readers that wait for that."""
        self._served = []
        if not self.outcomes:
            self._served, self.readers = self.readers, []
        # The store chooses which task is preempted, among those that it knows to be running.
        stores_all = preempts or bool(self._served)
        return self._waiting.prefetch.to_store(math.inf if stores_all else monotonic)

    def _choose(self, slots: int, taken: int, now: int, *, surveys: bool, promotes: bool) -> Starts:
        """Choose the tasks that start, and preempt less urgent tasks for urgent ones that have no slot."""
        waiting, counters = self._waiting, self._settings.counters
        if counters is not None and not waiting.is_measured:
            waiting.measure(counters.denied, counters.redistributed)
        starts = waiting.choose(
            slots,
            slots - taken,
            now,
            surveys=surveys,
            promotes=promotes,
            running=self._running,
        )
        taken += len(starts.claims) - len(starts.prefetch)
        victims = self._preempting.victims(self._attempts.open.values(), taken, slots, now)
        for id in victims.here:
            self._attempts.stop(id, StopReason.PREEMPT)
        if victims.anywhere is None:
            return starts
        return msgspec.structs.replace(starts, preempt=victims.anywhere)

    def _running(self) -> list[Running]:
        now = self._clock.monotonic()
        attempts = self._attempts.open.values()
        return [Running(each.task.type, now - each.started, each.task.effective) for each in attempts]

    def return_prefetched(self) -> None:
        """Return the tasks that were prefetched and have not begun to the queue, with the next turn."""
        for task in self._waiting.prefetch.take_all():
            self.return_unstarted(task)

    def return_unstarted(self, task: Claimed) -> None:
        """Return a claimed task that was not started to the queue, with the next turn."""
        self._attempts.load.end(task.group, task.type, task.budget)
        self.returns.append(task)

    def next_moments(self) -> tuple[int | None, ...]:
        """Return the instants, on the wall clock, at which a new turn may have something to do."""
        return (*self._waiting.next_moments(), self._preempting.next_at)
