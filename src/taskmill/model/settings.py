"""The settings of tasks, groups and schedulers: priority, rate limits, groups, aging, retries and retention.

Each setting checks itself when it is created, and :mod:`taskmill.policy` applies it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, TypedDict, cast

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.arguments import SettingsMeta, check_arguments
from taskmill.model.durations import Duration, Span, milliseconds, optional_milliseconds
from taskmill.model.status import Ending, choice


class Priority(IntEnum):
    """Named levels of urgency. Lower is more urgent; any int from 0 to 255 is a priority."""

    CRITICAL = 0
    HIGH = 64
    NORMAL = 128
    LOW = 192
    IDLE = 255
    REALTIME = CRITICAL
    BACKGROUND = LOW


def priority_value(value: object, name: str = "priority", error: type[Exception] = ConfigError) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise error(f"{name} must be an int from 0 to 255, not {type(value).__name__}")
    if not 0 <= value <= 255:
        raise error(f"{name} must be from 0 (most urgent) to 255, got {value}")
    return int(value)


MOST_SLOTS = 1_000_000_000
"""The largest number of slots. A sum over many nodes still fits in 64 bits."""


def slot_count(value: object, name: str = "max_concurrency", error: type[Exception] = ConfigError) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SLOTS:
        raise error(f"{name} must be a whole number from 1 to {MOST_SLOTS:,}, got {repr(value)[:40]}")
    return value


MOST_PERMITS = 1_000_000
"""The largest number of permits. A full bucket still fits in 64 bits, whatever the interval."""


class RateLimit(msgspec.Struct, frozen=True, omit_defaults=True, metaclass=SettingsMeta):
    """At most ``permits`` starts per ``interval``, spread evenly, after a first burst of at most ``burst``.

    It is a token bucket that starts full. ``burst`` defaults to ``permits``; a burst of 1 spaces all starts evenly.
    """

    permits: int
    interval: Span
    burst: int | None = None

    if TYPE_CHECKING:

        def __init__(self, permits: int, interval: Duration, burst: int | None = None) -> None: ...

    def __post_init__(self) -> None:
        _check_permits(self.permits, "permits", "; for less than one per interval make the interval longer")
        if self.burst is not None:
            _check_permits(self.burst, "burst")
        ms = milliseconds(self.interval, "interval")
        if ms == 0:
            raise ConfigError("interval must be longer than zero")
        # Normalized, so that equal limits compare equal, however they were written, stored or read.
        msgspec.structs.force_setattr(self, "interval", timedelta(milliseconds=ms))
        msgspec.structs.force_setattr(self, "burst", self.capacity)

    @classmethod
    @check_arguments
    def per_second(cls, n: int, burst: int | None = None) -> RateLimit:
        """Return a limit of ``n`` starts per second."""
        _check_permits(n, "n", "; for less than one per second use per_minute or RateLimit(1, interval)")
        return cls(n, 1, burst)

    @classmethod
    @check_arguments
    def per_minute(cls, n: int, burst: int | None = None) -> RateLimit:
        """Return a limit of ``n`` starts per minute."""
        _check_permits(n, "n", "; for less than one per minute use RateLimit(1, interval)")
        return cls(n, 60, burst)

    @property
    def interval_ms(self) -> int:
        return milliseconds(self.interval, "interval")

    @property
    def capacity(self) -> int:
        """The number of permits in a full bucket: ``burst``."""
        return self.permits if self.burst is None else self.burst


def _check_permits(count: object, name: str, advice: str = "") -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(f"{name} must be an int, not {type(count).__name__}{advice}")
    if not 1 <= count <= MOST_PERMITS:
        raise ConfigError(f"{name} must be from 1 to {MOST_PERMITS:,}, got {str(count)[:40]}{advice}")


AllocationReason = Literal["weight_change", "rebalance", "group_drained"]
"""Why the share of a group has changed."""

LIGHTEST = 1e-6
HEAVIEST = 1e6


class Group(msgspec.Struct, frozen=True, omit_defaults=True, metaclass=SettingsMeta):
    """The limits of a group: ``min_slots`` first, then a share by ``weight``, at most ``cap``; ``rate`` limits starts.

    A cap of 0 is refused, because its tasks would wait forever without a visible reason. A paused group is visible and
    can resume at a set time. A minimum above the cap counts as the cap.
    """

    weight: float = 1
    cap: int | None = None
    min_slots: int = 0
    rate: RateLimit | None = None

    def __post_init__(self) -> None:
        if isinstance(self.weight, bool) or not isinstance(self.weight, int | float):
            raise ConfigError(f"weight must be a number, not {type(self.weight).__name__}")
        if not LIGHTEST <= self.weight <= HEAVIEST:
            raise ConfigError(f"weight must be from {LIGHTEST:f} to {HEAVIEST:,.0f}, got {str(self.weight)[:40]}")
        if self.cap is not None:
            _check_slots(self.cap, "cap")
            if self.cap == 0:
                raise ConfigError("cap must be at least 1 or None; to stop a group, pause it")
        _check_slots(self.min_slots, "min_slots")
        if self.cap is not None and self.min_slots > self.cap:
            msgspec.structs.force_setattr(self, "min_slots", self.cap)
        if self.rate is not None and not isinstance(self.rate, RateLimit):
            raise ConfigError(f"rate must be a RateLimit or None, not {type(self.rate).__name__}")

    @property
    def has_share(self) -> bool:
        """True if the group turns on sharing: it has a weight other than 1, or a minimum."""
        return self.weight != 1 or self.min_slots > 0


def _check_slots(count: object, name: str) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise ConfigError(f"{name} must be an int, not {type(count).__name__}")
    if count < 0:
        raise ConfigError(f"{name} must not be negative, got {str(count)[:40]}")


_MILLISECOND = timedelta(milliseconds=1)


class Aging(msgspec.Struct, frozen=True, metaclass=SettingsMeta):
    """Tasks become more urgent as they wait: after ``grace``, by ``step`` each ``interval``, up to ``ceiling``.

    A task at or past ``urgent`` may take the next free slot even if its group has used up its share. With ``None``, no
    task may.
    """

    grace: Span = 300
    interval: Span = 60
    step: int = 1
    ceiling: int = Priority.HIGH
    urgent: int | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            grace: Duration = 300,
            interval: Duration = 60,
            step: int = 1,
            ceiling: int = Priority.HIGH,
            urgent: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        grace, interval = milliseconds(self.grace, "grace"), milliseconds(self.interval, "interval")
        if interval == 0:
            raise ConfigError("interval must be longer than zero")
        if isinstance(self.step, bool) or not isinstance(self.step, int):
            raise ConfigError(f"step must be an int, not {type(self.step).__name__}")
        if not 1 <= self.step <= 255:
            raise ConfigError(f"step must be from 1 to 255 levels, got {str(self.step)[:40]}")
        ceiling = priority_value(self.ceiling, "ceiling")
        if self.urgent is not None and priority_value(self.urgent, "urgent") < ceiling:
            raise ConfigError(
                f"urgent {int(self.urgent)} is more urgent than ceiling {ceiling}, so no task would ever age to it: "
                f"set urgent to {ceiling} or a larger number, or ceiling to {int(self.urgent)} or a smaller one"
            )
        # Normalized, so that equal policies compare equal, however they were written, stored or read.
        msgspec.structs.force_setattr(self, "grace", timedelta(milliseconds=grace))
        msgspec.structs.force_setattr(self, "interval", timedelta(milliseconds=interval))

    @property
    def grace_ms(self) -> int:
        return cast("timedelta", self.grace) // _MILLISECOND

    @property
    def interval_ms(self) -> int:
        return cast("timedelta", self.interval) // _MILLISECOND


class Retry(msgspec.Struct, frozen=True, metaclass=SettingsMeta):
    """How often, and after which delays, a failed task is retried.

    Create one with :meth:`none`, :meth:`constant`, :meth:`linear` or :meth:`exponential`. ``retries`` counts the
    attempts after the first.
    """

    retries: int
    shape: Literal["constant", "linear", "exponential"] = "constant"
    initial_ms: int = 0
    increment_ms: int = 0
    maximum_ms: int = 0
    factor: float = 2.0
    jitter: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.retries, bool) or not isinstance(self.retries, int):
            raise ConfigError(f"n, the number of retries, must be an int, not {type(self.retries).__name__}")
        if self.retries < 0:
            raise ConfigError(f"n, the number of retries, must not be negative, got {self.retries}")
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise ConfigError(f"factor must be a number, not {type(self.factor).__name__}")
        if not 1 <= self.factor <= sys.float_info.max:
            raise ConfigError(f"factor must be a finite float of at least 1, got {repr(self.factor)[:40]}")
        if not isinstance(self.jitter, bool):
            raise ConfigError(f"jitter must be True or False, got {self.jitter!r}")

    @classmethod
    @check_arguments
    def none(cls) -> Retry:
        """Return a policy that never retries."""
        return cls(0)

    @classmethod
    @check_arguments
    def constant(cls, n: int, delay: Duration) -> Retry:
        """Return a policy of ``n`` retries, each after ``delay``."""
        ms = milliseconds(delay, "delay")
        return cls(n, "constant", initial_ms=ms, maximum_ms=ms)

    @classmethod
    @check_arguments
    def linear(cls, n: int, initial: Duration, increment: Duration, maximum: Duration) -> Retry:
        """Return a policy of ``n`` retries; the delay grows from ``initial`` by ``increment`` up to ``maximum``."""
        return cls(
            n,
            "linear",
            initial_ms=milliseconds(initial, "initial"),
            increment_ms=milliseconds(increment, "increment"),
            maximum_ms=milliseconds(maximum, "maximum"),
        )

    @classmethod
    @check_arguments
    def exponential(
        cls, n: int, initial: Duration, maximum: Duration, factor: float = 2, jitter: bool = False
    ) -> Retry:
        """Return a policy of ``n`` retries; the delay starts at ``initial`` and is multiplied by ``factor`` each time.

        It is at most ``maximum``. With ``jitter`` each delay is chosen uniformly between zero and that value.
        """
        return cls(
            n,
            "exponential",
            initial_ms=milliseconds(initial, "initial"),
            maximum_ms=milliseconds(maximum, "maximum"),
            factor=factor,
            jitter=jitter,
        )


DEFAULT_RETRY = Retry(3)


PRUNE_BITE = 500
"""The most tasks moved or removed in one transaction, so that other writers do not wait long."""


class PruneRule(msgspec.Struct, frozen=True):
    """Keep the newest ``max_count`` tasks with any of these endings, if they are not older than ``max_age_ms``."""

    endings: tuple[Ending, ...]
    max_count: int | None
    max_age_ms: int | None


class Retention(msgspec.Struct, frozen=True, metaclass=SettingsMeta):
    """Keep at most ``max_count`` ended tasks, none older than ``max_age``; ``None`` means no limit.

    ``per_status`` gives single endings their own limits, as a number or a ``Retention``:
    ``{"completed": 1_000, "dead_letter": Retention(max_count=None)}``.
    """

    max_count: int | None = 10_000
    max_age: Duration | None = None
    per_status: Mapping[str, Retention | int | None] = {}

    def __post_init__(self) -> None:
        _check_count(self.max_count, "max_count")
        if (ms := optional_milliseconds(self.max_age, "max_age")) is not None:
            # Normalized, so that equal settings compare equal, however they were written.
            msgspec.structs.force_setattr(self, "max_age", timedelta(milliseconds=ms))
        if not isinstance(self.per_status, Mapping):
            raise ConfigError("per_status must map endings to numbers or Retention values")
        for name, rule in self.per_status.items():
            choice(Ending, name, "per_status key")
            if not isinstance(rule, Retention):
                _check_count(rule, f"per_status[{name!r}]")

    def rules(self) -> list[PruneRule]:
        """Return one rule for each ending with its own limit, and one for all other endings together."""
        own = {Ending(name): rule for name, rule in self.per_status.items()}
        rules = [self._own_rule(ending, rule) for ending, rule in own.items()]
        others = tuple(ending for ending in Ending if ending not in own)
        return [*rules, PruneRule(others, self.max_count, optional_milliseconds(self.max_age, "max_age"))]

    def _own_rule(self, ending: Ending, rule: Retention | int | None) -> PruneRule:
        if isinstance(rule, Retention):
            return PruneRule((ending,), rule.max_count, optional_milliseconds(rule.max_age, "max_age"))
        return PruneRule((ending,), rule, optional_milliseconds(self.max_age, "max_age"))


if TYPE_CHECKING:

    class RetentionLimits(TypedDict, total=False):
        """The fields of a ``Retention``, for one pruning; a field that is not given does not limit it."""

        max_count: int | None
        max_age: Duration | None
        per_status: Mapping[str, Retention | int | None]


def chosen_retention(retention: Retention | None, limits: RetentionLimits) -> Retention | None:
    """Return the retention that a caller gave, as a value or by its fields."""
    if retention is not None and not isinstance(retention, Retention):
        raise ConfigError(f"retention must be a Retention or None, not {type(retention).__name__}")
    if retention is not None and limits:
        raise ConfigError(f"give a retention or {', '.join(limits)}, not both")
    if not limits:
        return retention
    limits.setdefault("max_count", None)
    return Retention(**limits)


def _check_count(count: object, name: str) -> None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise ConfigError(f"{name} must be a whole number of at least 0 or None, got {count!r}")
