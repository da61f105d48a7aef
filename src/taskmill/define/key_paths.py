"""Keys made of paths into the parameters, such as ``key=("photo.path", "bucket")``.

A path names a parameter and then attributes, fields or mapping keys inside it. It is checked against the annotations,
if there are any, when the task is defined. A path that leads into ``None``, or to an entry that a mapping does not
have, has the value ``None``. If no path has another value, the task has no key, as if a function had returned ``None``:
otherwise all tasks without a value would be duplicates of one.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from taskmill.define.key_text import JsonEncoder, canonical_json
from taskmill.errors import ConfigError

Path = tuple[str, ...]


def checked_paths(given: object, hints: Mapping[str, Any], type_name: str) -> tuple[Path, ...]:
    """Return the paths of a key, split into parts; ``hints`` has the annotations of all values of the payload."""
    if not isinstance(given, tuple) or not given:
        raise ConfigError(f"{type_name}: key must name at least one parameter, got {given!r}")
    paths: list[Path] = []
    for path in cast("tuple[object, ...]", given):
        if not isinstance(path, str) or not all(parts := tuple(path.split("."))):
            raise ConfigError(f"{type_name}: key takes paths such as 'photo.path', got {path!r}")
        if parts[0] not in hints:
            known = ", ".join(hints) or "none"
            raise ConfigError(f"{type_name}: key names {parts[0]!r}, but the parameters are: {known}")
        kind = hints[parts[0]]
        for place, part in enumerate(parts[1:], start=1):
            kind = _inside(kind, part, f"{type_name}: key {path!r}: {'.'.join(parts[:place])}")
        paths.append(parts)
    return tuple(paths)


def key_from(paths: Sequence[Path], encode: JsonEncoder) -> Callable[[Any], str | None]:
    """Return a function that makes the key from a payload: a single text is the key, else a JSON list of values."""

    def key(values: Any) -> str | None:
        found = [_value(values, path) for path in paths]
        if len(found) == 1 and isinstance(found[0], str):
            return found[0]
        if all(value is None for value in found):
            return None
        return canonical_json(found, encode).decode()

    return key


def _value(values: Any, path: Path) -> Any:
    value: Any = values
    for part in path:
        if value is None:
            return None
        value = cast("Any", value).get(part) if isinstance(value, Mapping) else getattr(value, part)
    return value


def _inside(kind: Any, part: str, where: str) -> Any:
    """Return the annotation of a part of a value, ``Any`` if it is unknown; refuse a part that cannot exist."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _inside(get_args(kind)[0], part, where)
    if hasattr(kind, "__supertype__"):
        return _inside(kind.__supertype__, part, where)
    if origin in (Union, UnionType):
        found = [_inside(one, part, where) for one in get_args(kind) if one is not NoneType]
        return found[0] if len(found) == 1 else Any
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        return Any
    if not isinstance(origin or kind, type):
        raise ConfigError(f"{where} has no {part!r}: it is {kind!r}")
    concrete: type[Any] = origin or kind
    fields = _fields(kind, concrete)
    if fields is None and issubclass(concrete, Mapping):
        arguments = get_args(kind)
        if arguments and not _is_key(part, arguments[0]):
            raise ConfigError(f"{where} has no {part!r}: it is {kind!r}, and a path can only name a key that is a text")
        return arguments[1] if len(arguments) > 1 else Any
    if fields is not None and part in fields:
        return fields[part]
    if hasattr(concrete, part) and not issubclass(concrete, dict) and not callable(getattr(concrete, part)):
        return Any
    known = "" if fields is None else f"; it has {', '.join(fields)}"
    raise ConfigError(f"{where} has no {part!r}: it is a {concrete.__name__}{known}")


def _is_key(part: str, kind: Any) -> bool:
    """True if a part of a path can be a key of a mapping with keys of this kind."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _is_key(part, get_args(kind)[0])
    if hasattr(kind, "__supertype__"):
        return _is_key(part, kind.__supertype__)
    if origin in (Union, UnionType):
        return any(_is_key(part, one) for one in get_args(kind))
    if origin is Literal:
        return part in get_args(kind)
    return kind is Any or isinstance(kind, TypeVar) or (isinstance(kind, type) and issubclass(kind, str))


def _fields(kind: Any, concrete: Any) -> dict[str, Any] | None:
    """Return the annotations of the fields of a dataclass, struct, model, named tuple or typed dict; else None."""
    names: Sequence[str]
    if hasattr(concrete, "__struct_fields__"):
        names = concrete.__struct_fields__
    elif hasattr(concrete, "__dataclass_fields__"):
        names = [field.name for field in dataclasses.fields(concrete)]
    elif hasattr(concrete, "model_fields"):
        # Pydantic makes a class of each parametrised model, and has put in the type variables.
        return {name: field.annotation for name, field in concrete.model_fields.items()}
    elif hasattr(concrete, "_fields"):
        names = concrete._fields
    elif hasattr(concrete, "__total__"):
        names = list(concrete.__annotations__)
    else:
        return None
    try:
        hints = _hints(kind)
    except NameError:
        hints = {}
    return {name: hints.get(name, Any) for name in names}


def _hints(kind: Any) -> dict[str, Any]:
    """Return the annotations of a class and its bases, with the arguments of generics in place of type variables."""
    concrete: type[Any] = get_origin(kind) or kind
    found: dict[str, Any] = {}
    # As an attribute, the original bases would be inherited.
    for base in reversed(vars(concrete).get("__orig_bases__", concrete.__bases__)):
        if isinstance(get_origin(base) or base, type):
            found |= _hints(base)
    resolved = get_type_hints(concrete)
    found |= {name: resolved[name] for name in inspect.get_annotations(concrete)}
    arguments = dict(zip(getattr(concrete, "__parameters__", ()), get_args(kind), strict=False))
    return {name: _substituted(hint, arguments) for name, hint in found.items()}


def _substituted(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return arguments.get(hint, hint)
    variables = getattr(hint, "__parameters__", ())
    if not variables or get_origin(hint) is None:
        return hint
    return hint[tuple(arguments.get(variable, variable) for variable in variables)]
