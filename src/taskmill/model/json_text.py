"""The JSON form of public values, for programs and for the command line.

Instants are ISO 8601 in UTC, durations are seconds, enums are their values. A number that JSON does not have (infinity,
not a number) becomes ``null``. An event starts with its kind, under ``event``. A record ends with its ``state``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from taskmill.model.records import HistoryRecord, TaskRecord


def to_json(value: object) -> str:
    """Return a record, event, snapshot or explanation, or a list or mapping of them, as JSON text on one line.

    It is the JSON that the command line prints with ``--json``.
    """
    return msgspec.json.encode(plain(value)).decode()


def to_indented_json(value: object) -> str:
    """Return the same JSON on several lines, for people."""
    return msgspec.json.format(to_json(value), indent=2)


def plain(value: object) -> Any:
    """Return the value as mappings, lists, texts and numbers."""
    # First, because most values are of these, and the abstract classes below take long to check.
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, TaskRecord | HistoryRecord):
        return {**{name: plain(getattr(value, name)) for name in value.__struct_fields__}, "state": value.state}
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return {name: plain(item) for name, item in fields.items() if not callable(item)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Imported here, because the event classes take a third of the time to import taskmill.
        from taskmill.model.events import Event

        kind = {"event": type(value).__name__} if isinstance(value, Event) else {}
        return {**kind, **{field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}}
    if _is_json(value):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Set) or (isinstance(value, Sequence) and not isinstance(value, str | bytes)):
        return [plain(item) for item in cast("Sequence[object]", value)]
    return str(value)


def _is_json(value: object) -> bool:
    """True if a value is a mapping or list of nothing but JSON values.

    Payloads and results are, and they may be nested deeper than Python functions may call each other.
    """
    if type(value) not in (dict, list):
        return False
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if type(each) is dict:
            inner = cast("dict[object, object]", each)
            if not all(type(name) is str for name in inner):
                return False
            waiting += inner.values()
        elif type(each) is list:
            waiting += each
        elif not (each is None or type(each) in (str, int, float, bool)):
            return False
    return True
