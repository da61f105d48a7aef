"""Turn declared cron tasks into task types and submissions.

A declared ``Task`` keeps its own type and options. A plain callable becomes a task type in the domain ``cron``, and its
result is dropped.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from taskmill.core.cron_port import CronDeclaration, CronRow
from taskmill.define.domain import Domain
from taskmill.define.registry import PUBLISHED, Registry, overrides_of
from taskmill.define.signature import json_encode
from taskmill.define.task import Task, TaskType, handler_refusal
from taskmill.errors import ConfigError
from taskmill.model.options import decoded_options, merged
from taskmill.model.settings import Retry
from taskmill.model.submission import Submission
from taskmill.model.task import NewTask
from taskmill.model.type_name import full_name
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
        payload = submission.encoded or "{}"
        return CronDeclaration(self.registration, submission.type, payload, overrides, _stored(submission.options))

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
    options = _of_firing(prepared.options, one.name, one.retry_delay_ms)
    return Submission.prepared(prepared.type, prepared.payload, options, prepared.encoded)


def _of_firing(options: Mapping[str, Any], name: str, retry_delay_ms: int) -> dict[str, Any]:
    return merged(options, {"retry": _retry(retry_delay_ms), "tags": {TAG: name}})


def _stored(options: Mapping[str, Any]) -> str | None:
    """Return the options that another process needs to fire a cron task, or ``None`` if it has none of its own."""
    own = {name: options[name] for name in (*PUBLISHED, "timeout") if name in options}
    if own.get("tags", {}).keys() <= {TAG}:
        own.pop("tags", None)
    return json_encode(own).decode() if own else None


def submission_of(row: CronRow) -> Submission:
    """Return what a firing of a stored cron task submits, in a process that does not declare it."""
    state = row.state
    own = decoded_options(msgspec.json.decode(state.options or "{}"))
    return Submission.prepared(row.type, {}, _of_firing(own, state.name, state.retry_delay_ms), "{}")


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
