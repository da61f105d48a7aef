"""The waiting room as this process sees it: the front of the queue, the hooks that are due, the next moments.

It is told of every commit of this process. What another process changed is found by a survey, which whoever has reason
for doubt asks for.
"""

from __future__ import annotations

from taskmill.model.stages import Lane, NewTask, Place
from taskmill.model.status import Status
from taskmill.ports import Arrived, Effects, Released, Turn, TurnResult
from taskmill.runtime.glimpse import Glimpse
from taskmill.runtime.picking import pick


class WaitingRoom:
    """What may start now, and when something else may."""

    def __init__(self, front_size: int) -> None:
        self._glimpse = Glimpse(front_size)
        self._hooks: list[int] = []
        """Tasks that were asked to stop and have their hook to run; they need no slot."""
        self._meanwhile: list[Arrived] = []
        self.in_turn = False
        self.survey_wanted = True
        self.next_due: int | None = None
        self.next_expiry: int | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing waits to start, for certain."""
        return not self.survey_wanted and not self._hooks and self._glimpse.is_empty

    # Commits of this process

    def take_in(self, arrived: Arrived) -> None:
        """New tasks are committed, or others were released by a commit."""
        if self.in_turn:
            # What the turn reads may be older or newer than this; it is noted once the turn is known.
            self._meanwhile.append(arrived)
            return
        for id, task in arrived.fresh:
            self._note_new(task, id)
        self._follow(arrived.effects)

    def _note_new(self, task: NewTask, id: int) -> None:
        if task.status is Status.PENDING and task.stop is None:
            self._glimpse.add(Lane(task.group, task.priority), Place(task.queued_at, id))
        elif task.status is Status.SCHEDULED and task.due_at is not None:
            self.note_due(task.due_at)
        if task.expires_at is not None:
            self.note_expiry(task.expires_at)

    def _follow(self, effects: Effects) -> None:
        for released in effects.released:
            self._note_released(released)
        self._hooks += effects.hooks
        self.survey_wanted = self.survey_wanted or effects.reordered

    def _note_released(self, task: Released) -> None:
        if task.due_at is None:
            self.queue_again(task.group, task.urgency, task.queued_at, task.id)
        else:
            self.note_due(task.due_at)
        if task.expires_at is not None:
            self.note_expiry(task.expires_at)

    def queue_again(self, group: str, urgency: int, queued_at: int, id: int) -> None:
        self._glimpse.add(Lane(group, urgency), Place(queued_at, id))

    def doubt(self, group: str, urgency: int) -> None:
        """Something may wait there that is not known."""
        self._glimpse.doubt([Lane(group, urgency)])

    def note_due(self, at: int) -> None:
        self.next_due = at if self.next_due is None else min(self.next_due, at)

    def note_expiry(self, at: int) -> None:
        self.next_expiry = at if self.next_expiry is None else min(self.next_expiry, at)

    # Turns

    def choose(self, turn: Turn, slots: int) -> None:
        """Claim what may start: hooks at once, tasks in at most ``slots``."""
        picked = pick(self._glimpse, slots)
        turn.claims = [*self._hooks, *picked]
        self._hooks.clear()
        turn.refill = self._glimpse.unread()
        if not turn.survey and not turn.promote and self._glimpse.is_empty:
            turn.spare = max(slots - len(picked), 0)

    def turn_begins(self) -> None:
        self.in_turn = True

    def turn_ends(self) -> None:
        self.in_turn = False

    def turn_failed(self) -> None:
        """Whatever the turn was to do is in doubt."""
        self.survey_wanted = True
        self._meanwhile.clear()

    def read(self, turn: Turn, result: TurnResult) -> None:
        """The turn is committed: what it found, what it did, and what was committed while it was under way."""
        if result.lanes is not None:
            self._glimpse.survey(result.lanes)
        self._glimpse.read(result.fronts)
        if turn.promote or turn.survey:
            self.next_due = result.next_due
        if turn.expire or turn.survey:
            self.next_expiry = result.next_expiry
        self._hooks += result.hooks
        if turn.expire and len(result.claimed) < len(turn.claims):
            # Slots were offered to tasks that may no longer start: look past them.
            for ended in result.effects.ended:
                self.doubt(ended.task.group, ended.task.urgency)
        self._follow(result.effects)
        meanwhile, self._meanwhile = self._meanwhile, []
        for arrived in meanwhile:
            self.take_in(arrived)
