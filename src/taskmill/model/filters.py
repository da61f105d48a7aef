"""Filters that select tasks."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypedDict

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.durations import instant
from taskmill.model.options import text, valid_tags
from taskmill.model.status import Ending, EndingWord, Status, StatusWord


class FilterOptions(TypedDict, total=False):
    """The filters that ``tasks``, ``history``, ``count``, ``cancel_where`` and ``retry_where`` accept."""

    status: Status | Ending | StatusWord | EndingWord
    type: str
    domain: str
    group: str | None
    key: str
    tags: Mapping[str, str]
    tag_prefix: str
    parent: int
    exception: str
    location: str | None
    since: datetime
    until: datetime
    limit: int | None
    before: int
    after: int


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Checked filters. ``status`` is a status of active tasks or an ending of ended tasks.

    ``exception`` and ``location`` are those of the last error of a task, as in :class:`ErrorGroup`.
    ``since`` and ``until`` are instants in milliseconds: when an active task was submitted, or an ended one ended.
    ``until`` itself is excluded.
    """

    status: Status | Ending | None = None
    type: str | None = None
    domain: str | None = None
    group: str | None = None
    key: str | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    tag_prefix: str | None = None
    parent: int | None = None
    exception: str | None = None
    location: str | None = None
    """Empty if it is unknown."""
    since: int | None = None
    until: int | None = None
    limit: int | None = None
    before: int | None = None
    after: int | None = None

    @property
    def selects(self) -> bool:
        """True if there is a filter besides ``limit``, which only cuts the result."""
        return self != Filters(limit=self.limit)


def checked_filters(options: Mapping[str, Any]) -> Filters:
    values: dict[str, Any] = {}
    for name, given in options.items():
        if (check := _CHECKS.get(name)) is None:
            raise ConfigError(f"unknown filter {name!r}; known are {', '.join(sorted(_CHECKS))}")
        if given is not None:
            values[name] = check(given, name)
        elif name in ("group", "location"):
            values[name] = ""
    return Filters(**values)


def _text(value: object, name: str) -> str:
    return text(value, name, ConfigError)


def _instant(value: object, name: str) -> int:
    return instant(value, name, ConfigError)


def _whole_number(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ConfigError(f"{name} must be a whole number from 0 to 2**63 - 1, got {str(value)[:40]}")
    return value


def _tags(value: object, _name: str) -> dict[str, str]:
    return valid_tags(value)


def _status(value: object, _name: str) -> Status | Ending:
    if value in [*Status]:
        return Status(str(value))
    if value in [*Ending]:
        return Ending(str(value))
    words = ", ".join([*map(str, Status), *map(str, Ending)])
    raise ConfigError(f"status must be one of {words}; got {value!r}")


_CHECKS: Mapping[str, Callable[[Any, str], Any]] = {
    "status": _status,
    **dict.fromkeys(("type", "domain", "group", "key", "tag_prefix", "exception", "location"), _text),
    "tags": _tags,
    **dict.fromkeys(("since", "until"), _instant),
    **dict.fromkeys(("parent", "limit", "before", "after"), _whole_number),
}
