"""Simulations of one queue, to find out when one of its tasks starts under changed rules.

Together they do a bounded amount of work, so that an explanation comes at once, whatever the queue. The bound is on
what is simulated, not on the length of the queue: a task near the front of a long queue costs little
(docs/decisions/0039).
"""

from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any, NamedTuple

import msgspec

from taskmill.model.looking_ahead import Range
from taskmill.model.queue_state import QueuedTask, Turns, WholeQueue
from taskmill.policy.rules import Rules
from taskmill.simulation.beginning import Beginning
from taskmill.simulation.changes import changed_rules, checked_changes
from taskmill.simulation.engine import Simulation
from taskmill.simulation.forecasting import NEVER, instants
from taskmill.simulation.luck import History
from taskmill.simulation.runs import DEFAULT_HORIZON_MS, notes

MOST_WORK = 6_000
"""The most work of all simulations of one explanation, in turns and endings of about 50 µs each."""
MOST_IN_ONE = 1_000
"""The most work of the first simulation, until the task starts or expires; the others take about as much."""
FEWEST_SAMPLES, MOST_SAMPLES = 3, 20
TASKS_PER_WORK = 100
"""Setting up a simulation with this many active tasks takes as long as one turn."""
LONG_MS = 10**9
"""A charge so large that its group comes after all others."""
_SEED = 1


class WorkLimitReached(Exception):
    """The simulations of an explanation have done as much as they may."""


class ForecastStart(NamedTuple):
    """When the task starts under the present settings, as far as simulations agree."""

    start: Range[datetime] | None
    """None if the task does not start before the horizon."""
    expires: bool
    """True if it expires before it starts, in more than half of the simulations."""


class Trials:
    """Simulations that are asked about one task."""

    def __init__(self, queue: WholeQueue, rules: Rules, id: int, zone: tzinfo) -> None:
        self.rules = rules
        self._id = id
        self._zone = zone
        self.beginning = Beginning(queue, rules)
        self._history = History(queue.recent)
        self._samples = FEWEST_SAMPLES
        self._left = MOST_WORK

    @property
    def task(self) -> QueuedTask:
        return self.beginning.tasks[self._id]

    @property
    def durations_are_known(self) -> bool:
        """True if a run of every type in the queue is known; guessed durations would promise too much."""
        return not notes(self.beginning.queue, self._history)

    def expected_start(self) -> ForecastStart:
        """Return when the task starts under the present rules; raise ``WorkLimitReached`` if that is far away."""
        most = min(self._left, MOST_IN_ONE)
        first = self._run(self.beginning, 0, most)
        self._samples = min(max(MOST_IN_ONE // (2 * first.work), FEWEST_SAMPLES), MOST_SAMPLES)
        runs = [first, *(self._run(self.beginning, sample, 2 * most) for sample in range(1, self._samples))]
        expired = sum(self._id in run.expired for run in runs)
        return ForecastStart(instants([run.starts.get(self._id, NEVER) for run in runs]), expired > len(runs) / 2)

    def start_now(self, changes: Mapping[str, Any]) -> bool:
        """True if the task would start at once with the changes."""
        changed = self._under(changes)
        turns = self._first_turn(changed, None)
        if turns is None:
            return False
        # A dispatcher that has not heard of the change yet picks tasks that it must not start, which uses up the turns
        # of their groups. So the remedy must help even if the group of the task is the last to have a turn.
        return self._first_turn(changed, self._behind(turns, LONG_MS)) is not None

    def start_in_time(self, changes: Mapping[str, Any]) -> bool:
        """True if the task would start before its deadline with the changes, in every simulation."""
        changed = self._under(changes)
        if not all(self._id in self._run(changed, sample, self._left).starts for sample in range(self._samples)):
            return False
        # For the same reason as above, but with only one start that uses up a turn.
        usual = self._history.with_seed(_SEED).draw(self.task.type, self.task.group, self._id, 0).duration_ms
        turns = Simulation(changed, self._history.with_seed(_SEED)).picker.turns()
        return self._id in self._run(changed, 0, self._left, self._behind(turns, usual)).starts

    def _under(self, changes: Mapping[str, Any]) -> Beginning:
        checked = checked_changes(changes, self.rules)
        return self.beginning.under(changed_rules(self.rules, checked, self.beginning.now))

    def _run(self, beginning: Beginning, sample: int, most: int, turns: Turns | None = None) -> Simulation:
        """Simulate until the task starts or ends."""
        simulation = Simulation(beginning, self._history.with_seed(_SEED + sample), self._zone, turns)
        simulation.run(beginning.now + DEFAULT_HORIZON_MS, wanted=self._id, most_work=most)
        self._spend(simulation.work)
        if simulation.work >= most and self._id not in simulation.starts and self._id not in simulation.ends:
            raise WorkLimitReached
        return simulation

    def _first_turn(self, beginning: Beginning, turns: Turns | None) -> Turns | None:
        """Simulate one turn; return the turns of groups after it, or None if the task has not started in it."""
        simulation = Simulation(beginning, self._history.with_seed(_SEED), self._zone, turns)
        simulation.turn()
        self._spend(simulation.work)
        return simulation.picker.turns() if self._id in simulation.starts else None

    def _behind(self, turns: Turns, ms: int) -> Turns:
        """Return the turns as they are after the task's group has used its turn for a while."""
        queue = self.beginning.queue
        buckets = queue.controls.buckets if queue.turns is None else queue.turns.buckets
        turns.round_robin.had_turn(self.task.group)
        turns.virtual_time.charge(self.task.group, 1, 1, ms)
        return msgspec.structs.replace(turns, buckets=buckets)

    def _spend(self, work: int) -> None:
        self._left -= work + 1 + len(self.beginning.tasks) // TASKS_PER_WORK
        if self._left < 0:
            raise WorkLimitReached
