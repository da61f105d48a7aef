"""Check that values of an annotation can be stored as JSON: all types that msgspec supports, and paths."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, cast

import msgspec


def unstorable(annotation: Any) -> str | None:
    """Return the name of a type inside ``annotation`` that cannot be stored as JSON, or ``None``."""
    if annotation in _PLAIN:
        return None
    # Imported here, so that only programs with rich handler types pay for it.
    from msgspec import inspect

    seen: set[int] = set()

    def search(found: Any) -> str | None:
        if isinstance(found, inspect.CustomType):
            return None if issubclass(found.cls, PurePath) else str(found.cls)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if isinstance(found, inspect.DictType) and isinstance(
            found.key_type, inspect.StructType | inspect.DataclassType | inspect.CollectionType | inspect.DictType
        ):
            return repr(annotation)
        if isinstance(found, list | tuple):
            return next((strange for part in cast("list[Any]", found) if (strange := search(part)) is not None), None)
        if isinstance(found, inspect.Type | inspect.Field) and id(found) not in seen:
            seen.add(id(found))
            return search([getattr(found, name) for name in found.__struct_fields__ if name != "default"])
        return None

    try:
        return search(inspect.type_info(annotation))
    except (TypeError, msgspec.MsgspecError):
        return repr(annotation)


_PLAIN = (Any, str, int, float, bool, bytes, list, dict, object)
