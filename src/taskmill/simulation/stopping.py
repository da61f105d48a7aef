"""Stop a simulation in a thread: a thread cannot be cancelled from outside, so the simulation asks at every step."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

IS_STOPPED: ContextVar[Callable[[], bool]] = ContextVar("taskmill_simulation_is_stopped", default=lambda: False)
"""Returns True once the caller of the simulation has stopped waiting. A thread gets it with its caller's context."""


class SimulationStopped(Exception):
    """Ends a simulation whose caller no longer waits for it."""
