"""Refuse arguments that JSON would change silently, such as a tuple that comes back as a list.

An annotation determines how a value is read back, so a value with an annotation for each of its parts is safe. A part
without one, or with ``Any``, is loose: the handler gets what JSON holds, which is lists, dicts with string keys,
strings, numbers, booleans and None. Such a part must consist of exactly these types. A subclass is changed as well: an
``IntEnum`` comes back as an int, a ``Counter`` as a dict.

A pydantic model is read back as the class of the annotation, so an instance of a subclass is refused, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec import inspect as types

from taskmill.define.pydantic_models import is_model_type, unspecialized
from taskmill.errors import SubmissionError

NEVER_CHANGED = frozenset({str, int, float, bool, type(None)})
"""Types of values that JSON keeps whatever their annotation."""
_FEW = 4
"""Up to this many elements, a suggested annotation names the type of each."""

ReadBack = Callable[[object], object]
"""Returns what JSON makes of a value."""


class ValueDeclaration(msgspec.Struct, frozen=True):
    """The parameter or field whose annotation decides how a value is read back."""

    name: str
    value: Any
    described: str = "the parameter"

    def annotation(self) -> str:
        """Return an annotation that keeps the value; that of ``*args`` and ``**kwargs`` is about each of them."""
        if self.name.startswith("**"):
            return _union(self.value.values())
        return _union(self.value) if self.name.startswith("*") else _annotation(self.value)


class ChangedValue(msgspec.Struct, frozen=True):
    """A part of a value that JSON would change, and the place that allows it."""

    part: Any
    place: ValueDeclaration
    model: type[Any] | None = None
    """The model that would be read back instead of its subclass."""


def loose_type(annotation: Any) -> Any | None:
    """Return the type to check values against; None if the annotation leaves nothing loose."""
    try:
        found = types.type_info(annotation)
    except (TypeError, msgspec.MsgspecError):
        return None  # it is refused with a reason when its decoder is made
    seen: set[int] = set()

    def is_loose(part: Any) -> bool:
        if isinstance(part, list | tuple):
            return any(map(is_loose, cast("list[Any]", part)))
        if isinstance(part, types.AnyType) or _is_object_or_model(part):
            return True
        if not isinstance(part, types.Type | types.Field) or id(part) in seen:
            return False
        seen.add(id(part))
        return any(is_loose(getattr(part, name)) for name in part.__struct_fields__ if name != "default")

    return found if is_loose(found) else None


def check_kept(type_name: str, argument: str, written: str, kind: Any, read_back: ReadBack, given: Any) -> None:
    """Raise ``SubmissionError`` if an argument holds a value that the handler would not get back.

    ``written`` is the parameter as the signature writes it, with its stars.
    """
    if given.__class__ in NEVER_CHANGED:
        return
    place = ValueDeclaration(written, given)
    if place.name.startswith("**"):
        values: Iterable[Any] = place.value.values()
    else:
        values = place.value if place.name.startswith("*") else (place.value,)
    for value in values:
        if value.__class__ in NEVER_CHANGED:
            continue
        if (change := _change(kind, value, place)) is not None:
            raise SubmissionError(f"{type_name}: argument {argument!r}: {_told(change, read_back)}")


_NOTHING = object()


def _not_json(value: Any) -> Any:
    """Return the first part of a value that JSON would change, ``_NOTHING`` if it changes none."""
    kind: type[Any] = value.__class__
    if kind in NEVER_CHANGED:
        return _NOTHING
    parts: Iterable[Any]
    if kind is list:
        parts = value
    elif kind is dict or kind is MappingProxyType:  # ctx.saved is a read-only dict, and equal to the dict
        if any(key.__class__ is not str for key in value):
            return value
        parts = value.values()
    else:
        return value
    for part in parts:
        if part.__class__ not in NEVER_CHANGED and (changed := _not_json(part)) is not _NOTHING:
            return changed
    return _NOTHING


def _change(kind: Any, value: Any, place: ValueDeclaration) -> ChangedValue | None:
    """Return the first change that an annotation allows; ``kind`` is the annotation as msgspec describes it."""
    match kind:
        case types.AnyType() | types.CustomType():
            return _change_of_whole(kind, value, place)
        case types.UnionType():
            return _first(_change(each, value, place) for each in kind.types)
        case types.TupleType() if isinstance(value, list | tuple):
            pairs = zip(kind.item_types, cast("list[Any]", value), strict=False)
            return _first(_change(each, part, place) for each, part in pairs)
        case types.CollectionType() if isinstance(value, list | tuple | set | frozenset):
            is_loose = isinstance(kind.item_type, types.AnyType)
            if is_loose and isinstance(kind, types.ListType) and not isinstance(value, list):
                return ChangedValue(value, place)
            return _first(_change(kind.item_type, part, place) for part in cast("list[Any]", value))
        case types.DictType() if isinstance(value, Mapping):
            given = cast("Mapping[object, Any]", value)
            if isinstance(kind.key_type, types.AnyType) and any(key.__class__ is not str for key in given):
                return ChangedValue(value, place)
            return _first(_change(kind.value_type, part, place) for part in given.values())
        case types.DictType() if _has_fields(value):
            return ChangedValue(value, place)
        case types.StructType() | types.DataclassType() | types.NamedTupleType() | types.TypedDictType():
            return _first(_change(field.type, *_at(kind.cls, field.name, part)) for field, part in _fields(kind, value))
        case _:
            return None


def _first(changes: Iterable[ChangedValue | None]) -> ChangedValue | None:
    return next((change for change in changes if change is not None), None)


def _at(owner: type[Any], field: str, value: Any) -> tuple[Any, ValueDeclaration]:
    return value, ValueDeclaration(field, value, f"the field {field!r} of {owner.__name__}")


def _fields(kind: Any, value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the fields of a value, which is an object, or a mapping from a caller that submits by name."""
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return [(field, given[field.encode_name]) for field in kind.fields if field.encode_name in given]
    return [(field, getattr(value, field.name)) for field in kind.fields if hasattr(value, field.name)]


