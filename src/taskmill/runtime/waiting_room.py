"""The waiting room as this process sees it: the front of the queue, the hooks that are due, the next moments.

It is told of every commit of this process. What another process changed is found by a survey, which whoever has reason
for doubt asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from taskmill.model.cluster import NOBODY, Others
from taskmill.model.stages import Claimed, Described, Lane, NewTask, Place
from taskmill.model.status import Status
from taskmill.policy.rules import Rules
from taskmill.ports import Arrived, Effects, Released, Turn, TurnResult
from taskmill.runtime.admitting import admission
from taskmill.runtime.candidates import Pick
from taskmill.runtime.courtesy import Courtesy
from taskmill.runtime.glimpse import Glimpse
from taskmill.runtime.hold_count import HoldCount
from taskmill.runtime.load import Load
from taskmill.runtime.picking import Picker
from taskmill.runtime.settings import RunSettings


class WaitingRoom:
    """What may start now, and when something else may."""

    def __init__(
        self,
        load: Load,
        knows: Callable[[str], bool],
        settings: RunSettings,
        courtesy: Courtesy,
        *,
        in_cluster: bool = False,
    ) -> None:
        self._glimpse = Glimpse()
        self._load = load
        self._settings = settings
        self.in_cluster = in_cluster
        """Whether other nodes dispatch too."""
        self.picks: list[Pick] = []
        """What the turn that is planned or under way is about to start."""
        self.picker = Picker(self._glimpse, load, knows, courtesy)
        self._holds: HoldCount | None = None
        self.has_preempted = self.has_eased = False
        """Whether tasks wait that have made way for more urgent ones."""
        self._hooks: list[int] = []
        """Tasks that were asked to stop and have their hook to run; they need no slot."""
        self._meanwhile: list[Arrived] = []
        self.in_turn = False
        self.survey_wanted = True
        self.in_doubt = False
        """A turn has failed: nothing is claimed until what it was to start is in sight again."""
        self.next_due: int | None = None
        self.next_expiry: int | None = None
        self.next_beat: int | None = None
        """When a beat of a recurring series comes, which is skipped if the last occurrence is active then."""
        self._is_current = False
        """Whether the last thing that happened was a survey, and it saw all that it found."""
        self.others: Others = NOBODY

    @property
    def is_empty(self) -> bool:
        """Nothing waits to start, for certain."""
        return not self.survey_wanted and not self._hooks and self._glimpse.is_empty

    def is_idle(self, slots: int, now: int) -> bool:
        """Nothing may start now, for certain, however many slots are free; among other nodes: nor runs there.

        Where it is not certain a survey is asked for.
        """
        if self.survey_wanted or self._hooks or self.has_preempted or self.has_eased or self._glimpse.unread():
            return False
        self.picker.settle(slots, now)
        # Pressure falls by itself: what waits for that alone is waited for.
        if self.picker.has_candidates or self.picker.is_held_by_machine:
            return False
        if self.in_cluster and not self._is_current:
            # What was in sight and is gone may run elsewhere.
            self.survey_wanted = True
            return False
        return not self._load.elsewhere.running and not any(map(self._starts_elsewhere, self.lanes()))

    def _starts_elsewhere(self, lane: Lane) -> bool:
        """Whether other nodes can run what waits there, and nobody here can."""
        if lane.type not in self.others.types or self.picker.gates.knows(lane.type):
            return False
        return not self.picker.rules.pauses(lane.group, lane.type)

    def next_moments(self) -> tuple[int | None, ...]:
        """When something changes by itself: work is due, expires or is skipped, a permit comes, a pause ends."""
        rules = self.picker.rules
        return self.next_due, self.next_expiry, self.next_beat, self.picker.next_moment, rules.next_resumption()

    def lanes(self) -> list[Lane]:
        """Every lane that has waiting tasks, as far as is known."""
        return [lane for lanes in self._glimpse.groups.values() for lane in lanes]

    # Commits of this process

    def take_in(self, arrived: Arrived) -> None:
        """New tasks are committed, or others were released by a commit."""
        if self.in_turn:
            # What the turn reads may be older or newer than this; it is noted once the turn is known.
            self._meanwhile.append(arrived)
            return
        self._is_current = False
        for id, task in arrived.fresh:
            self._note_new(task, id)
        self._follow(arrived.effects)

    def _note_new(self, task: NewTask, id: int) -> None:
        if task.status is Status.PENDING and task.stop is None:
            # One that stands in the place of another is queued before it was created, and has not aged yet.
            renewed_at = task.created_at if task.queued_at < task.created_at else None
            self.queue_again(
                Lane(task.group, task.priority, task.type, renewed_at is not None),
                Place(task.queued_at, task.place_id or id, id, renewed_at, task.io),
            )
        elif task.status is Status.SCHEDULED and task.due_at is not None:
            self.note_due(task.due_at)
        if task.expires_at is not None:
            self.note_expiry(task.expires_at)

    def _follow(self, effects: Effects) -> None:
        for released in effects.released:
            self._note_released(released)
        for at in effects.beats:
            self.next_beat = at if self.next_beat is None else min(self.next_beat, at)
        self._hooks += effects.hooks
        self.survey_wanted = self.survey_wanted or effects.reordered or bool(effects.pauses_ended)
        if effects.ended and self.picker.courtesy.holds_io:
            # A place that is stale is harmless, but not one for which room is kept.
            self.survey_wanted = True

    def _note_released(self, task: Released) -> None:
        if task.due_at is None:
            self.queue_again(task.lane, task.place)
        else:
            self.note_due(task.due_at)
        if task.expires_at is not None:
            self.note_expiry(task.expires_at)

    def queue_again(self, lane: Lane, place: Place) -> None:
        self._glimpse.add(lane, place)

    def doubt(self, task: Described | Claimed) -> None:
        """Something like it may wait that is not known."""
        self._glimpse.doubt([Lane(task.group, task.urgency, task.type, renewed) for renewed in (False, True)])

    def note_due(self, at: int) -> None:
        self.next_due = at if self.next_due is None else min(self.next_due, at)

    def note_expiry(self, at: int) -> None:
        self.next_expiry = at if self.next_expiry is None else min(self.next_expiry, at)

    # Turns

    def choose(self, turn: Turn, slots: int, free: int) -> None:
        """Claim what may start: hooks at once, tasks in at most ``free`` of all ``slots``."""
        picker = self.picker
        if self._settings.meter is not None and self._holds is None:
            self._holds = HoldCount(self._settings.meter, picker, self._glimpse, self._load)
            picker.shares.meter = self._settings.meter
        self.picks = picker.pick(slots, free, turn.now)
        if self._holds is not None:
            self._holds.count(free - len(self.picks), turn.now)
        turn.claims = [pick.id for pick in self.picks]
        turn.hooks, self._hooks = self._hooks, []
        turn.is_owed = bool(turn.claims and picker.rules.controls.ended_pauses)
        turn.meters = picker.meters.promised(picker.rules)
        if self.in_cluster:
            # Where aging began anew for some, the first of a lane need not be the most urgent; a budget is one's own.
            turn.lanes = {
                pick.id: (pick.lane, pick.place.queued_at)
                for pick in self.picks
                if not pick.lane.renewed and pick.place.io is None
            }
            if self.picks and picker.rules.limits_anything:
                turn.admission = admission(self.picks, picker, self._load, slots)
        turn.refill = self._glimpse.unread()
        turn.lanes_in_sight = self._glimpse.lane_count
        is_limited = picker.rules.limits_anything or picker.courtesy.is_watching
        if not turn.survey and not turn.promote and self._glimpse.is_empty and not is_limited:
            turn.spare = max(free - len(self.picks), 0)

    def noted_away(self, turn: Turn, *, for_pressure: bool) -> None:
        """A task has made way in this turn, which may have brought it back as well."""
        if for_pressure:
            self.has_eased = self.has_eased or not turn.resume_eased
        else:
            self.has_preempted = self.has_preempted or not turn.resume_preempted

    def turn_begins(self) -> None:
        self.in_turn = True

    def turn_ends(self) -> None:
        self.in_turn = False

    def _give_up_picks(self, started: Collection[int]) -> None:
        """The turn is over: what has started takes its slot when it is launched, the slots of the others are free."""
        for pick in self.picks:
            if pick.id in started:
                self._load.hand_on(pick.group, pick.type, pick.budget)
            else:
                self._load.end(pick.group, pick.type, pick.budget)
        self.picks.clear()

    def _others_took(self, meant_to_begin: Collection[int], result: TurnResult) -> None:
        """Other nodes claim from the same lanes: what started may be others than were meant."""
        claimed = {task.id for task in result.claimed}
        for task in result.claimed:
            if task.id not in meant_to_begin:
                self._glimpse.drop(task.lane, task.place)
        lost = [pick for pick in self.picks if pick.id in meant_to_begin and pick.id not in claimed]
        for pick in lost:
            # It may wait still: another of its lane, which nobody here knew, has started in its place.
            self.queue_again(pick.lane, pick.place)
        if result.controls is not None:
            # The rules have changed, so nothing was claimed: the lanes are as they were.
            return
        begun = Counter(task.lane for task in result.claimed)
        meant = Counter(pick.lane for pick in self.picks)
        # Where there was less than was meant, nobody knows what there is.
        self._glimpse.doubt([lane for lane in {pick.lane for pick in lost} if begun[lane] < meant[lane]])

    def _was_emptied(self, lane: Lane, result: TurnResult) -> bool:
        """Whether others may have begun, after the survey, what it saw there.

        Of what is paused, nothing may have begun then; its tasks are out of sight when they are past their deadline.
        """
        return not result.fronts.get(lane) and not self.picker.rules.pauses(lane.group, lane.type)

    def turn_failed(self) -> None:
        """Whatever the turn was to do is in doubt."""
        self._give_up_picks(())
        self.survey_wanted = self.in_doubt = True
        self._meanwhile.clear()
        self.picker.turn_over((), all_started=False)

    def read(self, turn: Turn, result: TurnResult) -> None:
        """The turn is committed: what it found, what it did, and what was committed while it was under way."""
        if turn.lanes:
            self._others_took(turn.lanes, result)
        self._give_up_picks({task.id for task in result.claimed})
        self.picker.turn_over(result.buckets, all_started=len(result.claimed) >= len(turn.claims) + len(turn.hooks))
        if result.controls is not None:
            # Nothing was claimed, and places may have changed with what was paused.
            self.picker.rule(Rules(self._settings.declared, result.controls), result.controls.buckets.items(), turn.now)
            self.survey_wanted = not turn.survey or self.survey_wanted
        if result.elsewhere is not None:
            self._load.now_elsewhere(result.elsewhere)
        self.survey_wanted = self.survey_wanted or result.refused
        if result.lanes is not None:
            self._glimpse.survey(result.lanes)
        self._glimpse.read(result.fronts, result.front_size)
        if turn.promote or turn.survey:
            self.next_due = result.next_due
        if turn.expire or turn.survey:
            self.next_expiry = result.next_expiry
        if turn.skip or turn.survey:
            self.next_beat = result.next_beat
        self._hooks += result.hooks
        self._is_current = turn.survey and not any(self._was_emptied(lane, result) for lane in result.lanes or ())
        if turn.survey:
            self.others = result.others or NOBODY
            self.in_doubt = False
            self.has_preempted, self.has_eased = result.has_preempted, result.has_eased
        else:
            self.has_preempted = self.has_preempted and not turn.resume_preempted
            self.has_eased = self.has_eased and not turn.resume_eased
        if turn.expire and len(result.claimed) < len(turn.claims):
            # Slots were offered to tasks that may no longer start: look past them.
            for ended in result.effects.ended:
                self.doubt(ended.task)
        self._follow(result.effects)
        meanwhile, self._meanwhile = self._meanwhile, []
        for arrived in meanwhile:
            self.take_in(arrived)
