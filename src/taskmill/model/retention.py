"""How much history is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from taskmill.errors import ConfigError
from taskmill.model.durations import Duration, optional_milliseconds
from taskmill.model.status import Ending, choice


@dataclass(frozen=True, slots=True)
class Retention:
    """At most ``max_count`` ended tasks of each ending, none older than ``max_age``; ``None`` is no limit.

    ``per_status`` overrides both for single endings: ``{"completed": Retention(max_count=1_000)}``.
    """

    max_count: int | None = 10_000
    max_age: Duration | None = None
    per_status: Mapping[str, Retention] = field(default_factory=dict[str, "Retention"])

    def __post_init__(self) -> None:
        count = self.max_count
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise ConfigError(f"max_count must be a whole number of at least 0 or None, got {count!r}")
        optional_milliseconds(self.max_age, "max_age")
        if not isinstance(self.per_status, Mapping):
            raise ConfigError("per_status must map endings to Retention values")
        for name, rule in self.per_status.items():
            choice(Ending, name, "per_status key")
            if not isinstance(rule, Retention):
                raise ConfigError(f"per_status[{name!r}] must be a Retention, not {type(rule).__name__}")

    def for_ending(self, ending: Ending) -> tuple[int | None, int | None]:
        """``(max_count, max_age_ms)`` for tasks that ended this way."""
        rule = self.per_status.get(ending, self)
        return rule.max_count, optional_milliseconds(rule.max_age, "max_age")
