"""The machine: its load and capacity, how both are measured, and which load throttles tasks.

``Resources`` and ``ThrottlePolicy`` are settings. ``Machine`` is stored for restarts and for other processes.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import NamedTuple, Protocol, cast, runtime_checkable

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.arguments import SettingsMeta
from taskmill.model.durations import Duration, milliseconds, size
from taskmill.model.io_budget import AXES, Axis, IoBudget
from taskmill.model.settings import Priority, priority_value

HIGHEST_RATE = 2.0**50
"""A pebibyte per second. A higher value is a misread counter."""


class Reading(msgspec.Struct, frozen=True):
    """One measurement of a machine: ``cpu`` from 0 to 1, the rates in bytes per second.

    ``disk_busy`` is the share of time in which the disk was busy, if the system reports it. A rate may be a text such
    as ``"1MB"``; other texts are refused. Numbers are not checked here; :mod:`taskmill.policy.pressure` ignores
    impossible ones.
    """

    cpu: float = 0.0
    disk_read: float = 0.0
    disk_write: float = 0.0
    net_rx: float = 0.0
    net_tx: float = 0.0
    disk_busy: float | None = None

    def __post_init__(self) -> None:
        for axis in AXES:
            if isinstance(rate := getattr(self, axis), str):
                msgspec.structs.force_setattr(self, axis, size(rate, axis))

    @property
    def rates(self) -> tuple[float, float, float, float]:
        """The rates in the order of :data:`AXES`."""
        return self.disk_read, self.disk_write, self.net_rx, self.net_tx


class Capacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rates that a machine can sustain, in bytes per second; 0 means not known."""

    disk_read: float = 0.0
    disk_write: float = 0.0
    net_rx: float = 0.0
    net_tx: float = 0.0

    def __post_init__(self) -> None:
        for axis in AXES:
            rate = getattr(self, axis)
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= HIGHEST_RATE:
                raise ConfigError(f"{axis} must be bytes per second, 0 or more, got {str(rate)[:40]}")

    def on(self, axis: Axis) -> float:
        return float(getattr(self, axis))

    @property
    def rates(self) -> tuple[float, float, float, float]:
        """The rates in the order of :data:`AXES`."""
        return self.disk_read, self.disk_write, self.net_rx, self.net_tx


UNKNOWN_CAPACITY = Capacity()


_SHORTEST_MS, _LONGEST_MS = 10, 3_600_000


@runtime_checkable
class ResourceSampler(Protocol):
    """Measures the load of the machine. It is called in a thread and may be slow."""

    def sample(self) -> Reading:
        """Return the load since the previous call."""
        ...


@runtime_checkable
class PressureSource(Protocol):
    """Measures one kind of pressure on the machine. It is called in a thread and may be slow."""

    @property
    def name(self) -> str:
        """The name of the source in snapshots."""
        ...

    def pressure(self) -> float:
        """Return the pressure, from 0 (none) to 1 (exhausted)."""
        ...


class Resources(msgspec.Struct, frozen=True, metaclass=SettingsMeta):
    """How the machine is measured: by ``sampler`` (psutil if ``None``), each ``interval``.

    ``capacity`` is the capacity of the machine in bytes per second. An axis that is 0 is learned.
    """

    sampler: ResourceSampler | None = None
    interval: Duration = 1
    capacity: IoBudget | None = None

    def __post_init__(self) -> None:
        if self.sampler is not None and (
            isinstance(self.sampler, type) or not callable(getattr(self.sampler, "sample", None))
        ):
            raise ConfigError(
                f"sampler must have a method sample() that returns a Reading; {_shown(self.sampler)} does not"
            )
        ms = milliseconds(self.interval, "interval")
        if not _SHORTEST_MS <= ms <= _LONGEST_MS:
            raise ConfigError(f"interval must be from 10 ms to 1 hour, got {self.interval}")
        if self.capacity is not None and not isinstance(self.capacity, IoBudget):
            raise ConfigError(
                f"capacity must be an IoBudget in bytes per second, or None to learn it, not {_shown(self.capacity)}"
            )
        # Normalized, so that equal settings compare equal, however they were written.
        msgspec.structs.force_setattr(self, "interval", timedelta(milliseconds=ms))

    @property
    def interval_seconds(self) -> float:
        return cast("timedelta", self.interval).total_seconds()


def checked_resources(value: object) -> Resources | None:
    """Check the setting ``resources``: ``True`` is psutil each second, ``None`` and ``False`` measure nothing."""
    if value is None or value is False:
        return None
    if value is True:
        return Resources()
    if not isinstance(value, Resources):
        raise ConfigError(f"resources must be True, None or Resources(...), not {_shown(value)}")
    return value


def checked_sources(value: object) -> Sequence[PressureSource]:
    """Check the setting ``pressure``: a list of sources with unique names."""
    if isinstance(value, str | bytes | type) or not isinstance(value, Iterable):
        raise ConfigError(f"pressure must be a list of pressure sources, not {_shown(value)}")
    names: set[str] = set()
    sources = tuple(cast("Iterable[object]", value))
    for source in sources:
        name = getattr(source, "name", None)
        if isinstance(source, type) or not isinstance(name, str) or not callable(getattr(source, "pressure", None)):
            raise ConfigError(f"a pressure source has a name and a method pressure(); {_shown(source)} does not")
        if not name:
            raise ConfigError(f"a pressure source needs a name that is not empty: {_shown(source)}")
        if name in names:
            raise ConfigError(f"two pressure sources are called {name!r}; give each its own name")
        names.add(name)
    return cast("tuple[PressureSource, ...]", sources)


def checked_bandwidth(value: object) -> float | None:
    """Check the setting ``bandwidth_limit``: bytes per second, received and sent together."""
    if value is None:
        return None
    value = value if isinstance(value, float) else size(value, "bandwidth_limit")
    if not 0 < value <= HIGHEST_RATE:
        raise ConfigError(f"bandwidth_limit must be more than 0 bytes per second, got {str(value)[:40]}")
    return float(value)


def _shown(value: object) -> str:
    return f"the class {value.__name__}, which is not an instance" if isinstance(value, type) else type(value).__name__


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


class MovedIo(msgspec.Struct, frozen=True, array_like=True):
    """The bytes that all runs of a task type have moved together."""

    type: str
    runs: int
    disk_read: int
    disk_write: int
    net_rx: int
    net_tx: int

    @property
    def means(self) -> tuple[float, float, float, float]:
        """The mean bytes per run, by axis."""
        runs = self.runs
        return self.disk_read / runs, self.disk_write / runs, self.net_rx / runs, self.net_tx / runs


class Machine(msgspec.Struct, frozen=True, omit_defaults=True):
    """The capacity of a machine, and its pressure when the limits in force last changed."""

    known: Capacity = UNKNOWN_CAPACITY
    """The learned capacity."""
    capacity: Capacity = UNKNOWN_CAPACITY
    """The capacity that the IO limit uses."""
    limits: tuple[Limit, ...] = ()
    """The limits that hold tasks back."""
    easing: float = 0.0
    pressures: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    """The pressure by source, while tasks wait for it to fall."""
    returns_below: float | None = None
    """The pressure at which preempted tasks return; ``None`` if pressure preempts none."""


class NodeMachine(NamedTuple):
    """What one dispatching node has measured of its machine."""

    node: int | None
    machine: Machine
    is_here: bool = False
    """True if this scheduler is that node."""


UNSEEN = Machine()
