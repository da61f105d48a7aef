"""What tasks of a type move, learned from what they did move: the budget of ``io="learn"``.

Laws: nothing is known before one of them has ended; over the first runs it is their mean; later ones count for a
little each, so that a type whose work has changed is known again soon; always between the least and the most seen.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from taskmill.model.io_budget import LEARN, MOST_BYTES, IoBudget, readable_budget
from taskmill.model.machine import MovedIo

RUNS = 50
"""How many runs have their say; each later one counts for a fiftieth."""


class LearnedIo(msgspec.Struct, frozen=True, omit_defaults=True):
    """Mean bytes per run of a task type."""

    runs: int = 0
    disk_read: float = 0.0
    disk_write: float = 0.0
    net_rx: float = 0.0
    net_tx: float = 0.0

    def budget(self) -> IoBudget | None:
        """What to expect of the next run; ``None`` if nothing is known."""
        if not self.runs:
            return None
        return _whole((self.disk_read, self.disk_write, self.net_rx, self.net_tx))


def learned_from(moved: MovedIo) -> LearnedIo:
    """What is known from all runs there ever were."""
    return LearnedIo(min(moved.runs, RUNS), *moved.means)


def expected_io(io: str, moved: MovedIo | None) -> IoBudget | None:
    """What a task with this stored budget is expected to move, given what runs of its type have moved."""
    if io == LEARN:
        return None if moved is None else learned_from(moved).budget()
    return readable_budget(io)


def learned_io(before: LearnedIo | None, actual: IoBudget) -> LearnedIo:
    """What is known once another run has moved ``actual``."""
    before = before or LearnedIo()
    runs = min(before.runs + 1, RUNS)
    means = (before.disk_read, before.disk_write, before.net_rx, before.net_tx)
    return LearnedIo(runs, *(mean + (seen - mean) / runs for mean, seen in zip(means, actual.amounts, strict=True)))


def mean_io(moved: MovedIo | None) -> IoBudget | None:
    """The mean of all runs; ``None`` if there were none."""
    return None if moved is None else _whole(moved.means)


def _whole(means: Iterable[float]) -> IoBudget:
    return IoBudget(*(min(max(round(mean), 0), MOST_BYTES) for mean in means))
