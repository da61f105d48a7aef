"""Loading SQL statements by name. Each ``-- name: word`` line of a ``.sql`` file starts one; a comment describes it.

The shared code calls statements by name. Both engines have the same names, with the same parameters and results; tests
compare them. The folder ``queries/`` here holds them in one spelling (:mod:`taskmill.store.sql.spelling`). Where the
engines really differ, a statement has two bodies, one below a line ``-- sqlite: reason`` and one below a line
``-- postgres: reason``. An engine without a body does not have the statement; an engine with an empty body has nothing
to do for it. Statements that only the code of one engine calls are in a file beside that code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from taskmill.store.sql.spelling import Engine, spelled

SHARED = Path(__file__).with_name("queries")
FRAGMENTS = SHARED / "fragments.sql"

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_ENGINE = re.compile(r"^-- (sqlite|postgres):.*$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")


class _Names:
    """A marker for statement names: tests look up every ``SQL["claim"]`` in the source in both engines."""

    def __getitem__(self, word: str) -> str:
        return word


SQL = _Names()


def load(engine: Engine, *own: Path) -> dict[str, str]:
    """Return the statements of an engine by name: the shared ones, and those of its own files.

    ``{word}`` is replaced by that fragment of ``fragments.sql``.
    """
    fragments: dict[str, str] = {}
    for word, sql in named(engine, FRAGMENTS):
        fragments[word] = _with(fragments, sql)
    statements: dict[str, str] = {}
    files = [file for file in sorted(SHARED.glob("*.sql")) if file != FRAGMENTS]
    for file in (*files, *own):
        for word, sql in named(engine, file):
            if word in statements:
                raise ValueError(f"{file.name}: there is another statement with the name {word}")
            statements[word] = _with(fragments, sql)
    return statements


def named(engine: Engine, file: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each statement of a file that an engine has."""
    parts = _HEADING.split(file.read_text(encoding="utf-8"))
    for word, body in zip(parts[1::2], parts[2::2], strict=True):
        common, *bodies = _ENGINE.split(body)
        by_engine = dict(zip(bodies[::2], bodies[1::2], strict=True)) or {engine: common}
        if engine in by_engine:
            yield word, spelled(engine, _bare(by_engine[engine]))


def _with(fragments: Mapping[str, str], sql: str) -> str:
    return _FRAGMENT.sub(lambda found: fragments.get(found[1], found[0]), sql)


def _bare(sql: str) -> str:
    """Remove the comment. A statement is empty if the engine has nothing to do for that name."""
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().rstrip(";").rstrip()
