"""How tasks are run."""

from __future__ import annotations

from dataclasses import dataclass

from taskmill.model.retention import Retention


@dataclass(slots=True)
class RunSettings:
    """``max_concurrency`` may change at any time; durations are seconds."""

    max_concurrency: int
    cancel_timeout: float
    shutdown_grace: float
    retention: Retention | None
