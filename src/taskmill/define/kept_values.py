"""Refuse arguments that JSON would change silently, such as a tuple that comes back as a list.

An annotation determines how a value is read back, so annotated parameters are safe. Without one, or with ``Any``, the
handler gets what JSON holds: lists, dicts with string keys, strings, numbers, booleans and None. A value for such a
parameter must be equal to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, get_args, get_origin

from taskmill.errors import SubmissionError

_JSON_TYPES = (str, int, float, bool, type(None))
_JSON_CONTAINERS = (list, dict, Mapping, MutableMapping)
_FEW = 4
"""Up to this many elements, a suggested annotation names the type of each."""


def is_loose(annotation: Any) -> bool:
    """True if a value with this annotation, or a part of it, is read back as plain JSON."""
    if annotation is Any or annotation is object or annotation in _JSON_CONTAINERS:
        return True
    parts = get_args(annotation)
    if get_origin(annotation) not in _JSON_CONTAINERS:
        return False
    return any(map(is_loose, parts)) and all(is_loose(part) or part in _JSON_TYPES for part in parts)


def check_kept(name: str, given: object, read: object, type_name: str) -> None:
    """Raise ``SubmissionError`` if an argument is not equal to the value that the handler would get."""
    if given == read:
        return
    before, after = (value.__class__ for value in _first_change(given, read))
    if before is dict and after is dict:
        change = "a dict whose keys are not strings would come back with strings as keys"
    else:
        change = f"a {before.__name__} would come back as a {after.__name__}"
    raise SubmissionError(
        f"{type_name}: argument {name!r}: {change}, because the parameter has no annotation that says otherwise; "
        f"annotate it, for example as {name}: {_annotation(given)}"
    )


def _first_change(given: Any, read: Any) -> tuple[Any, Any]:
    """Return the innermost pair of values that explains why two values are not equal."""
    pairs: Iterable[tuple[Any, Any]] = ()
    kinds: tuple[type[Any], type[Any]] = given.__class__, read.__class__
    if kinds == (list, list):
        pairs = zip(given, read, strict=False)
    elif kinds == (dict, dict):
        pairs = ((given[key], read[key]) for key in given if key in read)
    for one, other in pairs:
        if one != other:
            return _first_change(one, other)
    return given, read


def _annotation(value: Any) -> str:
    """Return an annotation that keeps this value."""
    kind: type[Any] = value.__class__
    if value is None:
        return "None"
    if kind is tuple:
        if len(value) <= _FEW:
            return f"tuple[{', '.join(map(_annotation, value)) or '()'}]"
        return f"tuple[{_union(value)}, ...]"
    if kind in (list, set, frozenset):
        return f"{kind.__name__}[{_union(value)}]"
    if kind is dict:
        return f"dict[{_union(value)}, {_union(value.values())}]"
    return "Path" if issubclass(kind, Path) else kind.__name__


def _union(values: Iterable[Any]) -> str:
    names = list(dict.fromkeys(map(_annotation, values)))
    return " | ".join(names) if 0 < len(names) <= _FEW else "Any"
