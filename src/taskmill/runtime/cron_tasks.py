"""Turn declared cron tasks into task types and submissions.

A declared ``Task`` keeps its own type and options. A plain callable becomes a task type in the domain ``cron``, and its
result is dropped.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

from taskmill.core.cron_port import CronDeclaration
from taskmill.define.domain import Domain
from taskmill.define.registry import Registry, overrides_of
from taskmill.define.task import Task, TaskType, handler_refusal
from taskmill.errors import ConfigError
from taskmill.model.options import merged
from taskmill.model.settings import Retry
from taskmill.model.submission import Submission
from taskmill.model.task import NewTask, full_name
from taskmill.policy.cron.registrations import Registration, checked_registrations

DOMAIN = "cron"
TAG = "cron"
_UNLIMITED = 2**31 - 1
"""A firing is retried until it succeeds or its next occurrence is due."""


class CronTask(NamedTuple):
    """A declared cron task, with the submission that each firing makes."""

    registration: Registration
    submission: Submission

    @property
    def name(self) -> str:
        return self.registration.name

    def declaration(self) -> CronDeclaration:
        submission = self.submission
        overrides = overrides_of(submission.options)
        return CronDeclaration(self.registration, submission.type, submission.encoded or "{}", overrides)

    def firing(self, registry: Registry, now: int) -> NewTask:
        """Return the task that a firing at ``now`` stores."""
        return registry.resolve(self.submission, now)


def declared_cron(given: object, domains: Iterable[Domain]) -> tuple[Sequence[CronTask], Iterable[Domain]]:
    """Check the declared list; return its tasks, and the domains together with those that the tasks need."""
    registrations = checked_registrations(given, handler_refusal)
    if not registrations or not isinstance(domains, Iterable):
        return (), domains
    known = list(domains)
    own = Domain(DOMAIN)
    tasks: list[CronTask] = []
    for one in registrations:
        handler = cast("object", one.handler)
        if isinstance(handler, Task):
            task = cast("Task[..., Any]", handler)
            if task.domain not in known:
                known.append(task.domain)
            tasks.append(CronTask(one, _submission(task.prepare(), one)))
        else:
            task_type = _type_of(one.name, one.handler)
            own.types[task_type.name] = task_type
            tasks.append(CronTask(one, _submission(Submission.prepared(task_type.name, {}, {}, "{}"), one)))
    if own.types:
        if any(isinstance(domain, Domain) and domain.name == DOMAIN for domain in known):
            raise ConfigError(f"domains: the name {DOMAIN!r} is reserved for cron tasks that are plain callables")
        known.append(own)
    return tasks, known


def _submission(prepared: Submission, one: Registration) -> Submission:
    """Return a prepared submission with the tag and the retries of a firing."""
    options = merged(prepared.options, {"retry": _retry(one.retry_delay_ms), "tags": {TAG: one.name}})
    return Submission.prepared(prepared.type, prepared.payload, options, prepared.encoded)


@functools.cache
def _retry(delay_ms: int) -> Retry:
    return Retry(_UNLIMITED, initial_ms=delay_ms, maximum_ms=delay_ms)


def _type_of(name: str, handler: Callable[[], Any]) -> TaskType:
    """Return the task type of a plain callable: a copy of one pattern, because inspecting each signature is slow."""
    return _pattern().renamed(full_name(DOMAIN, name), _calling(handler))


@functools.cache
def _pattern() -> TaskType:
    def nothing() -> None: ...

    return TaskType(full_name(DOMAIN, "pattern"), nothing, {}, None)


def _calling(handler: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls the handler and drops its result; it is async if the handler is."""
    if _is_async(handler):

        async def call_on_loop() -> None:
            await handler()

        return call_on_loop

    def call_in_thread() -> None:
        answer = handler()
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise TypeError("the handler returned an awaitable, which is never awaited; write it as `async def`")

    return call_in_thread


def _is_async(handler: object) -> bool:
    while isinstance(handler, functools.partial):
        handler = handler.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - its method, not whether it has one
