"""JSON for programs: records, events and snapshots as plain values.

Instants are ISO 8601 in UTC, durations are seconds, enums are their values.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec


def plain(value: object) -> Any:
    """Return the value as mappings, lists, texts and numbers."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in cast("Sequence[object]", value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def print_document(value: object) -> None:
    """Print one indented JSON document."""
    _write(json.dumps(plain(value), indent=2, ensure_ascii=False))


def print_line(value: object) -> None:
    """Print one JSON object on one line, and flush it."""
    _write(json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
