"""Filters that select tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.options import text, valid_tags
from taskmill.model.status import Ending, EndingWord, Status, StatusWord


class FilterOptions(TypedDict, total=False):
    """The filters that ``tasks``, ``history``, ``count`` and ``cancel_where`` accept."""

    status: Status | Ending | StatusWord | EndingWord
    type: str
    domain: str
    group: str | None
    key: str
    tags: Mapping[str, str]
    tag_prefix: str
    parent: int
    limit: int | None
    before: int
    after: int


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Checked filters. ``status`` is a status of active tasks or an ending of ended tasks."""

    status: Status | Ending | None = None
    type: str | None = None
    domain: str | None = None
    group: str | None = None
    key: str | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    tag_prefix: str | None = None
    parent: int | None = None
    limit: int | None = None
    before: int | None = None
    after: int | None = None

    @property
    def selects(self) -> bool:
        """True if there is a filter besides ``limit``, ``before`` and ``after``, which only cut the result."""
        return self != Filters(limit=self.limit, before=self.before, after=self.after)


def checked_filters(options: Mapping[str, Any]) -> Filters:
    values = dict(options)
    for name in values:
        if name not in FilterOptions.__annotations__:
            known = ", ".join(sorted(FilterOptions.__annotations__))
            raise ConfigError(f"unknown filter {name!r}; known are {known}")
    if values.get("status") is not None:
        values["status"] = _status(values["status"])
    for name in ("type", "domain", "key", "tag_prefix"):
        if values.get(name) is not None:
            values[name] = text(values[name], name, ConfigError)
    if "group" in values:
        values["group"] = "" if values["group"] is None else text(values["group"], "group", ConfigError)
    if values.get("tags") is not None:
        values["tags"] = valid_tags(values["tags"])
    else:
        values.pop("tags", None)
    for name in ("parent", "limit", "before", "after"):
        value = values.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63):
            raise ConfigError(f"{name} must be a whole number from 0 to 2**63 - 1, got {str(value)[:40]}")
    return Filters(**values)


def _status(value: object) -> Status | Ending:
    if value in [*Status]:
        return Status(str(value))
    if value in [*Ending]:
        return Ending(str(value))
    words = ", ".join([*map(str, Status), *map(str, Ending)])
    raise ConfigError(f"status must be one of {words}; got {value!r}")