def _has_fields(value: object) -> bool:
    return isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value) or is_model_type(value.__class__)


def _is_object_or_model(kind: Any) -> bool:
    return isinstance(kind, types.CustomType) and (kind.cls is object or is_model_type(cast("object", kind.cls)))


def _change_of_whole(kind: Any, value: Any, place: ValueDeclaration) -> ChangedValue | None:
    """Return the change of a value that is plain JSON or a model as a whole."""
    if getattr(kind, "cls", object) is object:
        return None if (changed := _not_json(value)) is _NOTHING else ChangedValue(changed, place)
    given: type[Any] = value.__class__
    if is_model_type(kind.cls) and is_model_type(given) and unspecialized(given) is not unspecialized(kind.cls):
        return ChangedValue(value, place, kind.cls)
    return None


def _told(change: ChangedValue, read_back: ReadBack) -> str:
    """Return a sentence: what would happen to a value, why, and what to do."""
    if change.model is not None:
        given: type[Any] = change.part.__class__
        return (
            f"{_a(given)} would come back as {_a(change.model)}, because {change.place.described} is annotated so; "
            f"annotate it as {given.__name__}, or as a RootModel if it may be one of several models"
        )
    return (
        f"{_change_told(change.part, read_back)}, because {change.place.described} has no annotation that says "
        f"otherwise; annotate it, for example as {change.place.name}: {change.place.annotation()}"
    )


def _change_told(changed: Any, read_back: ReadBack) -> str:
    if changed.__class__ is dict:
        return "a dict whose keys are not strings would come back with strings as keys"
    return f"{_a(changed.__class__)} would come back as {_a(read_back(changed).__class__)}"


def _a(kind: type[Any]) -> str:
    return f"{'an' if kind.__name__[0] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def _annotation(value: Any) -> str:
    """Return an annotation that keeps this value."""
    kind: type[Any] = value.__class__
    if value is None:
        return "None"
    if kind is tuple:
        if len(value) <= _FEW:
            return f"tuple[{', '.join(map(_annotation, value)) or '()'}]"
        return f"tuple[{_union(value)}, ...]"
    known = (cast("type", each) for each in (Path, list, set, frozenset, dict))
    ordinary = next((each for each in known if issubclass(kind, each)), kind).__name__
    if ordinary in {"list", "set", "frozenset"}:
        return f"{ordinary}[{_union(value)}]"
    return f"dict[{_union(value)}, {_union(value.values())}]" if ordinary == "dict" else ordinary


def _union(values: Iterable[Any]) -> str:
    names = list(dict.fromkeys(map(_annotation, values)))
    return " | ".join(names) if 0 < len(names) <= _FEW else "Any"
