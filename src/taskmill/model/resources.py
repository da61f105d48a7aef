"""The settings for samplers and pressure sources; :mod:`taskmill.resources` has the built-in ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol, cast, runtime_checkable

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.arguments import SettingsMeta
from taskmill.model.durations import Duration, milliseconds
from taskmill.model.io_budget import IoBudget
from taskmill.model.readings import HIGHEST_RATE, Reading

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
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"bandwidth_limit must be bytes per second or None, not {type(value).__name__}")
    if not 0 < value <= HIGHEST_RATE:
        raise ConfigError(f"bandwidth_limit must be more than 0 bytes per second, got {str(value)[:40]}")
    return float(value)


def _shown(value: object) -> str:
    return f"the class {value.__name__}, which is not an instance" if isinstance(value, type) else type(value).__name__
