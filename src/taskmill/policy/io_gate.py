"""The IO gate: whether what a task will move fits beside what running tasks move.

On each axis the budgets of running tasks and of the candidate must fit into 80 % of what the machine can move there in
two seconds; the rest is for everyone else on the machine.

Whoever ranks before is served before. The gate is asked about tasks in the order in which they rank, and the first that
is held back on an axis is counted from then on as if it ran. So no later task takes what it waits for: the axis on
which it does not fit is closed to later tasks until it has started, and on others its room is kept. Those that are held
behind it keep nothing: of many that wait, few could use it.

Laws: a task with no budget on an axis is not held by it; one always may run, whatever its budget, where nobody with a
budget runs or waits before it; what is not known holds nobody back; every finite queue drains, in any number of slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from taskmill.model.explanation import Hold
from taskmill.model.io_budget import AXES, Axis, IoBudget
from taskmill.model.readings import Capacity
from taskmill.policy.wording import bytes_text

SHARE = 0.8
WINDOW_SECONDS = 2.0

_WORDS: dict[Axis, str] = {
    "disk_read": "read from disk",
    "disk_write": "written to disk",
    "net_rx": "received",
    "net_tx": "sent",
}


class IoHold(NamedTuple):
    """The axis on which a task does not fit, in bytes."""

    axis: Axis
    running: int
    """What running tasks have on it."""
    ahead: int
    """What is kept for tasks that wait for their turn before it."""
    wanted: int
    allowed: int

    def as_hold(self) -> Hold:
        """What ``explain`` says."""
        ahead = f", tasks that wait before it {bytes_text(self.ahead)}" if self.ahead else ""
        return Hold(
            "io",
            f"{bytes_text(self.wanted)} of it are {_WORDS[self.axis]} ({self.axis}): running tasks have "
            f"{bytes_text(self.running)}{ahead}, of {bytes_text(self.allowed)} allowed at once",
        )


class IoLoad:
    """What running tasks have in their budgets. Changed as they start and end, so that nobody has to add it up."""

    __slots__ = ("amounts", "counts")

    def __init__(self, running: Iterable[IoBudget | None] = ()) -> None:
        self.amounts = [0, 0, 0, 0]
        self.counts = [0, 0, 0, 0]
        """How many tasks have a budget on an axis."""
        for budget in running:
            self.add(budget)

    def add(self, budget: IoBudget | None) -> None:
        self._change(budget, 1)

    def remove(self, budget: IoBudget | None) -> None:
        self._change(budget, -1)

    def without(self, budgets: Iterable[IoBudget | None]) -> IoLoad:
        """What would be left if those with these budgets had ended."""
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


class IoGate:
    """Asked about the candidates of one turn, in the order in which they rank."""

    __slots__ = ("_ahead", "_allowed", "_counts", "_running")

    def __init__(self, capacity: Capacity, load: IoLoad) -> None:
        self._allowed = [int(rate * WINDOW_SECONDS * SHARE) if rate > 0 else None for rate in capacity.rates]
        self._running = list(load.amounts)
        self._counts = list(load.counts)
        self._ahead = [0, 0, 0, 0]

    def admit(self, budget: IoBudget | None) -> IoHold | None:
        """``None``: it may start, and is counted as running. Else what holds it, and it is counted as waiting."""
        if budget is None:
            return None
        held = self._hold(budget)
        if held is not None and held.ahead:
            # Somebody waits for this axis already. Only the first who does keeps room: of many, few could use it.
            return held
        taken = self._running if held is None else self._ahead
        for index, amount in enumerate(budget.amounts):
            if amount:
                taken[index] += amount
                self._counts[index] += 1
        return held

    @property
    def keeps_room(self) -> bool:
        """Whether anybody waits."""
        return any(self._ahead)

    def is_behind(self, budget: IoBudget | None) -> bool:
        """Whether a task would be held behind one that waits already. So it is from then on: nobody has to ask."""
        return budget is not None and (held := self._hold(budget)) is not None and held.ahead > 0

    def _hold(self, budget: IoBudget) -> IoHold | None:
        for index, amount in enumerate(budget.amounts):
            allowed = self._allowed[index]
            if not amount or allowed is None or not self._counts[index]:
                continue
            running, ahead = self._running[index], self._ahead[index]
            if running + ahead + amount > allowed:
                return IoHold(AXES[index], running, ahead, amount, allowed)
        return None
