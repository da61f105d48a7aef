"""The setting ``retention``: how much history to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from taskmill.errors import ConfigError
from taskmill.model.arguments import check_settings
from taskmill.model.durations import Duration, optional_milliseconds
from taskmill.model.status import Ending, choice

PRUNE_BITE = 500
"""The most tasks moved or removed in one transaction, so that other writers do not wait long."""


class PruneRule(NamedTuple):
    """Keep the newest ``max_count`` tasks with any of these endings, if they are not older than ``max_age_ms``."""

    endings: tuple[Ending, ...]
    max_count: int | None
    max_age_ms: int | None


@check_settings
@dataclass(frozen=True, slots=True)
class Retention:
    """Keep at most ``max_count`` ended tasks, none older than ``max_age``; ``None`` means no limit.

    ``per_status`` gives single endings their own limits, as a number or a ``Retention``:
    ``{"completed": 1_000, "dead_letter": Retention(max_count=None)}``.
    """

    max_count: int | None = 10_000
    max_age: Duration | None = None
    per_status: Mapping[str, Retention | int | None] = field(default_factory=dict[str, "Retention | int | None"])

    def __post_init__(self) -> None:
        _check_count(self.max_count, "max_count")
        optional_milliseconds(self.max_age, "max_age")
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


def _check_count(count: object, name: str) -> None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
        raise ConfigError(f"{name} must be a whole number of at least 0 or None, got {count!r}")
