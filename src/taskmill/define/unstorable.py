"""Say why an annotation cannot be the type of a parameter, when the task is defined."""

from __future__ import annotations

from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect as types

from taskmill.define.pydantic_models import is_any_model, is_model_type

_USE = "use plain values, dataclasses, msgspec structs or pydantic models"


def why_unstorable(annotation: Any) -> str | None:
    """Return why values with this annotation cannot be stored as JSON and read back, and what to use; else ``None``."""
    seen: set[int] = set()

    def search(found: Any) -> str | None:
        if isinstance(found, types.CustomType):
            return _why_not_custom(cast("Any", found).cls)
        if isinstance(found, types.DictType) and isinstance(
            found.key_type, types.StructType | types.DataclassType | types.CollectionType | types.DictType
        ):
            return _not_json(repr(annotation))
        if isinstance(found, list | tuple):
            return next((reason for part in cast("list[Any]", found) if (reason := search(part)) is not None), None)
        if isinstance(found, types.Type | types.Field) and id(found) not in seen:
            seen.add(id(found))
            return search([getattr(found, name) for name in found.__struct_fields__ if name != "default"])
        return None

    try:
        return search(types.type_info(annotation))
    except (TypeError, msgspec.MsgspecError):
        return _why_not_union(annotation) or _not_json(repr(annotation))


def _why_not_custom(kind: Any) -> str | None:
    if is_any_model(kind):
        return (
            f"has the type {kind.__name__}, which does not say what model to read from JSON; use the class of the "
            "model, or a RootModel if it may be one of several"
        )
    return None if issubclass(kind, PurePath) or is_model_type(kind) or kind is object else _not_json(str(kind))


def _why_not_union(annotation: Any) -> str | None:
    """Return the reason if a model is in a union with more than ``None``: its JSON does not show which one it is."""
    parts = get_args(annotation)
    if get_origin(annotation) in (Union, UnionType) and any(map(is_model_type, parts)):
        names = " | ".join(_name(part) for part in parts)
        choice = " | ".join(_name(part) for part in parts if part is not NoneType)
        return (
            f"has the type {names}, but a pydantic model can be in a union with None only; let pydantic choose: define "
            f"class Choice(RootModel[{choice}]) and use Choice"
        )
    return next((reason for part in parts if (reason := _why_not_union(part)) is not None), None)


def _name(kind: Any) -> str:
    return "None" if kind is NoneType else kind.__name__ if isinstance(kind, type) else str(kind)


def _not_json(name: str) -> str:
    return f"has the type {name}, which cannot be stored as JSON; {_USE}"
