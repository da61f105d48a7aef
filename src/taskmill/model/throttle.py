"""The setting ``throttle``; :mod:`taskmill.policy.throttling` applies it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.arguments import SettingsMeta
from taskmill.model.priority import Priority, priority_value


class Limit(NamedTuple):
    """Tasks of ``priority``, and less urgent ones, wait while the pressure is above ``pressure``."""

    priority: int
    pressure: float


DEFAULT_LIMITS = (Limit(Priority.LOW, 0.50), Limit(Priority.NORMAL, 0.75))
DEFAULT_GAP = 0.10
"""The default distance of ``resume_below`` below ``preempt_above``."""


class ThrottlePolicy(msgspec.Struct, frozen=True, metaclass=SettingsMeta):
    """Which tasks wait under which pressure: ``[(priority, limit), ...]``.

    A task of such a priority, or a less urgent one, waits while the pressure is above the limit. With ``easing`` it
    waits until the pressure is that much below the limit, so that a pressure around the limit does not start and stop
    tasks all the time.

    Above ``preempt_above``, running tasks that could not start now are preempted. They return when the pressure has
    fallen to ``resume_below``, by default 0.1 lower.
    """

    limits: Iterable[tuple[int, float]] = DEFAULT_LIMITS
    preempt_above: float | None = None
    resume_below: float | None = None
    easing: float = 0.0

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "limits", _checked_limits(self.limits))
        _check_share(self.easing, "easing")
        if self.preempt_above is None:
            if self.resume_below is not None:
                raise ConfigError(
                    "resume_below is the pressure at which preempted tasks return; it needs preempt_above"
                )
            return
        above = _check_share(self.preempt_above, "preempt_above")
        if self.resume_below is None:
            msgspec.structs.force_setattr(self, "resume_below", max(0.0, above - DEFAULT_GAP))
        elif _check_share(self.resume_below, "resume_below") > above:
            raise ConfigError(
                f"resume_below must not be above preempt_above: tasks would return at {self.resume_below:g} "
                f"only to be preempted above {above:g}"
            )

    @property
    def by_urgency(self) -> tuple[Limit, ...]:
        """The limits, the least urgent priority first."""
        return cast("tuple[Limit, ...]", self.limits)


def _checked_limits(given: object) -> tuple[Limit, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigError(f"limits must be a list of (priority, limit) pairs, not {type(given).__name__}")
    limits = sorted((_checked_limit(pair) for pair in cast("Iterable[object]", given)), reverse=True)
    for lower, higher in pairwise(limits):
        if lower.priority == higher.priority:
            raise ConfigError(f"limits has priority {lower.priority} twice")
        if lower.pressure > higher.pressure:
            raise ConfigError(
                f"limits hold priority {higher.priority} and all less urgent tasks above {higher.pressure:g}, "
                f"so the limit {lower.pressure:g} for priority {lower.priority} would never matter"
            )
    return tuple(limits)


def _checked_limit(pair: object) -> Limit:
    parts = cast("Sequence[object]", pair) if isinstance(pair, tuple | list) else ()
    if len(parts) != 2:
        raise ConfigError(f"limits must be (priority, limit) pairs, got {pair!s:.40}")
    return Limit(priority_value(parts[0], "priority in limits"), _check_share(parts[1], "limit in limits"))


def _check_share(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} must be a number from 0 to 1, not {type(value).__name__}")
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} must be from 0 to 1, got {str(value)[:40]}")
    return float(value)
