"""One thing that ``taskmill doctor`` looked at, and what it thinks of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """A *problem* means data may be lost or work stands still. A *note* is worth knowing, no more."""

    level: Literal["ok", "note", "problem"]
    subject: str
    text: str
