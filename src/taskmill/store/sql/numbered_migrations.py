"""Migrations as numbered files of SQL; each engine has a folder of its own."""

from __future__ import annotations

from pathlib import Path


def numbered_migrations(folder: Path) -> list[tuple[int, str, str]]:
    """``(number, name, sql)`` of every migration, in order."""
    return sorted(
        (int(file.name.partition("_")[0]), file.name, file.read_text(encoding="utf-8")) for file in folder.glob("*.sql")
    )
