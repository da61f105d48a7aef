"""Check the groups, caps, rates and aging that a program declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from taskmill.define.registry import Registry
from taskmill.errors import ConfigError
from taskmill.model.controls import Declared
from taskmill.model.options import text
from taskmill.model.settings import Aging, Group, priority_value

NOBODY_PREEMPTS = -1


def declared(
    registry: Registry,
    max_concurrency: int,
    groups: object,
    default_group: object,
    aging: object,
    preempt_at: object,
) -> Declared:
    if not isinstance(groups, Mapping):
        raise ConfigError(f"groups must map names to Group settings, got {groups!r}")
    given = cast("Mapping[object, object]", groups)
    for name, group in given.items():
        text(name, "a group's name", ConfigError)
        if not isinstance(group, Group):
            raise ConfigError(f"groups[{name!r}] must be a Group, not {type(group).__name__}")
    if not isinstance(default_group, Group):
        raise ConfigError(f"default_group must be a Group, not {type(default_group).__name__}")
    if aging is not None and not isinstance(aging, Aging):
        raise ConfigError(f"aging must be an Aging or None, not {type(aging).__name__}")
    return Declared(
        max_concurrency=max_concurrency,
        default_group=default_group,
        groups=cast("Mapping[str, Group]", dict(given)),
        domain_caps={
            domain.name: domain.max_concurrency for domain in registry.domains if domain.max_concurrency is not None
        },
        rates={each.handler.name: each.rate for each in registry if each.rate is not None},
        aging=aging,
        preempt_at=NOBODY_PREEMPTS if preempt_at is None else priority_value(preempt_at, "preempt_at"),
    )
