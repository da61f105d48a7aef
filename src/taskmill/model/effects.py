"""What a commit did besides what was asked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from taskmill.model.controls import Scope
from taskmill.model.cron import CronState
from taskmill.model.stages import Described, NewTask, Waiting
from taskmill.model.verdict import End


class Ended(msgspec.Struct, frozen=True):
    """A task that ended without an attempt of its own that did so."""

    task: Described
    end: End
    duration_ms: int | None


class Skipped(msgspec.Struct, frozen=True):
    """Occurrences of a recurring task that passed while ``task`` was active, or before it was made."""

    task: Described
    count: int


class Effects(msgspec.Struct):
    """What a commit did besides what was asked: whatever follows from tasks that ended, were stopped or were stored."""

    ended: list[Ended] = msgspec.field(default_factory=list[Ended])
    released: list[Waiting] = msgspec.field(default_factory=list[Waiting])
    """Tasks that entered the queue."""
    due: list[int] = msgspec.field(default_factory=list[int])
    """When tasks that were unblocked come due."""
    expiries: list[int] = msgspec.field(default_factory=list[int])
    """The deadlines of tasks that were unblocked or entered the queue."""
    unblocked: list[Described] = msgspec.field(default_factory=list[Described])
    """Tasks whose last dependency was met, whatever else holds them back."""
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
    """When beats of series come, which are skipped if the last occurrence is active then."""
    resumed: list[Described] = msgspec.field(default_factory=list[Described])
    """Those of the released that had made way for more urgent tasks."""
    pauses_ended: list[Scope] = msgspec.field(default_factory=list[Scope])
    """Pauses whose time was over, though nobody had ended them."""
    crons: list[CronState] = msgspec.field(default_factory=list[CronState])
    """Cron tasks about which something has changed."""
    reordered: bool = False
    """Whether waiting tasks changed their lanes."""

    def put_first(self, earlier: Effects) -> None:
        """The same transaction has done that before."""
        for name in self.__struct_fields__:
            mine, theirs = getattr(self, name), getattr(earlier, name)
            match mine:
                case list():
                    mine[:0] = theirs
                case dict():
                    setattr(self, name, {**theirs, **mine})
                case _:
                    setattr(self, name, mine or theirs)


NO_EFFECTS = Effects()


class Arrived(msgspec.Struct):
    """What a commit of submissions brought: new rows, and what it did to those whose keys they took."""

    fresh: list[tuple[int, NewTask]] = msgspec.field(default_factory=list[tuple[int, NewTask]])
    blocked: Collection[int] = ()
    """Those of the new tasks that wait for others they depend on."""
    effects: Effects = msgspec.field(default_factory=Effects)


UNREADABLE_ROW = "the stored row is unreadable"


class Damage(NamedTuple):
    """A value that cannot be what was stored."""

    table: str
    id: Any
    """The number or the name of the row."""
    column: str
    value: str
    """What the column holds, for people."""

    def __str__(self) -> str:
        return f"row {self.id} of {self.table} is damaged: column {self.column} holds {self.value}"


class SetAside(msgspec.Struct):
    """What became of damaged rows."""

    damaged: list[Damage] = msgspec.field(default_factory=list[Damage])
    effects: Effects = msgspec.field(default_factory=Effects)


class Recovery(msgspec.Struct):
    """What recovery did with the tasks of a dispatcher that died."""

    returned: int = 0
    effects: Effects = msgspec.field(default_factory=Effects)


class CancelResult(msgspec.Struct):
    """What became of a request to cancel."""

    ids: list[int] = msgspec.field(default_factory=list[int])
    """The tasks that end, at once or soon."""
    effects: Effects = msgspec.field(default_factory=Effects)


class SeriesChange(msgspec.Struct):
    """What became of a request about a recurring series: ``None`` if there is no such series (any more)."""

    series_id: int | None = None
    occurrence: Described | None = None
    """The active occurrence it acted on."""
    effects: Effects = msgspec.field(default_factory=Effects)
