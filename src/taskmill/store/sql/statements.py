"""Loading SQL statements by name. Each ``-- name: word`` line of a ``.sql`` file starts one; a comment describes it.

The shared code calls statements by name. Both engines have the same names, with the same parameters and results; tests
compare them. The folder ``queries/`` here holds them in one spelling (:mod:`taskmill.store.sql.spelling`). Where the
engines really differ, a statement has two bodies, one below a line ``-- sqlite: reason`` and one below a line
``-- postgres: reason``. An engine without a body does not have the statement; an engine with an empty body has nothing
to do for it. A folder ``queries/`` of an engine holds statements that only this engine has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from taskmill.store.sql.spelling import Engine, spelled

SHARED = Path(__file__).with_name("queries")

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_ENGINE = re.compile(r"^-- (sqlite|postgres):.*$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{(\w+)\}")


class _Names:
    """A marker for statement names: tests look up every ``SQL["claim"]`` in the source in both engines."""

    def __getitem__(self, word: str) -> str:
        return word


SQL = _Names()


def load(engine: Engine, folder: Path) -> dict[str, str]:
    """Return the shared and the own statements of an engine by name.

    ``{word}`` is replaced by that fragment of ``fragments.sql``.
    """
    files = [*sorted(SHARED.glob("*.sql")), *sorted(folder.glob("*.sql"))]
    fragments: dict[str, str] = {}
    for file in files:
        if file.stem == "fragments":
            for word, sql in named(engine, file):
                fragments[word] = _with(fragments, sql)
    return {
        word: _with(fragments, sql) for file in files if file.stem != "fragments" for word, sql in named(engine, file)
    }


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
