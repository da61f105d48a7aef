"""Keys made of paths into the parameters, such as ``key=("photo.path", "bucket")``.

A path names a parameter and then attributes, fields or mapping keys inside it. It is checked against the annotations,
if there are any, when the task is defined. A path that leads into ``None`` has the value ``None``. If no path has
another value, the task has no key, as if a function had returned ``None``: otherwise all tasks without a value would be
duplicates of one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

from taskmill.define.key_text import JsonEncoder, canonical_json
from taskmill.errors import ConfigError

Path = tuple[str, ...]


def checked_paths(given: object, hints: Mapping[str, Any], type_name: str) -> tuple[Path, ...]:
    """Return the paths of a key, split into parts; ``hints`` has the annotations of all parameters of the payload."""
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
        value = cast("Any", value)[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def _inside(kind: Any, part: str, where: str) -> Any:
    """Return the annotation of a part of a value, ``Any`` if it is unknown; refuse a part that cannot exist."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _inside(get_args(kind)[0], part, where)
    if origin in (Union, UnionType):
        found = [_inside(one, part, where) for one in get_args(kind) if one is not NoneType]
        return found[0] if len(found) == 1 else Any
    if kind is Any or kind is object:
        return Any
    if not isinstance(origin or kind, type):
        raise ConfigError(f"{where} has no {part!r}: it is {kind!r}")
    concrete: type[Any] = origin or kind
    fields = _fields(concrete)
    if fields is None and issubclass(concrete, Mapping):
        arguments = get_args(kind)
        return arguments[1] if len(arguments) > 1 else Any
    if fields is not None and part in fields:
        return fields[part]
    if hasattr(concrete, part) and not issubclass(concrete, dict) and not callable(getattr(concrete, part)):
        return Any
    known = "" if fields is None else f"; it has {', '.join(fields)}"
    raise ConfigError(f"{where} has no {part!r}: it is a {concrete.__name__}{known}")


def _fields(kind: Any) -> dict[str, Any] | None:
    """Return the annotations of the fields of a dataclass, struct, model, named tuple or typed dict; else None."""
    names: Sequence[str]
    if hasattr(kind, "__struct_fields__"):
        names = kind.__struct_fields__
    elif hasattr(kind, "__dataclass_fields__"):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "model_fields"):
        names = list(kind.model_fields)
    elif hasattr(kind, "_fields"):
        names = kind._fields
    elif hasattr(kind, "__total__"):
        names = list(kind.__annotations__)
    else:
        return None
    try:
        hints = get_type_hints(kind)
    except NameError:
        hints = {}
    return {name: hints.get(name, Any) for name in names}
