"""The JSON text of arguments from which keys are made. Equal arguments have equal texts.

Two mappings are equal whatever the order of their entries, and two sets whatever the order in which they are iterated,
which differs between processes. So, at every depth, the entries of mappings are sorted by name and the elements of sets
by their own text. Fields keep the order of their class, and lists keep theirs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, cast

import msgspec

from taskmill.define.pydantic_models import is_model_type

_encode = msgspec.json.Encoder().encode
_UNORDERED = frozenset({str, int, float, bool, type(None)})
"""Types of values that have nothing to sort."""

JsonEncoder = Callable[[object], bytes]


def canonical_json(value: object, encode: JsonEncoder) -> bytes:
    """Return the canonical text of a value; ``encode`` makes the JSON of any value that can be stored."""
    encoded = encode(value)
    return encoded if value.__class__ in _UNORDERED else _encode(_sorted(msgspec.json.decode(encoded), value, encode))


def canonical_values(values: Mapping[str, Any], encode: JsonEncoder) -> bytes:
    """Return the canonical text of named values, sorted by name also where a class has given its fields an order."""
    plain: Any = msgspec.json.decode(encode(values))
    if not _UNORDERED.issuperset(value.__class__ for value in values.values()):
        plain = {name: _sorted(plain[name], value, encode) for name, value in values.items()}
    return msgspec.json.encode(plain, order="deterministic")


def _sorted(plain: Any, value: Any, encode: JsonEncoder) -> Any:
    """Return the JSON form of a value with its mappings and sets sorted.

    Both are read side by side, because only the value shows which list was a set. Iterating an unchanged set twice
    yields the same order, so the lists correspond.
    """
    kind: type[Any] = value.__class__
    if kind in _UNORDERED:
        return plain
    if isinstance(plain, list):
        listed = cast("list[object]", plain)
        if isinstance(value, Set):
            return sorted(_each(listed, cast("Set[object]", value), encode), key=_encode)
        if isinstance(value, list | tuple):
            return _each(listed, cast("list[object]", value), encode)
    elif isinstance(plain, dict) and isinstance(value, Mapping):
        items = cast("dict[str, object]", plain).items()
        values = cast("Mapping[object, Any]", value).values()
        if len(items) == len(values):
            pairs = zip(items, values, strict=True)
            return dict(sorted((name, _sorted(part, of, encode)) for (name, part), of in pairs))
    return _with_sorted_fields(plain, value, kind, encode)


def _each(plain: list[object], values: Iterable[Any], encode: JsonEncoder) -> list[Any]:
    return [_sorted(part, value, encode) for part, value in zip(plain, values, strict=True)]


def _with_sorted_fields(plain: Any, value: Any, kind: Any, encode: JsonEncoder) -> Any:
    """Do the same for the fields of a struct, dataclass or model."""
    fields: list[tuple[str, Any]]
    if issubclass(kind, msgspec.Struct):
        names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        fields = [(encoded, getattr(value, name)) for name, encoded in names]
        if isinstance(plain, list):  # array_like; a tag comes first
            listed = cast("list[object]", plain)
            start = len(listed) - len(fields)
            return listed[:start] + _each(listed[start:], [each for _, each in fields], encode)
    elif is_model_type(kind):
        if hasattr(kind, "__pydantic_root_model__") and kind.__pydantic_root_model__:
            return _sorted(plain, value.root, encode)
        infos = cast("dict[str, Any]", kind.model_fields).items()
        fields = [(info.serialization_alias or name, getattr(value, name)) for name, info in infos]
        # Fields that the class does not declare have no order.
        extra: dict[str, Any] = value.__pydantic_extra__ or {}
        fields += sorted(extra.items())
    elif dataclasses.is_dataclass(kind) and isinstance(plain, dict):
        fields = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(kind)]
        # A decoded dataclass has the defaults of fields that the text omits on its class, and msgspec omits them too.
        missing = {name: each for name, each in fields if name not in plain}
        plain = {**cast("dict[str, object]", plain), **msgspec.json.decode(encode(missing))}
    else:
        return plain
    if not isinstance(plain, dict):
        return plain
    made = cast("dict[str, object]", plain)
    known = dict(fields)
    return {
        **{name: part for name, part in made.items() if name not in known},
        **{name: _sorted(made[name], part, encode) for name, part in fields if name in made},
    }
