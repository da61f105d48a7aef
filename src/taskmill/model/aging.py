"""The setting ``aging``; :mod:`taskmill.policy.aging` applies it."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.arguments import SettingsMeta
from taskmill.model.durations import Duration, milliseconds
from taskmill.model.priority import Priority, priority_value

_MILLISECOND = timedelta(milliseconds=1)


class Aging(msgspec.Struct, frozen=True, metaclass=SettingsMeta):
    """Tasks become more urgent as they wait: after ``grace``, by ``step`` each ``interval``, up to ``ceiling``.

    A task at or past ``urgent`` may take the next free slot even if its group has used up its share. With ``None``, no
    task may.
    """

    grace: Duration = 300
    interval: Duration = 60
    step: int = 1
    ceiling: int = Priority.HIGH
    urgent: int | None = None

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
