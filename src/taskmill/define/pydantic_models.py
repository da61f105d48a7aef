"""Store pydantic models as JSON and read them back, without importing pydantic.

A class counts as a model if it has the methods and attributes of pydantic 2 models. A model is stored as its own JSON
form, by alias, and read with its own validation, in the strict or lax mode that it chooses for JSON.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec


def is_model_type(kind: object) -> bool:
    """True for the class of a pydantic model."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate_json")


def dumped(model: Any) -> Any:
    """Return the JSON form of a model; raise ``TypeError`` if the model that is read from it would not be equal.

    Such a model has a field like ``SecretStr``, whose JSON form hides its value, or aliases that differ for reading and
    writing.
    """
    plain = model.model_dump(mode="json", by_alias=True, round_trip=True)
    kind: type[Any] = model.__class__
    try:
        again = validated(kind, plain)
    except ValueError as wrong:
        raise TypeError(f"{kind.__name__} cannot be read from its own JSON form: {wrong}") from None
    before, after = _fields(model), _fields(again)
    if before != after:
        changed = sorted(name for name in before if name not in after or before[name] != after[name])
        raise TypeError(f"{kind.__name__} comes back from JSON with another {' and '.join(changed) or 'value'}")
    return plain


def validated(kind: Any, plain: object) -> Any:
    """Return the model that a JSON value stands for; raise ``ValueError`` that names every wrong field."""
    try:
        return kind.model_validate_json(msgspec.json.encode(plain))
    except ValueError as wrong:
        raise ValueError(_told(wrong)) from None


def _fields(model: Any) -> dict[str, Any]:
    """Return the fields as Python values; a root model has one, without a name of its own."""
    fields = model.model_dump(round_trip=True)
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {"root": fields}


def _told(wrong: ValueError) -> str:
    """Return the errors of a validation in one line, without the links and inputs that pydantic adds."""
    errors = getattr(wrong, "errors", None)
    if not callable(errors):
        return str(wrong)
    found = cast("list[dict[str, Any]]", errors())
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else str(one["msg"]) for one in found
    )
