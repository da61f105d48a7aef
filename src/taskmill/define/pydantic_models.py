"""Store pydantic models as JSON and read them back, without importing pydantic.

A class counts as a model if it has the methods and attributes of pydantic 2 models. A model is stored as its own JSON
form, by alias, and read with its own validation, in the strict or lax mode that it chooses for JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec


def is_model_type(kind: object) -> bool:
    """True for the class of a pydantic model."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate_json")


def is_any_model(kind: object) -> bool:
    """True for pydantic's ``BaseModel`` itself, which stands for every model and cannot be read from JSON."""
    return is_model_type(kind) and cast("type", kind).__base__ is object


def unspecialized(kind: Any) -> Any:
    """Return a generic model without its arguments; any other class unchanged."""
    return kind.__pydantic_generic_metadata__["origin"] or kind


def dumped(model: Any) -> Any:
    """Return the JSON form of a model; raise ``TypeError`` if the model that is read from it would not be equal.

    Such a model has a field like ``SecretStr``, whose JSON form hides its value, a field with ``exclude=True``, an
    instance of a subclass in a field, private attributes, or aliases that differ for reading and writing.
    """
    plain = model.model_dump(mode="json", by_alias=True, round_trip=True)
    kind: type[Any] = model.__class__
    try:
        again = validated(kind, plain)
    except ValueError as wrong:
        raise TypeError(f"{kind.__name__} cannot be read from its own JSON form: {wrong}") from None
    if changed := _changed(_fields(model), _fields(again)):
        raise TypeError(f"{kind.__name__} comes back from JSON with another {' and '.join(changed)}")
    if changed := _changed(_private(model), _private(again)):
        # A default that differs for each instance, such as a lock, was not given to this one.
        fresh = _changed(_private(again), _private(validated(kind, plain)))
        if kept := [name for name in changed if name not in fresh]:
            raise TypeError(
                f"{kind.__name__} comes back from JSON without its private {' and '.join(kept)}; pass it separately, "
                "or make it a field"
            )
    return plain


def validated(kind: Any, plain: object) -> Any:
    """Return the model that a JSON value stands for; raise ``ValueError`` that names every wrong field."""
    try:
        return kind.model_validate_json(msgspec.json.encode(plain))
    except ValueError as wrong:
        raise ValueError(_told(wrong)) from None


def _fields(model: Any) -> dict[str, Any]:
    """Return the fields themselves, not their dump, which leaves out what the model excludes."""
    names: Iterable[str] = model.__class__.model_fields
    return {**{name: getattr(model, name) for name in names}, **(model.__pydantic_extra__ or {})}


def _private(model: Any) -> dict[str, Any]:
    return model.__pydantic_private__ or {}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names whose values differ."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _told(wrong: ValueError) -> str:
    """Return the errors of a validation in one line, without the links and inputs that pydantic adds."""
    errors = getattr(wrong, "errors", None)
    if not callable(errors):
        return str(wrong)
    found = cast("list[dict[str, Any]]", errors())
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else str(one["msg"]) for one in found
    )
