"""IO budgets: the bytes that a task reads, writes, receives and sends, expected or measured.

:mod:`taskmill.policy.io_room` applies them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.arguments import SettingsMeta
from taskmill.model.durations import Size, size

Axis = Literal["disk_read", "disk_write", "net_rx", "net_tx"]
AXES: tuple[Axis, ...] = get_args(Axis)

LEARN = "learn"
"""Stands for a budget that is learned from past runs of the task type."""

MOST_BYTES = 2**53 - 1
"""Eight pebibytes: more is a mistake in units, and this is the largest integer that every JSON reader keeps exact."""


class IoBudget(msgspec.Struct, frozen=True, omit_defaults=True, metaclass=SettingsMeta):
    """The bytes that a task reads from and writes to disk, receives from and sends to the network.

    A sum of budgets is at most 8 PiB on each axis; a difference is never below zero.
    """

    disk_read: int = 0
    disk_write: int = 0
    net_rx: int = 0
    net_tx: int = 0

    if TYPE_CHECKING:

        def __init__(self, disk_read: Size = 0, disk_write: Size = 0, net_rx: Size = 0, net_tx: Size = 0) -> None: ...

    def __post_init__(self) -> None:
        for axis in AXES:
            if type(amount := getattr(self, axis)) is not int:
                msgspec.structs.force_setattr(self, axis, amount := size(amount, axis))
            if not 0 <= amount <= MOST_BYTES:
                raise ConfigError(f"{axis} must be from 0 to {MOST_BYTES:,} bytes, got {str(amount)[:40]}")

    def __add__(self, other: IoBudget) -> IoBudget:
        if not isinstance(other, IoBudget):
            return NotImplemented
        return IoBudget(*(min(a + b, MOST_BYTES) for a, b in zip(self.amounts, other.amounts, strict=True)))

    def __sub__(self, other: IoBudget) -> IoBudget:
        if not isinstance(other, IoBudget):
            return NotImplemented
        return IoBudget(*(max(a - b, 0) for a, b in zip(self.amounts, other.amounts, strict=True)))

    @property
    def amounts(self) -> tuple[int, int, int, int]:
        """The bytes in the order of :data:`AXES`."""
        return self.disk_read, self.disk_write, self.net_rx, self.net_tx

    def axes(self) -> dict[Axis, int]:
        """Return the axes with a non-zero amount."""
        return {axis: amount for axis, amount in zip(AXES, self.amounts, strict=True) if amount}


NO_IO = IoBudget()


@lru_cache(maxsize=8192)
def stored_budget(stored: str | None) -> IoBudget | None:
    """Decode a stored budget; return ``None`` if there is none or it is ``learn``."""
    return None if stored is None or stored == LEARN else msgspec.json.decode(stored, type=IoBudget)


def readable_budget(stored: str) -> IoBudget | None:
    """Decode a stored budget; return ``None`` if it is damaged, so that it holds no task back.

    Reading the task itself reports the damage.
    """
    try:
        return stored_budget(stored)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def budget_to_store(budget: IoBudget | str | None) -> str | None:
    """Return the text that :func:`stored_budget` reads; an empty budget becomes ``None``."""
    if isinstance(budget, IoBudget):
        return msgspec.json.encode(budget).decode() if budget != NO_IO else None
    return budget
