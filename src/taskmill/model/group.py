"""The settings of a group; :mod:`taskmill.policy.shares` shares the slots by them."""

from __future__ import annotations

from typing import Literal

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.arguments import SettingsMeta
from taskmill.model.rate_limit import RateLimit

AllocationReason = Literal["weight_change", "rebalance", "group_drained"]
"""Why the share of a group has changed."""

LIGHTEST = 1e-6
HEAVIEST = 1e6


class Group(msgspec.Struct, frozen=True, omit_defaults=True, metaclass=SettingsMeta):
    """The limits of a group: ``min_slots`` first, then a share by ``weight``, at most ``cap``; ``rate`` limits starts.

    A cap of 0 is refused, because its tasks would wait forever without a visible reason. A paused group is visible and
    can resume at a set time.
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
            raise ConfigError(f"min_slots must not be above cap: min_slots is {self.min_slots}, cap is {self.cap}")
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
