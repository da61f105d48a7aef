"""Check what a program declares: groups, caps, rates and aging, and the handlers of cron tasks."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, cast

from taskmill.define.registry import Registry
from taskmill.define.task import Task
from taskmill.errors import ConfigError, SubmissionError
from taskmill.model.controls import Declared
from taskmill.model.options import text
from taskmill.model.settings import Aging, Group, priority_value

NO_PREEMPTION = -1


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
        preempt_at=NO_PREEMPTION if preempt_at is None else priority_value(preempt_at, "preempt_at"),
    )


_NOT_BY_THE_CLOCK = frozenset({"run_after", "run_at", "every", "max_runs", "depends_on", "ref"})


def handler_refusal(handler: object) -> str | None:
    """Return why ``handler`` cannot be the handler of a cron task, or ``None``."""
    if isinstance(handler, Task):
        task = cast("Task[..., Any]", handler)
        try:
            options = task.prepare().options
        except SubmissionError as wrong:
            return f"handler must need no arguments: {wrong}"
        strange = sorted(_NOT_BY_THE_CLOCK.intersection(options))
        return f"handler must not have the option {strange[0]}: the expression says when it runs" if strange else None
    if not callable(handler):
        return f"handler must be a task or a callable without arguments, not {type(handler).__name__}"
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        return "handler must be a plain function or a coroutine function, not a generator"
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return None  # functions written in C may have no signature; the call will show
    try:
        signature.bind()
    except TypeError as wrong:
        return f"handler must need no arguments: {wrong}"
    return None
