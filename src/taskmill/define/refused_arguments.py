"""Say why a payload does not fit the parameters of a handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


def why_refused(wrong: msgspec.ValidationError, arguments: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return why a submission is refused; for unknown arguments, with the parameters that the task has."""
    unknown = [name for name in arguments if name not in names]
    if not unknown:
        return named(wrong)
    what = f"unknown {'argument' if len(unknown) == 1 else 'arguments'} {', '.join(map(repr, unknown))}"
    if not names:
        return f"{what}; the task has no parameters"
    noun = "parameter is" if len(names) == 1 else "parameters are"
    return f"{what}; its {noun} {', '.join(map(repr, names))}"


def named(wrong: msgspec.ValidationError) -> str:
    """Return the message of msgspec with the name of the argument in front."""
    message = str(wrong)
    what, found, where = message.partition(" - at `$.")
    return f"argument {where.rstrip('`')!r}: {what}" if found else message
