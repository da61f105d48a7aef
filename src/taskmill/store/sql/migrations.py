"""Migrations as numbered SQL files, in one folder per engine.

They are read when the engine is imported, like its statements, because later the process may have dropped privileges or
run out of file descriptors.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Migration(NamedTuple):
    """One upgrade step of the schema."""

    number: int
    name: str
    sql: str


def numbered_migrations(folder: Path) -> list[Migration]:
    """Read every migration of an engine, in order."""
    return sorted(
        Migration(int(file.name.partition("_")[0]), file.name, file.read_text(encoding="utf-8"))
        for file in folder.glob("*.sql")
    )
