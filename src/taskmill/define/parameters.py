"""Describe the parameters of a handler in the words of JSON.

This is for people and programs that submit by name. It is not a schema: the handler's annotations are checked when the
task runs. Only plain lookups are used, because every scheduler does this for all its task types when it opens.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import enum
import types
import uuid
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from taskmill.define.pydantic_models import is_model_type
from taskmill.model.published import Parameter

ANY = "any"

_KINDS: dict[object, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
    None: "null",
    types.NoneType: "null",
    datetime.datetime: "datetime",
    **dict.fromkeys((datetime.date, datetime.time, datetime.timedelta, bytes, decimal.Decimal, uuid.UUID), "text"),
    **dict.fromkeys((list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Set), "list"),
    **dict.fromkeys((dict, collections.abc.Mapping), "object"),
}
_FIELDS = ("__dataclass_fields__", "__struct_fields__", "__total__")
"""Attributes of dataclasses, msgspec structs and typed dictionaries."""


def described(name: str, annotation: object, required: bool) -> Parameter:
    kinds: dict[str, None] = {}
    choices: list[Any] = []
    _describe(annotation, kinds, choices)
    if ANY in kinds or (kinds and choices):
        # Not all of the accepted values are listed.
        choices = []
    return Parameter(name, tuple(kinds), required, tuple(choices))


def _describe(annotation: object, kinds: dict[str, None], choices: list[Any]) -> None:
    origin: Any = get_origin(annotation)
    if origin is Annotated:
        _describe(get_args(annotation)[0], kinds, choices)
    elif origin in (Union, types.UnionType):
        for each in get_args(annotation):
            _describe(each, kinds, choices)
    elif origin is Literal:
        choices += get_args(annotation)
    elif isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        choices += [member.value for member in annotation]
    else:
        kinds[_kind(annotation if origin is None else origin)] = None


def _kind(plain: Any) -> str:
    try:
        known = _KINDS.get(plain)
    except TypeError:
        return ANY  # it cannot be a key
    if known is not None:
        return known
    if is_model_type(plain) or any(hasattr(plain, field) for field in _FIELDS):
        return "object"
    return "text" if isinstance(plain, type) and issubclass(plain, PurePath) else ANY
