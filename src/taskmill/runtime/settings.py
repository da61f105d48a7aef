"""The settings by which a scheduler runs tasks."""

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
    """Settings of a scheduler. Durations are in seconds. ``declared`` may change at any time."""

    expiry_sweep_interval: float
    cancel_timeout: float
    shutdown_grace: float
    retention: Retention | None
    declared: Declared
    """The settings of groups, rates and aging that the program declares."""
    throttle: ThrottlePolicy = ThrottlePolicy()  # noqa: RUF009 - a frozen value
    """Which tasks wait under which pressure."""
    cron: Sequence[CronTask] = ()
    """All cron tasks, in the order of declaration."""
    counters: Counters | None = None
    """The counters of the metrics; None until they are first requested."""
