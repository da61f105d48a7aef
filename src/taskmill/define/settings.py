"""The settings of a scheduler as a type, for programs that pass them on: ``Scheduler("tasks.db", **settings)``.

``Scheduler.__init__`` is the source of truth; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from taskmill.core.ports import Clock
    from taskmill.define.domain import Domain
    from taskmill.define.middleware import Middleware
    from taskmill.model.cron import Cron, CronTuple
    from taskmill.model.durations import Duration
    from taskmill.model.machine import PressureSource, Resources, ThrottlePolicy
    from taskmill.model.settings import Aging, Group, Retention, Retry


class SchedulerSettings(TypedDict, total=False):
    """The keyword settings of ``Scheduler``, all optional."""

    domains: Iterable[Domain]
    cron: Sequence[Cron | CronTuple]
    max_concurrency: int
    retry: Retry | None
    default_ttl: Duration | None
    groups: Mapping[str, Group]
    default_group: Group
    aging: Aging | None
    preempt_at: int | None
    pressure: Iterable[PressureSource]
    throttle: ThrottlePolicy | None
    resources: Resources | bool | None
    bandwidth_limit: float | str | None
    retention: Retention | None
    state: Iterable[Any]
    middleware: Sequence[Middleware]
    tracing: bool
    expiry_sweep_interval: Duration
    cancel_timeout: Duration
    shutdown_grace: Duration
    durability: Literal["full", "process"]
    clock: Clock | None
