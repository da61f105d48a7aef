"""SQL by name. Each ``-- name: word`` starts a statement; its comment says what it is for."""

from __future__ import annotations

import re
from pathlib import Path

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load(file: str) -> dict[str, str]:
    """The statements of one ``.sql`` file beside this module."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    parts = _HEADING.split(text)
    return {name: sql.strip().rstrip(";") for name, sql in zip(parts[1::2], parts[2::2], strict=True)}
