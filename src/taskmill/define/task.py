"""``Task``: a registered handler that can be called, submitted and given options."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Coroutine, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from taskmill.define.context import Context
from taskmill.define.signature import HandlerSignature
from taskmill.define.unawaited import Unawaited, marked_as_coroutine, on_event_loop
from taskmill.errors import ConfigError, SubmissionError
from taskmill.handle import Handle, handle_of
from taskmill.model.options import CALL_OPTIONS, CHECKS, CallOptions, checked_options, merged
from taskmill.model.submission import Submission

if TYPE_CHECKING:
    from taskmill.define.domain import Domain
    from taskmill.verbs.blocking import Handle as BlockingHandle

P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")
T = TypeVar("T")


class TaskType:
    """A registered handler with its options and hooks, shared by every :class:`Task` made from it with ``options``."""

    __slots__ = (
        "aliases",
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
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.aliases = aliases
        """Other stored names whose tasks this handler runs too."""
        self.function = function
        self.options = options
        self.signature = HandlerSignature(function, Context, name, local_names)
        self.computing = {
            option: self.signature.computing(value, option) for option, value in options.items() if callable(value)
        }
        if isinstance(paths := options.get("key"), tuple):
            self.computing["key"] = self.signature.key_of(cast("object", paths))
        self.main = Part(function, wants_context=self.signature.wants_context)
        self.on_cancel: Part | None = None
        self.finalize: Part | None = None

    def renamed(self, name: str, function: Callable[..., Any]) -> TaskType:
        """Return this type under another name, for a function of the same signature."""
        other = TaskType.__new__(TaskType)
        other.name, other.function, other.aliases = name, function, ()
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
        part = Part(function, wants_context=signature.wants_context or self._names_context(function))
        self._check_call(part, f"{self.name}.{name}")
        return part

    def _names_context(self, hook: Callable[..., Any]) -> bool:
        """True if the first parameter of a hook has no annotation and the name of the handler's ``Context``."""
        context = next(iter(inspect.signature(self.function).parameters)) if self.signature.wants_context else None
        first = next(iter(inspect.signature(hook).parameters.values()), None)
        return first is not None and first.name == context and first.annotation is first.empty

    def _check_call(self, hook: Part, name: str) -> None:
        """Raise ``ConfigError`` if a hook cannot be called with the arguments of the handler."""
        parameters = list(inspect.signature(self.function).parameters.values())[self.signature.wants_context :]
        if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
            return
        args = [Context] * hook.wants_context + [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
        kwargs = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
        try:
            inspect.signature(hook.function).bind(*args, **kwargs)
        except TypeError as wrong:
            raise ConfigError(f"{name} is called with the arguments of the handler: {wrong}") from None


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

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> Submission[R]:
        """Return a checked submission with these arguments, for ``submit_many`` or another scheduler."""
        arguments, encoded = self.type.signature.encode(args, kwargs)
        return Submission.prepared(self.type.name, arguments, self._overrides, encoded)

    @marked_as_coroutine
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[R]]:
        """Store one task and return when it is durable; a coroutine."""
        coroutine = self._submit(*args, **kwargs)
        return coroutine if on_event_loop() else Unawaited(coroutine, self.name)

    async def _submit(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return await self.domain.scheduler().submit(self.prepare(*args, **kwargs))

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle[R]:
        """Store one task and return when it is durable. Call it from any thread except that of the event loop."""
        return self.domain.scheduler()._submit_sync(self.prepare(*args, **kwargs), self.name)

    def handle(self, id: int) -> Handle[R]:
        """Return the handle of a task of this type that was submitted earlier, here or elsewhere."""
        return handle_of(self.domain.scheduler(), id, self.type.signature.decode_result)

    @overload
    def on_cancel(self, hook: Callable[Concatenate[Context, P], T], /) -> Callable[Concatenate[Context, P], T]: ...
    @overload
    def on_cancel(self, hook: Callable[P, T], /) -> Callable[P, T]: ...
    def on_cancel(self, hook: Callable[..., Any], /) -> Callable[..., Any]:
        """Decorate a hook that runs, with the handler's arguments, after a started task was cancelled."""
        self.type.on_cancel = self._hook(hook, "on_cancel", self.type.on_cancel, sys._getframe(1).f_code)
        self.domain.hook_defined()
        return hook

    @overload
    def finalize(self, hook: Callable[Concatenate[Context, P], T], /) -> Callable[Concatenate[Context, P], T]: ...
    @overload
    def finalize(self, hook: Callable[P, T], /) -> Callable[P, T]: ...
    def finalize(self, hook: Callable[..., Any], /) -> Callable[..., Any]:
        """Decorate a hook that runs, with the handler's arguments, once all children of a task have ended."""
        self.type.finalize = self._hook(hook, "finalize", self.type.finalize, sys._getframe(1).f_code)
        self.domain.hook_defined()
        return hook

    def _hook(self, hook: Callable[..., Any], name: str, before: Part | None, code: CodeType) -> Part:
        """Return the new hook, which may replace only an earlier version of itself."""
        if before is not None and not is_same_function(before.function, hook, code):
            raise ConfigError(f"{self.name} already has the {name} hook {before.function.__qualname__}; remove one")
        return self.type.hook(hook, name)


class DefinedTask(Task[P, R], Generic[P, R, Q, T]):
    """A task as it was defined: calling it has the type of the function itself, with the parameters ``Q``."""

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> T:
        return cast("T", self.type.function(*args, **kwargs))


def is_same_function(old: Callable[..., Any], new: Callable[..., Any], code: CodeType) -> bool:
    """True if ``new`` is a later version of ``old``: a notebook cell that ran again, a module that was reloaded.

    Both versions then have the same module and qualified name. Two functions with one name in the same code, however,
    are a mistake: ``code``, which contains the definition of ``new``, must not also contain that of ``old``.
    """
    if (old.__module__, old.__qualname__) != (new.__module__, new.__qualname__):
        return False
    before, now = getattr(inspect.unwrap(old), "__code__", None), getattr(inspect.unwrap(new), "__code__", None)
    return before is now or not any(before is each for each in code.co_consts)


def computed_options(type: TaskType, payload: str, given: Container[str]) -> dict[str, Any]:
    """Return the checked options that this type computes from a payload, except those ``given`` with the call."""
    values: dict[str, Any] = {}
    for option, compute in type.computing.items():
        if option in given and option != "tags":
            continue
        try:
            value = compute(payload)
        except Exception as wrong:
            from taskmill.model.exceptions import exception_text

            raise SubmissionError(f"{type.name}: computing {option} raised {exception_text(wrong)}") from wrong
        values[option] = CHECKS[option](value, option, SubmissionError)
    return values


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
