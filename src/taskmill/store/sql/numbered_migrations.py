"""Migrations as numbered files of SQL; each engine has a folder of its own.

They are read when the engine is loaded, like its statements: later the process may have dropped its privileges, or have
no file descriptors left.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    name: str
    sql: str


def numbered_migrations(folder: Path) -> list[Migration]:
    """Read every migration of an engine, in order."""
    return sorted(
        Migration(int(file.name.partition("_")[0]), file.name, file.read_text(encoding="utf-8"))
        for file in folder.glob("*.sql")
    )
