"""Priority: how urgent a task is, from 0 (most) to 255 (least)."""

from __future__ import annotations

from enum import IntEnum

from taskmill.errors import ConfigError


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
