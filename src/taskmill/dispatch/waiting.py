"""The waiting tasks as this process knows them: the front of the queue, the hooks that are due, the next instants.

Every commit of this process updates them, and so do the tasks that other processes queue (``news.py``). A survey finds
all other changes: a read of all lanes with waiting tasks, requested when the known state may be out of date.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.due import DueTasks
from taskmill.dispatch.front import Front
from taskmill.dispatch.hold_counter import HoldCounter
from taskmill.dispatch.limits import Load
from taskmill.dispatch.news import OthersNews
from taskmill.dispatch.picker import Picker
from taskmill.dispatch.prefetch import Prefetch, Running
from taskmill.model.cluster import NO_OTHERS, Admission, Others, Start
from taskmill.model.commit import Changes, Commit
from taskmill.model.controls import Declared
from taskmill.model.explanation import Reason
from taskmill.model.status import PENDING, Status
from taskmill.model.task import Claimed, DueTask, Lane, NewTask, Place, Waiting
from taskmill.model.turn import Look, Starts, Turn, TurnResult, TurnUpkeep
from taskmill.model.type_name import domain_of
from taskmill.policy.rules import Rules


class WaitingTasks:
    """Plans which tasks start now, and knows when something else may start."""

    def __init__(
        self, load: Load, knows: Callable[[str], bool], backpressure: Backpressure, *, in_cluster: bool = False
    ) -> None:
        self._front = Front()
        self._load = load
        self.in_cluster = in_cluster
        """True if other nodes may dispatch too."""
        self.picks: list[Waiting] = []
        """The tasks that the current turn starts, until it is committed or fails."""
        self.prefetch = Prefetch(in_cluster=in_cluster)
        self.picker = Picker(self._front, load, knows, backpressure)
        self._holds: HoldCounter | None = None
        self.has_preempted = False
        """True if tasks wait that were preempted by more urgent ones."""
        self.has_eased = False
        """True if tasks wait that were preempted because of pressure."""
        self._hooks: list[int] = []
        """Tasks that were asked to stop and whose hooks are due. A hook needs no slot."""
        self._meanwhile: list[Commit] = []
        """Commits made while a turn is under way."""
        self.in_turn = False
        """True while a planned turn is being committed; the loop sets it."""
        self.survey_wanted = True
        self._news = OthersNews()
        self.in_doubt = False
        """True after a turn has failed: its claims may be committed, so nothing is claimed before a survey."""
        self.looks_first = False
        """True after a turn has found changed controls: nothing is claimed before the lanes are read again."""
        self.due = DueTasks(self.picker)
        self.next_expiry: int | None = None
        self.next_beat: int | None = None
        """When the next occurrence of any series is due. It is skipped if the last one is still active."""
        self._is_current = False
        """True if no commit followed the last survey, and it read tasks in every lane it found that is not paused."""
        self.others: Others = NO_OTHERS

    def measure(self, denied: Callable[[Reason], None], lent: Callable[[str, int], None]) -> None:
        """Report holds and lent slots from now on; call it once."""
        self._holds = HoldCounter(denied, self.picker, self._front)
        self.picker.shares.count_lent = lent

    def changed_elsewhere(self, changes: Changes) -> None:
        """Request a read of the tasks that another process has queued, or a survey if only that shows its changes."""
        self._is_current = False
        if not self._news.hear(changes) or self._depends_on_others:
            self.survey_wanted = True

    @property
    def _depends_on_others(self) -> bool:
        """True if tasks that run, or have ended, in other processes decide what may start here."""
        is_limited = self.picker.rules.limits_anything or self.has_preempted or self.has_eased
        return (self.in_cluster and is_limited) or self.picker.backpressure.holds_io

    @property
    def is_measured(self) -> bool:
        return self._holds is not None

    @property
    def is_empty(self) -> bool:
        """True if it is certain that no task waits to start."""
        return not (self.survey_wanted or self._news.is_waiting or self._hooks) and self._front.is_empty

    def is_idle(self, slots: int, now: int) -> bool:
        """True if it is certain that no task can start now, even in a free slot, and that no other node runs a task.

        If that is uncertain, a survey is requested.
        """
        if self.survey_wanted or self._news.is_waiting or self._hooks or self.has_preempted or self.has_eased:
            return False
        if self._front.unread():
            return False
        self.picker.settle(slots, now)
        # Pressure falls by itself, so a task that waits for nothing else is going to start.
        if self.picker.has_candidates or self.picker.is_held_by_machine:
            return False
        if self.in_cluster and not self._is_current:
            # A task that left the front may run on another node.
            self.survey_wanted = True
            return False
        return not self._load.elsewhere.running and not any(map(self._starts_elsewhere, self.lanes()))

    def _starts_elsewhere(self, lane: Lane) -> bool:
        """True if other nodes have a handler for the tasks of a lane and this one has not."""
        if lane.type not in self.others.types or self.picker.limits.knows(lane.type):
            return False
        return not self.picker.rules.pauses(lane.group, lane.type)

    def next_moments(self) -> tuple[int | None, ...]:
        """Return the next instants at which a task is due, expires or is skipped, a token is free, or a pause ends."""
        due_at, next_moment = self.due.next_at, self.picker.limits.next_moment
        return due_at, self.next_expiry, self.next_beat, next_moment, self.picker.rules.next_resumption()

    def lanes(self) -> list[Lane]:
        """Return every lane that is known to have waiting tasks."""
        return [lane for lanes in self._front.groups.values() for lane in lanes]

    # Commits of this process

    def follow(self, commit: Commit) -> None:
        """Follow a commit of this process."""
        if self.in_turn:
            # The turn may read the store before or after this commit; it is followed once the turn is over.
            self._meanwhile.append(commit)
            return
        self._is_current = False
        for id, new in commit.fresh:
            self._note_new(new, id)
            self._news.stored_here(id)
        for waiting in commit.released:
            self._front.add(waiting.lane, waiting.place)
        for task in commit.due:
            self.due.note(task)
        for at in commit.expiries:
            self.note_expiry(at)
        for at in commit.beats:
            self.next_beat = at if self.next_beat is None else min(self.next_beat, at)
        self._hooks += commit.hooks
        self.due.forget(commit.hooks)
        self.survey_wanted = self.survey_wanted or commit.reordered or bool(commit.pauses_ended)
        for ended in commit.ended:
            self._front.remove(ended.task)
        self.due.forget(ended.task.id for ended in commit.ended)

    def _note_new(self, task: NewTask, id: int) -> None:
        if task.status is PENDING and task.stop is None:
            self._front.add(task.lane, task.place(id))
        elif task.status is Status.SCHEDULED and task.due_at is not None:
            self.due.note(DueTask(task.due_at, task.lane, task.place(id)))
        if task.expires_at is not None:
            self.note_expiry(task.expires_at)

    def queue_again(self, lane: Lane, place: Place) -> None:
        """Add a task that the planned turn returns to the queue."""
        self._front.add(lane, place)

    def admit_due(self, now: int) -> bool:
        """Add the tasks that are due to the front, for a turn that releases them; return False if some are unknown."""
        if not self.due.are_known(now):
            return False
        due = self.due.take(now)
        for task in due:
            self._front.add(task.lane, task.place)
        # No prefetched task that comes after them begins while the turn is under way.
        self.prefetch.first_waiting = self.prefetch.first_waiting.plus((task.group, task.rank) for task in due)
        return True

    def doubt(self, task: Claimed) -> None:
        """Mark the lanes of a task to be read again: unknown tasks like it may wait there."""
        self._front.doubt([Lane(task.group, task.urgency, task.type, renewed) for renewed in (False, True)])

    def note_expiry(self, at: int) -> None:
        self.next_expiry = at if self.next_expiry is None else min(self.next_expiry, at)

    # Turns

    def choose(
        self,
        slots: int,
        free: int,
        now: int,
        *,
        surveys: bool,
        promotes: bool,
        running: Callable[[], Collection[Running]],
    ) -> Starts:
        """Choose the starts: every hook that is due, and tasks in at most ``free`` of all ``slots``.

        Tasks that the turn itself releases start in slots that are left over, unless it ``surveys`` the queue or
        ``promotes`` tasks that are due. A turn that surveys prefetches nothing: tasks may be more urgent than is known.
        """
        picker, rules, prefetched = self.picker, self.picker.rules, self.prefetch.tasks
        self.picks = picks = picker.pick(slots, free, now, before=prefetched[0]) if prefetched else []
        overtakes = bool(picks)
        self.prefetch.is_held = self.prefetch.is_held or overtakes
        unused, free = free, max(free - len(prefetched), len(picks))
        if not overtakes:
            room = self.prefetch.room(max(unused, 0), running()) if self._may_prefetch() and not surveys else None
            self.picks = picks = picker.pick(slots, free, now, room=room)
        if self._holds is not None:
            waits = bool(prefetched) or len(picks) > free
            self._holds.count(free - len(picks), now, prefetched=waits)
        hooks, self._hooks = self._hooks, []
        lanes: dict[int, tuple[Lane, int]] | None = None
        admission: Admission | None = None
        if self.in_cluster:
            # Claim by lane only where any first task will do: with restarted aging the first task may not be the most
            # urgent, and a budget belongs to one task. Tasks that start before prefetched ones are claimed by id: if
            # such a task is gone, the first of its lane may come after the prefetched ones.
            lanes = {
                task.id: (task.lane, task.queued_at)
                for task in picks
                if not overtakes and not task.lane.renewed and task.place.io is None
            }
            if picks and rules.limits_anything:
                admission = self._admission(slots)
        is_limited = rules.limits_anything or picker.backpressure.is_watching
        may_spare = self._front.is_empty and not (surveys or promotes or is_limited)
        spare = free - len(picks) if may_spare else 0
        return Starts(
            hooks=hooks,
            claims=[task.id for task in picks],
            prefetch={task.id for task in picks[free:]},
            controls_version=rules.controls.version,
            lanes=lanes,
            owes_paused_time=bool(picks and rules.controls.ended_pauses),
            rates=picker.limits.buckets.promised(rules),
            admission=admission,
            spare=max(spare, 0),
        )

    def hold_prefetched(self, slots: int, now: int) -> None:
        """Hold prefetched tasks back while there are waiting tasks that start, or may start, before them."""
        groups = {task.group for task in self.prefetch.tasks}
        if groups:
            self.prefetch.first_waiting = self.picker.first_waiting(groups, slots, now)
            self.prefetch.is_held = self.has_preempted or self.has_eased or self._front.has_unknown_lanes

    def _may_prefetch(self) -> bool:
        rules = self.picker.rules
        is_limited = rules.is_shared or rules.controls.pauses or (self.in_cluster and rules.limits_anything)
        # Preempted tasks return to the queue before anything less urgent starts.
        return not (is_limited or self.has_preempted or self.has_eased or self._front.is_empty)

    def _admission(self, slots: int) -> Admission:
        """Return the picks with the limits they were chosen by, for the store to check against other nodes' starts."""
        rules, load = self.picker.rules, self._load
        groups = Counter(task.lane.group for task in self.picks)
        domains = Counter(domain_of(task.lane.type) for task in self.picks)
        demands = None
        if rules.is_shared:
            asked = self.picker.shares.demands()
            demands = {group: each._replace(waiting=each.waiting + groups[group]) for group, each in asked.items()}
        return Admission(
            starts=[Start(task.id, task.lane.group, task.lane.type, task.by_share) for task in self.picks],
            planned=load.elsewhere,
            groups=load.groups - groups,
            domains=load.domains - domains,
            caps={group: cap for group in groups if (cap := rules.group(group).cap) is not None},
            domain_caps={domain: cap for domain in domains if (cap := rules.domain_cap(domain)) is not None},
            demands=demands,
            slots=slots,
        )

    def look(self, *, survey: bool, slots: int | None, urgent: Collection[int]) -> Look:
        """Return what to read at the end of a turn that starts tasks."""
        return self._news.look(Look(survey, None, (), self._front.unread(), self._front.lane_count, slots, urgent))

    def note_preempted(self, upkeep: TurnUpkeep, *, for_pressure: bool) -> None:
        """Note that a task was preempted by a turn, unless that turn has returned it to the queue as well."""
        if for_pressure:
            self.has_eased = self.has_eased or not upkeep.resume_eased
        else:
            self.has_preempted = self.has_preempted or not upkeep.resume_preempted

    def _settle_slots(self, claimed: Iterable[Claimed]) -> None:
        """Give back the slots of picks that were not claimed, and take slots for claimed tasks that were not picked."""
        picks = {task.id: task for task in self.picks}
        self.picks = []
        instead = Counter[Lane]()
        for task in claimed:
            if (pick := picks.pop(task.id, None)) is not None:
                task.budget = pick.budget
            else:
                instead[task.lane] += 1
                task.budget = self.picker.backpressure.budget_of(task.type, task.io)
                self._load.begin(task.group, task.type, task.budget)
        lost: list[Waiting] = []
        for pick in picks.values():
            self._load.end(pick.lane.group, pick.lane.type, pick.budget)
            if instead[pick.lane]:
                instead[pick.lane] -= 1
            else:
                lost.append(pick)
        self.picker.not_started(lost)

    def _others_took(self, picked: Collection[int], refused: Collection[int], result: TurnResult) -> None:
        """Correct the front after other nodes claimed from the same lanes: not all picked tasks may have started.

        Those that were ``refused`` still wait, each in its place.
        """
        claimed = {task.id for task in result.claimed}
        for task in result.claimed:
            if task.id not in picked:
                self._front.drop(task.lane, task.place)
        lost = [task for task in self.picks if task.id in picked and task.id not in claimed]
        for pick in lost:
            # It may still wait: an unknown task of its lane may have started in its place.
            self._front.add(pick.lane, pick.place)
        if result.controls is not None:
            # The rules have changed, so nothing was claimed: the lanes are as they were.
            return
        self._news.taken_elsewhere(pick.lane for pick in lost)
        begun = Counter(task.lane for task in result.claimed)
        meant = Counter(task.lane for task in self.picks if task.id not in refused)
        # If fewer tasks of a lane started than were picked from it, its content is unknown: read it again.
        self._front.doubt([lane for lane in {task.lane for task in lost} if begun[lane] < meant[lane]])

    def _note_refused(self, starts: Starts, claimed: Iterable[Claimed]) -> Collection[int]:
        """Put back tasks that could not be prefetched, because each has to wait for a slot; return their ids."""
        if not (unclaimed := starts.prefetch - {task.id for task in claimed}):
            return ()
        missing = [task for task in self.picks if task.id in unclaimed]
        for task in missing:
            if task.id not in (starts.lanes or ()):
                self._front.add(task.lane, task.place)
        types = {task.type for task in missing} - {task.type for task in claimed if task.prefetched}
        self.prefetch.refused(types)
        return {task.id for task in missing if task.type in types}

    def _was_emptied(self, lane: Lane, result: TurnResult) -> bool:
        """True if the survey saw tasks in a lane that other nodes may have started since.

        A paused lane does not count: its tasks may be missing from the front because they are past their deadlines.
        """
        return not result.fronts.get(lane) and not self.picker.rules.pauses(lane.group, lane.type)

    def turn_failed(self) -> None:
        """Give the slots of a failed turn back and request a survey: the turn may have been committed or not."""
        self._settle_slots(())
        self.survey_wanted = self.in_doubt = True
        self._news.forget()
        self._meanwhile.clear()
        self.picker.turn_over((), all_started=False)

    def _note_moments(self, turn: Turn, result: TurnResult) -> None:
        upkeep, survey = turn.upkeep, turn.look.survey
        if upkeep.promote or survey:
            self.due.read(result.next_due)
        if upkeep.expire or survey:
            self.next_expiry = result.next_expiry
        if upkeep.skip or survey:
            self.next_beat = result.next_beat

    def turn_committed(self, turn: Turn, result: TurnResult, declared: Declared) -> None:
        """Apply the result of a turn, and then the commits that were made while it was under way."""
        starts, look, upkeep = turn.starts, turn.look, turn.upkeep
        refused = self._note_refused(starts, result.claimed) if result.controls is None else ()
        if starts.lanes:
            self._others_took(starts.lanes, refused, result)
        self._settle_slots(result.claimed)
        all_started = len(result.claimed) >= len(starts.claims) + len(starts.hooks)
        self.picker.turn_over(result.buckets, all_started=all_started)
        if result.controls is not None:
            # Nothing was claimed, and a pause may have changed places: read them before anything is claimed.
            self.picker.rule(Rules(declared, result.controls), result.controls.buckets.items(), result.now)
            self.looks_first = not look.survey
            self.survey_wanted = self.survey_wanted or self.looks_first
        if result.elsewhere is not None:
            self._load.now_elsewhere(result.elsewhere)
        self.survey_wanted = self.survey_wanted or result.refused or result.needs_survey
        self._news.read(look, result.news)
        if result.lanes is not None:
            self._front.survey(result.lanes)
        self._front.read(result.fronts, result.front_size)
        self._note_moments(turn, result)
        self._hooks += result.hooks
        self._is_current = look.survey and not any(self._was_emptied(lane, result) for lane in result.lanes or ())
        if look.survey:
            self.others = result.others or NO_OTHERS
            self.in_doubt = False
            self.has_preempted, self.has_eased = result.has_preempted, result.has_eased
        else:
            self.has_preempted = self.has_preempted and not upkeep.resume_preempted
            self.has_eased = self.has_eased and not upkeep.resume_eased
        meanwhile, self._meanwhile = self._meanwhile, []
        for commit in meanwhile:
            self.follow(commit)
