"""``Domain``: a named bundle of task types and their defaults."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from taskmill.define.context import Context
from taskmill.define.task import Task, TaskType
from taskmill.errors import ConfigError
from taskmill.model.arguments import check_arguments
from taskmill.model.durations import Duration
from taskmill.model.io_budget import IoBudget
from taskmill.model.options import checked_options, text
from taskmill.model.settings import RateLimit, Retry
from taskmill.model.status import RunIn
from taskmill.model.task import SEPARATOR, full_name

if TYPE_CHECKING:
    from taskmill.handle import Handle
    from taskmill.model.submission import Submission

P = ParamSpec("P")
R = TypeVar("R")

TextOrFunction = str | Callable[..., str | None] | None


class DomainOptions(TypedDict, total=False):
    priority: int
    ttl: Duration | None
    ttl_from: str
    retry: Retry
    group: str | None
    tags: Mapping[str, str]
    timeout: Duration | None
    max_concurrency: int | None


class TypeOptions(TypedDict, total=False):
    priority: int | Callable[..., int]
    ttl: Duration | None
    ttl_from: str
    retry: Retry
    group: TextOrFunction
    key: bool | TextOrFunction
    label: TextOrFunction
    tags: Mapping[str, str] | Callable[..., Mapping[str, str]]
    io: IoBudget | Literal["learn"] | Callable[..., IoBudget | None] | None
    on_duplicate: str
    timeout: Duration | None
    run_in: RunIn | None
    fail_fast: bool
    max_children: int | None
    on_parent_expiry: str
    rate: RateLimit | None


class SubmitsTasks(Protocol):
    """The part of an open scheduler that a domain uses."""

    async def submit(self, submission: Submission) -> Handle[Any]: ...


current_scheduler: ContextVar[SubmitsTasks | None] = ContextVar("taskmill_current_scheduler", default=None)


class _Decorator(Protocol):
    """The decorator that ``@domain.task(...)`` returns; it keeps the handler's signature, without its Context."""

    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...


class Domain:
    """A named bundle of task types and defaults, such as ``Domain("sync", group="s3://prod")``.

    The :meth:`task` decorator registers task types.
    """

    @check_arguments
    def __init__(self, name: str, *, state: Iterable[Any] = (), **options: Unpack[DomainOptions]) -> None:
        check_name(name, "a domain's name")
        self.name = name
        self.options = checked_options(options, DomainOptions.__annotations__)
        self.max_concurrency: int | None = self.options.pop("max_concurrency", None)
        """The most tasks of this domain that may run at once; ``None`` for no limit."""
        self.state = checked_state(state)
        self.types: dict[str, TaskType] = {}
        self._schedulers: list[SubmitsTasks] = []

    def __repr__(self) -> str:
        return f"<Domain {self.name}: {len(self.types)} task types>"

    @overload
    def task(self, handler: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, **options: Unpack[TypeOptions]) -> _Decorator: ...

    def task(
        self,
        handler: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[TypeOptions],
    ) -> Any:
        """Register a handler: ``@domain.task`` or ``@domain.task(retry=…, key=…)``."""
        local_names = sys._getframe(1).f_locals
        checked = checked_options(options, TypeOptions.__annotations__, computable=True)

        def register(function: Callable[..., Any]) -> Task[Any, Any]:
            if isinstance(function, Task):
                raise ConfigError(f"{function.name} is already a task; decorate the plain function")
            if not inspect.isroutine(function):
                raise ConfigError(f"task must decorate a function, not {type(function).__name__}")
            short = function.__name__ if name is None else name
            check_name(short, "a task's name")
            task_type = TaskType(full_name(self.name, short), function, checked, local_names)
            if task_type.name in self.types:
                raise ConfigError(f"{task_type.name} is already registered; give one of the two another name=")
            self.types[task_type.name] = task_type
            return Task(self, task_type)

        return register if handler is None else register(handler)

    def scheduler(self) -> SubmitsTasks:
        """Return the open scheduler of this domain; of several, the one of the current context."""
        match self._schedulers:
            case []:
                raise ConfigError(
                    f"domain {self.name!r} belongs to no open scheduler; "
                    "submit inside `async with Scheduler(..., domains=[...])`"
                )
            case [only]:
                return only
            case several:
                current = current_scheduler.get()
                if current in several:
                    return current
                raise ConfigError(
                    f"domain {self.name!r} belongs to {len(several)} open schedulers; "
                    "choose one with scheduler.submit(task.prepare(...))"
                )

    def bind(self, scheduler: SubmitsTasks) -> None:
        self._schedulers.append(scheduler)

    def unbind(self, scheduler: SubmitsTasks) -> None:
        self._schedulers.remove(scheduler)


def check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name or SEPARATOR in name:
        raise ConfigError(f"{what} must be a non-empty string without '::', got {name!r}")
    text(name, what, ConfigError)


def checked_state(state: object) -> tuple[Any, ...]:
    if isinstance(state, str | bytes) or not isinstance(state, Iterable):
        raise ConfigError(f"state must be a list of objects, got {state!r}")
    return tuple(cast("Iterable[Any]", state))  # type: ignore[redundant-cast] # pyright needs it
