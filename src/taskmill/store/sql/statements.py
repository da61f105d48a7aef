"""Loading SQL statements by name. Each ``-- name: word`` line of a ``.sql`` file starts one; a comment describes it.

The shared code calls statements by name. Each engine has its own files in its dialect, with the same names, parameters
and results; tests compare them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")


class _Names:
    """A marker for statement names: tests look up every ``SQL["claim"]`` in the source in both engines."""

    def __getitem__(self, word: str) -> str:
        return word


SQL = _Names()


def load(folder: Path) -> dict[str, str]:
    """Return every statement of an engine by name, with ``{word}`` replaced by that fragment of ``fragments.sql``."""
    fragments: dict[str, str] = {}
    for word, sql in _named(folder / "fragments.sql"):
        fragments[word] = _with(fragments, sql)
    files = sorted(file for file in folder.glob("*.sql") if file.stem != "fragments")
    return {word: _with(fragments, sql) for file in files for word, sql in _named(file)}


def _named(file: Path) -> list[tuple[str, str]]:
    parts = _HEADING.split(file.read_text(encoding="utf-8"))
    return [(word, _bare(sql)) for word, sql in zip(parts[1::2], parts[2::2], strict=True)]


def _with(fragments: Mapping[str, str], sql: str) -> str:
    return _FRAGMENT.sub(lambda found: fragments.get(found[1], found[0]), sql)


def _bare(sql: str) -> str:
    """Remove the comment. A statement is empty if the engine has nothing to do for that name."""
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().rstrip(";").rstrip()
