"""The blocking versions of methods that look at a store of any size, and of those that look ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from taskmill.model.arguments import check_methods
from taskmill.model.browsing import Activity, MachineSnapshot, SuggestField, TaskDetails, TaskPage, TaskSort
from taskmill.model.durations import Duration
from taskmill.model.filters import FilterOptions
from taskmill.model.settings import Group
from taskmill.model.snapshot import Snapshot

if TYPE_CHECKING:
    from taskmill.model.looking_ahead import Comparison, Forecast
    from taskmill.scheduler import Scheduler

R = TypeVar("R")


@partial(check_methods, owner="Scheduler")
class BlockingBrowseMethods(ABC):
    """Methods that read a bounded amount and change nothing."""

    _scheduler: Scheduler

    @abstractmethod
    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the event loop of the scheduler."""

    def page(
        self, *, state: str | None = None, sort: TaskSort = "newest", **filters: Unpack[FilterOptions]
    ) -> TaskPage:
        """Return one page of tasks, active and ended, newest or oldest first."""
        return self.call(self._scheduler.page(state=state, sort=sort, **filters))

    def suggest(self, field: SuggestField, prefix: str = "", *, limit: int = 20) -> list[str]:
        """Return values of a filter that begin with ``prefix``, in order."""
        return self.call(self._scheduler.suggest(field, prefix, limit=limit))

    def activity(self, period: Duration = "1h", *, steps: int = 60) -> Activity:
        """Return how many tasks ended in the last ``period``, and how long they waited and ran, in equal steps."""
        return self.call(self._scheduler.activity(period, steps=steps))

    def details(self, id: int) -> TaskDetails:
        """Return everything that is stored about a task: its saved state, its relations, how its priority grows."""
        return self.call(self._scheduler.details(id))

    def preview(self, groups: Mapping[str, Group | Mapping[str, Any]]) -> Snapshot:
        """Return a snapshot with the shares that these settings of groups would give; nothing is changed."""
        return self.call(self._scheduler.preview(groups))

    def settings(self) -> Mapping[str, Any]:
        """Return the settings in effect: those of the dispatching program, with the changes made at run time."""
        return self.call(self._scheduler.settings())

    def machines(self) -> list[MachineSnapshot]:
        """Return the load and capacity of each dispatching node's machine, as far as it measures them."""
        return self.call(self._scheduler.machines())

    def forecast(self, horizon: Duration | None = None, samples: int = 200, seed: int | None = None) -> Forecast:
        """Return when the tasks of the queue will start and end."""
        return self.call(self._scheduler.forecast(horizon, samples, seed))

    def simulate(
        self,
        changes: Mapping[str, Any],
        *,
        horizon: Duration | None = None,
        replay: Duration | None = None,
        seed: int | None = None,
    ) -> Comparison:
        """Return how the queue would run under the present settings and under changed ones."""
        return self.call(self._scheduler.simulate(changes, horizon=horizon, replay=replay, seed=seed))
