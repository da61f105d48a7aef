"""How tasks are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskmill.model.controls import Declared
from taskmill.model.machine import ThrottlePolicy
from taskmill.model.settings import Retention

if TYPE_CHECKING:
    from taskmill.observe.counters import Counters
    from taskmill.runtime.cron_tasks import CronTask


@dataclass(slots=True)
class RunSettings:
    """``declared`` may change at any time; durations are seconds."""

    expiry_sweep_interval: float
    cancel_timeout: float
    shutdown_grace: float
    retention: Retention | None
    declared: Declared
    """What the program says about groups, rates and aging."""
    throttle: ThrottlePolicy = ThrottlePolicy()  # noqa: RUF009 - a frozen value
    """Which tasks wait under which pressure."""
    cron: Sequence[CronTask] = ()
    """What runs by the clock: all of it, in the order of declaration."""
    counters: Counters | None = None
    """Counts what happens, once somebody asks for it."""

    @property
    def max_concurrency(self) -> int:
        return self.declared.max_concurrency
