"""Turn unknown, missing or surplus arguments into a ``ConfigError``.

The check runs only after a call has failed, so that successful calls cost nothing extra. Type checkers see the original
signatures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from taskmill.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def check_arguments(call: Callable[P, R], name: str | None = None) -> Callable[P, R]:
    """Raise ``ConfigError`` if a function is called with arguments that it does not have.

    ``name`` is its name in the error, if not its own.
    """

    @functools.wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except TypeError:
            _complain(call, name or _name(call), args, kwargs)
            raise

    return checked


def check_settings(settings: type[T]) -> type[T]:
    """Raise ``ConfigError`` if a class is called with settings that it does not have."""
    settings.__init__ = check_arguments(settings.__init__)  # type: ignore[method-assign]
    return settings


def check_methods(checked: type[T], owner: str | None = None) -> type[T]:
    """Raise ``ConfigError`` if a class or a public method of it is called with arguments that it does not have.

    ``owner`` is the name of the public class that inherits the methods, if this one is internal.
    """
    for name, method in list(vars(checked).items()):
        if isinstance(method, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(checked, name, check_arguments(method, owner and f"{owner}.{name}"))
    return checked


if TYPE_CHECKING:
    SettingsMeta = msgspec.StructMeta
else:

    class SettingsMeta(msgspec.StructMeta):
        """Does the same for structs, which have no ``__init__`` to decorate."""

        def __call__(self, *args, **kwargs):
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                _complain(self, self.__name__, args, kwargs)
                raise


def _name(call: Callable[..., Any]) -> str:
    return call.__qualname__.removesuffix(".__init__")


def _complain(call: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ``ConfigError`` if the arguments do not fit the callable; otherwise it failed for another reason."""
    # Imported here, because only a failed call needs them.
    import inspect
    from difflib import get_close_matches

    signature = inspect.signature(call)
    known = [word for word in signature.parameters if word not in {"self", "cls"}]
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())
    for word in kwargs:
        if word not in known and not takes_any:
            close = get_close_matches(word, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
            raise ConfigError(f"{name} has no setting {word!r}; {hint}") from None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as wrong:
        raise ConfigError(f"{name}: {wrong}") from None
