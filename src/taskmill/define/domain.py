"""``Domain``: a named bundle of task types and their defaults."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import CodeType, MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from weakref import WeakSet

from taskmill.define import worker_process
from taskmill.define.context import Context
from taskmill.define.task import DefinedTask, Task, TaskType, is_same_function
from taskmill.define.unawaited import on_event_loop
from taskmill.errors import ConfigError, InvalidState
from taskmill.handle import HandlesTasks
from taskmill.model.arguments import check_arguments
from taskmill.model.options import DomainOptions, TypeOptions, checked_options, text
from taskmill.model.type_name import SEPARATOR, full_name, is_full_name

if TYPE_CHECKING:
    from taskmill.handle import Handle
    from taskmill.model.submission import Submission
    from taskmill.verbs.blocking import Handle as BlockingHandle

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Context | None")
"""The type of the first parameter of a handler that takes a Context."""


class SubmitsTasks(HandlesTasks, Protocol):
    """The part of an open scheduler that a domain uses."""

    async def submit(self, submission: Submission[R]) -> Handle[R]: ...
    def _submit_sync(self, submission: Submission[R], name: str) -> BlockingHandle[R]: ...


class DefinitionListener(Protocol):
    """A registry that follows the definitions of its domains."""

    def check_definition(self, type: TaskType) -> None: ...
    def define(self, domain: Domain, type: TaskType) -> None: ...
    def hook_defined(self) -> None: ...


current_scheduler: ContextVar[SubmitsTasks | None] = ContextVar("taskmill_current_scheduler", default=None)


class _Decorator(Protocol):
    """The decorator that ``@domain.task(...)`` returns; it keeps the handler's signature, without its Context."""

    @overload
    def __call__(
        self, handler: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], /
    ) -> DefinedTask[P, R, Concatenate[C, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, handler: Callable[P, Coroutine[Any, Any, R]], /
    ) -> DefinedTask[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, handler: Callable[Concatenate[C, P], R], /) -> DefinedTask[P, R, Concatenate[C, P], R]: ...
    @overload
    def __call__(self, handler: Callable[P, R], /) -> DefinedTask[P, R, P, R]: ...


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
        self.followers: WeakSet[DefinitionListener] = WeakSet()
        self._bound_in = 0
        """The process that opened these schedulers."""

    def __repr__(self) -> str:
        return f"<Domain {self.name}: {len(self.types)} task types>"

    @overload
    def task(
        self, handler: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], /
    ) -> DefinedTask[P, R, Concatenate[C, P], Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, handler: Callable[P, Coroutine[Any, Any, R]], /) -> DefinedTask[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, handler: Callable[Concatenate[C, P], R], /) -> DefinedTask[P, R, Concatenate[C, P], R]: ...
    @overload
    def task(self, handler: Callable[P, R], /) -> DefinedTask[P, R, P, R]: ...
    @overload
    def task(
        self, /, *, name: str | None = None, aliases: Sequence[str] = (), **options: Unpack[TypeOptions]
    ) -> _Decorator: ...

    def task(
        self,
        handler: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        aliases: Sequence[str] = (),
        **options: Unpack[TypeOptions],
    ) -> Any:
        """Register a handler: ``@domain.task`` or ``@domain.task(retry=…, key=…)``.

        The handler also runs stored tasks whose type is one of ``aliases``, full names such as ``"sync::old_name"``.
        """
        caller = sys._getframe(1)
        local_names, code = caller.f_locals, caller.f_code
        del caller  # a frame that refers to itself would be freed late
        checked = checked_options(options, TypeOptions.__annotations__, computable=True)

        def register(function: Callable[..., Any]) -> Task[Any, Any]:
            if isinstance(function, Task):
                raise ConfigError(f"{function.name} is already a task; decorate the plain function")
            if not inspect.isroutine(function):
                raise ConfigError(f"task must decorate a function, not {type(function).__name__}")
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise ConfigError(f"task must decorate a function that returns; {function.__name__} yields")
            short = function.__name__ if name is None else name
            check_name(short, "a task's name")
            full = full_name(self.name, short)
            task_type = TaskType(full, function, checked, local_names, checked_aliases(aliases, full))
            self._check_names(task_type, code)
            followers = list(self.followers)
            for follower in followers:
                follower.check_definition(task_type)
            self.types[full] = task_type
            for follower in followers:
                follower.define(self, task_type)
            return DefinedTask[Any, Any, Any, Any](self, task_type)

        return register if handler is None else register(handler)

    def hook_defined(self) -> None:
        """Note that a task type has a new hook."""
        for follower in list(self.followers):
            follower.hook_defined()

    def _check_names(self, new: TaskType, code: CodeType) -> None:
        """Refuse a name or an alias that another function of this domain has; ``code`` contains the definition."""
        for old in self.types.values():
            if old.name == new.name and is_same_function(old.function, new.function, code):
                continue
            if taken := {old.name, *old.aliases}.intersection((new.name, *new.aliases)):
                raise ConfigError(f"{min(taken)} is already registered; give one of the two another name=")

    def scheduler(self) -> SubmitsTasks:
        """Return the open scheduler of this domain; of several, the one of the current context."""
        match self._schedulers:
            case []:
                if worker_process.is_worker:
                    raise InvalidState(f"domain {self.name!r} has no scheduler here: {worker_process.NO_SCHEDULER}")
                inside = "`async with Scheduler(..., domains=[...])`"
                if not on_event_loop():
                    inside = f"`with taskmill.blocking.Scheduler(..., domains=[...])` or {inside}"
                raise ConfigError(f"domain {self.name!r} belongs to no open scheduler; submit inside {inside}")
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
        if self._bound_in != os.getpid():
            # A forked process cannot use the schedulers that its parent has opened.
            self._schedulers.clear()
            self._bound_in = os.getpid()
        self._schedulers.append(scheduler)

    def unbind(self, scheduler: SubmitsTasks) -> None:
        self._schedulers.remove(scheduler)


