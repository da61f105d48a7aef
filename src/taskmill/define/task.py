"""``Task``: a registered handler that can be called, submitted and given options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack

from taskmill.define.context import Context
from taskmill.define.signature import HandlerSignature
from taskmill.errors import ConfigError, SubmissionError
from taskmill.model.attempt import exception_text
from taskmill.model.options import CHECKS, checked_options, merged
from taskmill.model.submission import CALL_OPTIONS, CallOptions, Submission

if TYPE_CHECKING:
    from taskmill.define.domain import Domain
    from taskmill.handle import Handle

P = ParamSpec("P")
R = TypeVar("R")
Hook = TypeVar("Hook", bound=Callable[..., Any])


class TaskType:
    """A registered handler with its options and hooks, shared by every :class:`Task` made from it with ``options``."""

    __slots__ = (
        "computing",
        "finalize",
        "function",
        "main",
        "name",
        "on_cancel",
        "options",
        "signature",
    )

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        local_names: Mapping[str, Any] | None,
    ) -> None:
        self.name = name
        self.function = function
        self.options = options
        self.signature = HandlerSignature(function, Context, name, local_names)
        self.computing = {
            option: self.signature.computing(value) for option, value in options.items() if callable(value)
        }
        self.main = Part(function, wants_context=self.signature.wants_context)
        self.on_cancel: Part | None = None
        self.finalize: Part | None = None

    def renamed(self, name: str, function: Callable[..., Any]) -> TaskType:
        """Return this type under another name, for a function of the same signature."""
        other = TaskType.__new__(TaskType)
        other.name, other.function = name, function
        other.options, other.signature, other.computing = self.options, self.signature, self.computing
        other.main = Part(function, wants_context=self.main.wants_context)
        other.on_cancel, other.finalize = self.on_cancel, self.finalize
        return other

    def part(self, name: PartName) -> Part:
        """Return the function to call for this part of a task's life."""
        if name == "finalize" and self.finalize is not None:
            return self.finalize
        return self.main

    def hook(self, function: Callable[..., Any], name: str) -> Part:
        """Return a hook, which is called with the arguments of the handler."""
        signature = HandlerSignature(function, Context, f"{self.name}.{name}")
        return Part(function, wants_context=signature.wants_context)


PartName = Literal["main", "finalize"]


class Part:
    """A function called with the arguments of a task: its handler or one of its hooks."""

    __slots__ = ("function", "is_async", "wants_context")

    def __init__(self, function: Callable[..., Any], *, wants_context: bool) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.wants_context = wants_context


class Task(Generic[P, R]):
    """A task type. Calling it calls the plain function; ``submit`` stores a durable task."""

    def __init__(self, domain: Domain, type: TaskType, overrides: Mapping[str, Any] | None = None) -> None:
        self.domain = domain
        self.type = type
        self._overrides: Mapping[str, Any] = overrides or {}
        self.__doc__ = type.function.__doc__
        self.__name__: str = type.function.__name__
        self.__wrapped__ = type.function

    @property
    def name(self) -> str:
        """The stored type name, ``"domain::task"``."""
        return self.type.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.type.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def options(self, **options: Unpack[CallOptions]) -> Task[P, R]:
        """Return this task with options that apply to everything submitted through it."""
        return Task(
            self.domain,
            self.type,
            merged(self._overrides, checked_options(options, CALL_OPTIONS, SubmissionError)),
        )

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> Submission:
        """Return a checked submission with these arguments, for ``submit_many`` or another scheduler."""
        arguments, encoded = self.type.signature.encode(args, kwargs)
        return Submission.prepared(self.type.name, arguments, self._overrides, encoded)

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store one task and return when it is durable."""
        return await self.domain.scheduler().submit(self.prepare(*args, **kwargs))

    def on_cancel(self, hook: Hook) -> Hook:
        """Decorate a hook that runs, with the handler's arguments, after a started task was cancelled."""
        if self.type.on_cancel is not None:
            raise ConfigError(f"{self.name} already has an on_cancel hook")
        self.type.on_cancel = self.type.hook(hook, "on_cancel")
        return hook

    def finalize(self, hook: Hook) -> Hook:
        """Decorate a hook that runs, with the handler's arguments, once all children of a task have ended."""
        if self.type.finalize is not None:
            raise ConfigError(f"{self.name} already has a finalize hook")
        self.type.finalize = self.type.hook(hook, "finalize")
        return hook


def computed_options(type: TaskType, payload: str) -> dict[str, Any]:
    """Return the checked options that this type computes from a payload."""
    values: dict[str, Any] = {}
    for option, compute in type.computing.items():
        try:
            value = compute(payload)
        except Exception as wrong:
            raise SubmissionError(f"{type.name}: computing {option} raised {exception_text(wrong)}") from wrong
        values[option] = CHECKS[option](value, option, SubmissionError)
    return values
