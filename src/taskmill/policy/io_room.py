"""Admit tasks whose IO budgets fit beside those of the running tasks, and learn budgets for ``io="learn"``.

On each axis the budgets of the running tasks and the candidate must fit into 80 % of what the machine can move there in
two seconds. The rest is left to other programs on the machine.

Tasks are checked in rank order. The first task that does not fit on an axis reserves its whole budget, as if it ran,
so no later task can take the room it waits for: that axis is closed to later tasks until it has started, and its room
on the other axes is kept. Tasks held behind it reserve nothing, because few of many waiting tasks could use the room.

Laws of admission: a task without a budget on an axis is never held by it; a task always may run, whatever its budget,
if no task with a budget on its axes runs or waits ahead of it; an unknown capacity holds no task back; every finite
queue drains with any number of slots.

Laws of learning: there is no budget before the first run has ended; over the first 50 runs it is their mean; each later
run counts for a fiftieth, so the budget follows a type whose work changes; it always lies between the least and the
most seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from taskmill.model.explanation import Hold
from taskmill.model.io_budget import AXES, LEARN, MOST_BYTES, Axis, IoBudget, readable_budget
from taskmill.model.machine import Capacity, MovedIo
from taskmill.policy.wording import bytes_text

SHARE = 0.8
WINDOW_SECONDS = 2.0

_WORDS: dict[Axis, str] = {
    "disk_read": "read {} from disk",
    "disk_write": "write {} to disk",
    "net_rx": "receive {}",
    "net_tx": "send {}",
}


class IoHold(NamedTuple):
    """The axis on which a task does not fit, in bytes."""

    axis: Axis
    running: int
    """The sum of the budgets of running tasks."""
    ahead: int
    """The room reserved for waiting tasks ahead of it."""
    wanted: int
    allowed: int

    def as_hold(self) -> Hold:
        """Return the hold that ``explain`` shows."""
        ahead = f", and tasks ahead of it reserve {bytes_text(self.ahead)}," if self.ahead else ""
        return Hold(
            "io",
            f"it will {_WORDS[self.axis].format(bytes_text(self.wanted))} ({self.axis}); running tasks already use "
            f"{bytes_text(self.running)}{ahead} of the {bytes_text(self.allowed)} allowed at once",
        )


class IoLoad:
    """The summed budgets of running tasks, updated as tasks start and end."""

    __slots__ = ("amounts", "counts")

    def __init__(self, running: Iterable[IoBudget | None] = ()) -> None:
        self.amounts = [0, 0, 0, 0]
        self.counts = [0, 0, 0, 0]
        """The number of tasks with a budget on each axis."""
        for budget in running:
            self.add(budget)

    def add(self, budget: IoBudget | None) -> None:
        self._change(budget, 1)

    def remove(self, budget: IoBudget | None) -> None:
        self._change(budget, -1)

    def without(self, budgets: Iterable[IoBudget | None]) -> IoLoad:
        """Return the load that remains if tasks with these budgets end."""
        other = IoLoad()
        other.amounts, other.counts = list(self.amounts), list(self.counts)
        for budget in budgets:
            other.remove(budget)
        return other

    def _change(self, budget: IoBudget | None, sign: int) -> None:
        if budget is None:
            return
        for index, amount in enumerate(budget.amounts):
            if amount:
                self.amounts[index] += sign * amount
                self.counts[index] += sign


class IoRoom:
    """Checks the candidates of one turn, in rank order."""

    __slots__ = ("_ahead", "_allowed", "_counts", "_running")

    def __init__(self, capacity: Capacity, load: IoLoad) -> None:
        self._allowed = [int(rate * WINDOW_SECONDS * SHARE) if rate > 0 else None for rate in capacity.rates]
        self._running = list(load.amounts)
        self._counts = list(load.counts)
        self._ahead = [0, 0, 0, 0]

    def admit(self, budget: IoBudget | None) -> IoHold | None:
        """Return ``None`` and count the task as running if it fits; otherwise return the hold and reserve its room."""
        if budget is None:
            return None
        held = self._hold(budget)
        if held is not None and held.ahead:
            # A task ahead already waits for this axis. Only the first such task reserves room.
            return held
        taken = self._running if held is None else self._ahead
        for index, amount in enumerate(budget.amounts):
            if amount:
                taken[index] += amount
                self._counts[index] += 1
        return held

    @property
    def keeps_room(self) -> bool:
        """True if a held task has reserved room."""
        return any(self._ahead)

    def is_behind(self, budget: IoBudget | None) -> bool:
        """True if the task is held behind one that already waits; it then stays held for the rest of this turn."""
        return budget is not None and (held := self._hold(budget)) is not None and held.ahead > 0

    def _hold(self, budget: IoBudget) -> IoHold | None:
        """Return the hold on the first axis on which another task already waits, else on the first that is full."""
        found: IoHold | None = None
        for index, amount in enumerate(budget.amounts):
            allowed = self._allowed[index]
            if not amount or allowed is None or not self._counts[index]:
                continue
            running, ahead = self._running[index], self._ahead[index]
            if running + ahead + amount > allowed and (found is None or ahead):
                found = IoHold(AXES[index], running, ahead, amount, allowed)
                if ahead:
                    break
        return found


RUNS = 50
"""The budget is the plain mean of this many runs; each later run counts for a fiftieth."""


class LearnedIo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Mean bytes per run of a task type."""

    runs: int = 0
    disk_read: float = 0.0
    disk_write: float = 0.0
    net_rx: float = 0.0
    net_tx: float = 0.0

    def budget(self) -> IoBudget | None:
        """Return the expected budget of the next run; ``None`` before the first run."""
        if not self.runs:
            return None
        return _whole((self.disk_read, self.disk_write, self.net_rx, self.net_tx))


def learned_from(moved: MovedIo) -> LearnedIo:
    """Return the starting point for learning, from the stored totals of all runs."""
    return LearnedIo(min(moved.runs, RUNS), *moved.means)


def expected_io(io: str, moved: MovedIo | None) -> IoBudget | None:
    """Return the budget of a task: the stored ``io`` or, if that is ``learn``, the one learned from past runs."""
    if io == LEARN:
        return None if moved is None else learned_from(moved).budget()
    return readable_budget(io)


def learned_io(before: LearnedIo | None, actual: IoBudget) -> LearnedIo:
    """Return the new mean after a run that moved ``actual``."""
    before = before or LearnedIo()
    runs = min(before.runs + 1, RUNS)
    means = (before.disk_read, before.disk_write, before.net_rx, before.net_tx)
    return LearnedIo(runs, *(mean + (seen - mean) / runs for mean, seen in zip(means, actual.amounts, strict=True)))


def mean_io(moved: MovedIo | None) -> IoBudget | None:
    """Return the mean of all runs; ``None`` if there were none."""
    return None if moved is None else _whole(moved.means)


def _whole(means: Iterable[float]) -> IoBudget:
    return IoBudget(*(min(max(round(mean), 0), MOST_BYTES) for mean in means))
