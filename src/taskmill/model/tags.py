"""Tags: up to 32 short labels by which a task can be found."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from taskmill.errors import InvalidTag

MOST_TAGS = 32
LONGEST_KEY = 64
LONGEST_VALUE = 256


def valid_tags(tags: object) -> dict[str, str]:
    """Return a checked copy of ``tags``, or raise :class:`InvalidTag` that names the wrong one."""
    if not isinstance(tags, Mapping):
        raise InvalidTag(f"tags must map names to values, not {type(tags).__name__}")
    if len(tags) > MOST_TAGS:  # pyright: ignore[reportUnknownArgumentType]
        raise InvalidTag(f"tags: at most {MOST_TAGS} are allowed, got {len(tags)}")  # pyright: ignore[reportUnknownArgumentType]
    checked: dict[str, str] = {}
    for key, value in tags.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidTag(f"tags must be strings, got {key!r}: {value!r}")
        if not key:
            raise InvalidTag("tags: a name must not be empty")
        if _size(key) > LONGEST_KEY:
            raise InvalidTag(f"tags: the name {key[:20]!r}… is longer than {LONGEST_KEY} bytes")
        if _size(value) > LONGEST_VALUE:
            raise InvalidTag(f"tags: the value of {key!r} is longer than {LONGEST_VALUE} bytes")
        checked[key] = value
    return checked


_decode = msgspec.json.Decoder(dict[str, str]).decode


def decode_tags(tags: str | None) -> dict[str, str]:
    """Decode stored tags."""
    return _decode(tags) if tags else {}


def _size(text: str) -> int:
    if "\0" in text:
        raise InvalidTag(f"tags must not contain the NUL character: {text!r}")
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidTag(f"tags: {text!r} is not valid Unicode text") from None