def checked_aliases(aliases: object, name: str) -> tuple[str, ...]:
    if isinstance(aliases, str) or not isinstance(aliases, Iterable):
        raise ConfigError(f"{name}: aliases must be a list of full names, such as ['sync::old_name'], got {aliases!r}")
    given = tuple(cast("Iterable[object]", aliases))
    checked: list[str] = []
    for alias in given:
        if not isinstance(alias, str) or not is_full_name(alias):
            raise ConfigError(f"{name}: aliases must be full names, such as 'sync::old_name', got {alias!r}")
        if alias == name or alias in checked:
            raise ConfigError(f"{name}: aliases: {alias!r} is named twice")
        checked.append(text(alias, "aliases", ConfigError))
    return tuple(checked)


def check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name or SEPARATOR in name:
        raise ConfigError(f"{what} must be a non-empty string without '::', got {name!r}")
    text(name, what, ConfigError)


def checked_state(state: object) -> tuple[Any, ...]:
    if isinstance(state, str | bytes) or not isinstance(state, Iterable):
        raise ConfigError(f"state must be a list of objects, got {state!r}")
    objects = tuple(cast("Iterable[Any]", state))  # type: ignore[redundant-cast] # pyright needs it
    by_type(objects)
    return objects


def by_type(objects: Iterable[Any], known: Mapping[type, Any] = MappingProxyType({})) -> dict[type, Any]:
    """Return ``known`` state with these objects added, by their types; refuse a second object of one type."""
    found = dict(known)
    for each in objects:
        if each is None or isinstance(each, type):
            given = "None" if each is None else f"the class {each.__name__}"
            raise ConfigError(f"state: give objects for ctx.state to return, such as Mailer(), not {given}")
        kind: type[Any] = each.__class__
        if kind in found:
            raise ConfigError(
                f"state: there is already an object of type {kind.__name__}, and ctx.state({kind.__name__}) can return "
                "only one; give each its own class, or give one to a domain"
            )
        found[kind] = each
    return found
