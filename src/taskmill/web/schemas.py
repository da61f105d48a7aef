"""JSON Schema of the classes whose values ``taskmill.to_json`` writes and the API reads.

Instants are date-times, durations are seconds, enums are their values, and a record has a ``state``. The text below a
field in the source describes it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, UnsetType

from taskmill import HistoryRecord, TaskRecord

Schema = dict[str, Any]

_SIMPLE: Mapping[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    timedelta: {"type": "number", "description": "Seconds."},
    Any: {},
    object: {},
}
_LIMITS = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "pattern": "pattern",
    "description": "description",
}
_LENGTHS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}


class Schemas:
    """Collects the schemas of classes under their names, for the components of an OpenAPI document."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def of(self, annotation: Any) -> Schema:
        """Return the schema of a type; classes with fields are referred to by name."""
        if annotation in _SIMPLE:
            return dict(_SIMPLE[annotation])
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is typing.Annotated:
            return self._limited(self.of(arguments[0]), [each for each in arguments[1:] if isinstance(each, Meta)])
        if origin in (Union, types.UnionType):
            return self._any_of([each for each in arguments if each is not UnsetType])
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is tuple and arguments[-1] is not ...:
            return self._row([self.of(each) for each in arguments])
        if origin is not None and issubclass(origin, Sequence):
            return {"type": "array", "items": self.of(arguments[0])}
        return self._of_class(annotation)

    def _of_class(self, kind: type[Any]) -> Schema:
        if issubclass(kind, Enum):
            return {"enum": [each.value for each in kind]}
        if tuple in kind.__mro__:
            return self._row([self.of(each) for each in typing.get_type_hints(kind).values()])
        return self._named(kind)

    def _any_of(self, members: Sequence[Any]) -> Schema:
        if len(members) == 1:
            return self.of(members[0])
        found = [self.of(each) for each in members]
        if all(each.keys() == {"enum"} for each in found):
            return {"enum": [value for each in found for value in each["enum"]]}
        return {"anyOf": found}

    def _row(self, items: Sequence[Schema]) -> Schema:
        return {"type": "array", "prefixItems": list(items), "minItems": len(items), "maxItems": len(items)}

    def _limited(self, schema: Schema, limits: Sequence[Meta]) -> Schema:
        for meta in limits:
            for name, word in _LIMITS.items():
                if (value := getattr(meta, name)) is not None:
                    schema[word] = value
            least, most = _LENGTHS.get(schema.get("type", ""), ("minProperties", "maxProperties"))
            for value, word in ((meta.min_length, least), (meta.max_length, most)):
                if value is not None:
                    schema[word] = value
        return schema

    def _named(self, kind: type) -> Schema:
        name = kind.__name__
        if name not in self.components:
            self.components[name] = {}  # a class may refer to itself
            self.components[name] = self._fields(kind)
        return {"$ref": f"#/components/schemas/{name}"}

    def _fields(self, kind: type) -> Schema:
        described = described_fields(kind)
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for name, annotation, default in fields_of(kind):
            properties[name] = schema = self.of(annotation)
            if name in described:
                properties[name] = {**schema, "description": described[name]}
            if default is NODEFAULT:
                required.append(name)
            elif default is not None and isinstance(default, str | int | float | bool):
                properties[name] = {**properties[name], "default": default}
        is_input = getattr(getattr(kind, "__struct_config__", None), "forbid_unknown_fields", False)
        if not is_input:
            # Answers always have all of their fields.
            required = list(properties)
        if kind in (TaskRecord, HistoryRecord):
            properties["state"] = {"type": "string", "description": "The status or the ending."}
            required.append("state")
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        if text := (inspect.getdoc(kind) or "").strip():
            schema["description"] = one_line(text)
        return schema


def fields_of(kind: type) -> list[tuple[str, Any, Any]]:
    """Return name, annotation and default of each field of a struct or a dataclass."""
    hints = typing.get_type_hints(kind, include_extras=True)
    if issubclass(kind, msgspec.Struct):
        defaults = {field.name: _default(field) for field in msgspec.structs.fields(kind)}
        return [(name, hints[name], defaults[name]) for name in kind.__struct_fields__]
    return [(name, hint, NODEFAULT) for name, hint in hints.items() if not name.startswith("_")]


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default


@cache
def described_fields(kind: type) -> dict[str, str]:
    """Return the texts below the fields of a class and of its bases."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not each.__module__.startswith("taskmill."):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        body: Sequence[ast.stmt] = getattr(definition, "body", ())
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _is_text(below):
                found[field.target.id] = one_line(ast.literal_eval(ast.unparse(below)))
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def one_line(text: str) -> str:
    """Return text for readers of the description: one line, with single backquotes."""
    return " ".join(text.split()).replace("``", "`")
