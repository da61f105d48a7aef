"""What a commit did, and the results of single operations."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from taskmill.model.attempt import End
from taskmill.model.controls import Scope
from taskmill.model.cron import CronState
from taskmill.model.task import Described, DueTask, NewTask, Waiting


class Ended(msgspec.Struct, frozen=True):
    """A task that ended in some other way than by the verdict on its own attempt."""

    task: Described
    end: End
    duration_ms: int | None


class Skipped(msgspec.Struct, frozen=True):
    """Occurrences of a recurring task that passed while ``task`` was active, or before it was made."""

    task: Described
    count: int


MOST_QUEUED = 500
"""At most this many queued tasks are named to other processes; for more, a survey costs less."""


class Changes(NamedTuple):
    """What transactions changed in the queue, as far as dispatchers in other processes need to know."""

    queued: frozenset[int] = frozenset()
    """Tasks that were stored, released or returned to the queue. They may have left it since."""
    more: bool = False
    """True if anything else that a dispatcher acts on may have changed."""

    def joined(self, other: Changes) -> Changes:
        """Return both changes combined. Tasks are not named if there are too many, or if anything else has changed."""
        queued = self.queued | other.queued
        return ANY_CHANGES if self.more or other.more or len(queued) > MOST_QUEUED else Changes(queued)


NO_CHANGES = Changes()
ANY_CHANGES = Changes(more=True)


class Commit(msgspec.Struct):
    """What a commit did, for the parts of a scheduler that follow commits: new tasks, and the effects of storing,
    stopping and ending tasks."""

    fresh: list[tuple[int, NewTask]] = msgspec.field(default_factory=list[tuple[int, NewTask]])
    """New tasks, with their ids."""
    blocked: list[int] = msgspec.field(default_factory=list[int])
    """New tasks that wait for tasks they depend on."""
    ended: list[Ended] = msgspec.field(default_factory=list[Ended])
    released: list[Waiting] = msgspec.field(default_factory=list[Waiting])
    """Tasks that entered the queue."""
    returned: list[int] = msgspec.field(default_factory=list[int])
    """Claimed tasks that wait for another attempt."""
    due: list[DueTask] = msgspec.field(default_factory=list[DueTask])
    """Tasks that were unblocked and come due later."""
    expiries: list[int] = msgspec.field(default_factory=list[int])
    """The deadlines of tasks that were unblocked or entered the queue."""
    unblocked: list[Described] = msgspec.field(default_factory=list[Described])
    """Tasks whose last dependency was met, even if something else holds them back."""
    stopping: list[tuple[int, str]] = msgspec.field(default_factory=list[tuple[int, str]])
    """Running tasks that were asked to stop, and why."""
    hooks: list[int] = msgspec.field(default_factory=list[int])
    """Tasks that were asked to stop and whose hook may run now."""
    successors: dict[int, int] = msgspec.field(default_factory=dict[int, int])
    """Tasks that were replaced, and by which."""
    occurrences: list[Described] = msgspec.field(default_factory=list[Described])
    """The next occurrences of recurring tasks."""
    skipped: list[Skipped] = msgspec.field(default_factory=list[Skipped])
    beats: list[int] = msgspec.field(default_factory=list[int])
    """The due times of occurrences of series. Each is skipped if the last one is still active."""
    resumed: list[Described] = msgspec.field(default_factory=list[Described])
    """Released tasks that had been preempted."""
    pauses_ended: list[Scope] = msgspec.field(default_factory=list[Scope])
    """Timed pauses that this commit has ended."""
    crons: list[CronState] = msgspec.field(default_factory=list[CronState])
    """Cron tasks whose state has changed."""
    reordered: bool = False
    """True if waiting tasks changed their lanes."""

    @property
    def is_announced(self) -> bool:
        """True if there is more to announce than new tasks."""
        return bool(
            self.ended or self.unblocked or self.occurrences or self.resumed or self.skipped or self.pauses_ended
        )

    @property
    def moves_tasks(self) -> bool:
        """True if it changed the places of tasks other than the new ones, or asked some to stop.

        Ended tasks do not count: a place of an ended task is harmless.
        """
        return bool(self.released or self.returned) or self._changes_more

    @property
    def changes(self) -> Changes:
        """The changes that dispatchers in other processes need to know."""
        if len(self.fresh) > MOST_QUEUED:
            return ANY_CHANGES
        queued = {id for id, _ in self.fresh}
        queued.update(task.id for task in self.released)
        queued.update(self.returned)
        # A survey must remove the place of a replaced task: it would let the next task of its lane start too early.
        return Changes(frozenset(queued), self._changes_more or bool(self.successors))

    @property
    def _changes_more(self) -> bool:
        """True if it changed more than the places of tasks whose ids it names."""
        return bool(
            self.reordered
            or self.due
            or self.stopping
            or self.hooks
            or self.occurrences
            or self.beats
            or self.resumed
            or self.pauses_ended
            or self.crons
        )

    def put_first(self, earlier: Commit) -> None:
        """Prepend what the same transaction did earlier."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(earlier, name)
            match mine:
                case list():
                    mine[:0] = theirs
                case dict():
                    setattr(self, name, {**theirs, **mine})
                case _:
                    setattr(self, name, mine or theirs)


NO_COMMIT = Commit()
ANY_COMMIT = Commit(reordered=True)
"""Stands for a commit that may have changed anything."""


UNREADABLE_ROW = "the stored row is unreadable"


class Damage(NamedTuple):
    """A stored value that is damaged."""

    table: str
    id: Any
    """The id or the name that identifies the row."""
    column: str
    value: str
    """The damaged value, as text for messages."""

    def __str__(self) -> str:
        return f"row {self.id} of {self.table} is damaged: column {self.column} holds {self.value}"


class SetAside(msgspec.Struct):
    """The result of setting damaged rows aside."""

    damaged: list[Damage] = msgspec.field(default_factory=list[Damage])
    commit: Commit = msgspec.field(default_factory=Commit)


class Recovery(msgspec.Struct):
    """What recovery did with the tasks of a dispatcher that died."""

    returned: int = 0
    commit: Commit = msgspec.field(default_factory=Commit)


class CancelResult(msgspec.Struct):
    """The result of a request to cancel."""

    ids: list[int] = msgspec.field(default_factory=list[int])
    """The tasks that end, at once or soon."""
    commit: Commit = msgspec.field(default_factory=Commit)


class SeriesChange(msgspec.Struct):
    """The result of a request about a recurring series. ``series_id`` is ``None`` if there is no such series."""

    series_id: int | None = None
    occurrence: Described | None = None
    """The active occurrence it acted on."""
    commit: Commit = msgspec.field(default_factory=Commit)
