"""SQL by name. Each ``-- name: word`` of a ``.sql`` file starts a statement; its comment says what it is for.

The shared half of the store calls statements by their words. Each engine has files of its own, with the same words, the
same parameters and the same answers in its dialect; tests compare them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")


class _Names:
    """``SQL["claim"]`` says that the word is the name of a statement, so that tests can look it up in every engine."""

    def __getitem__(self, word: str) -> str:
        return word


SQL = _Names()


def load(folder: Path) -> dict[str, str]:
    """Every statement of an engine by its name; ``{word}`` stands for what ``fragments.sql`` says of it."""
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
    """Without the comment; an engine that has nothing to do for a word has an empty statement."""
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().rstrip(";").rstrip()
