"""Learn the IO budget of a task type from what its runs moved, for ``io="learn"``.

Laws: there is no budget before the first run has ended; over the first 50 runs it is their mean; each later run counts
for a fiftieth, so the budget follows a type whose work changes; it always lies between the least and the most seen.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from taskmill.model.io_budget import LEARN, MOST_BYTES, IoBudget, readable_budget
from taskmill.model.machine import MovedIo

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
