"""SQL in files: statements by name, written once for both engines, and numbered migrations.

**Statements.** Each ``-- name: word`` line of a ``.sql`` file starts one; a comment describes it. The shared code calls
statements by name. Both engines have the same names, with the same parameters and results; tests compare them. The
folder ``queries/`` here holds them in one spelling. Where the engines really differ, a statement has two bodies, one
below a line ``-- sqlite: reason`` and one below a line ``-- postgres: reason``. An engine without a body does not have
the statement; an engine with an empty body has nothing to do for it. Statements that only the code of one engine calls
are in a file beside that code.

**One spelling.** The text is PostgreSQL with five macros, rendered once, when the statement is first used:

==================================  ====================================================================
macro                               meaning
==================================  ====================================================================
``json_row(a, b)``                  the JSON array ``[a, b]``
``json_list(x ORDER BY y)``         aggregate: a JSON array of all ``x``; ``[]`` if there are none
``json_map(name, x)``               aggregate: a JSON object of all ``name: x``; ``{}`` if there are none
``id IN ids($1)``                   true if ``id`` is in the parameter, a JSON array of ids
``rows($1, id bigint, key text)``   the parameter, a JSON array of arrays, as a table with these columns
==================================  ====================================================================

For SQLite the rest of PostgreSQL's spelling is replaced too: ``$1`` by ``?1``, ``true`` by ``1``, ``greatest`` by
``max``, ``x::json`` by ``json(x)``. Other casts are dropped, and so is the order of an aggregate, which older versions
of SQLite do not know; where the order matters there, the statement sorts a subquery.

A flag is compared (``open = true``, not ``open``), because SQLite uses a partial index only if its condition is found
in the statement word by word.

All files are read when the engine is imported, because later the process may have dropped privileges or run out of file
descriptors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

Engine = Literal["sqlite", "postgres"]

SHARED = Path(__file__).with_name("queries")
FRAGMENTS = SHARED / "fragments.sql"

# Both begin with a fixed text, which re finds much faster than the start of any line.
_HEADING = re.compile(r"\n-- name: (\w+)(?=\n)")
_ENGINE = re.compile(r"\n-- (sqlite|postgres):.*")
_FRAGMENT = re.compile(r"\{(\w+)\}")


@cache
def _parts(file: Path) -> list[str]:
    """Split a file at the headings of its statements: the text before the first, then names and bodies in turn."""
    return _HEADING.split("\n" + file.read_text(encoding="utf-8"))


SQL: Mapping[str, str] = {
    word: word for file in SHARED.glob("*.sql") if file != FRAGMENTS for word in _parts(file)[1::2]
}
"""The names of the shared statements: a name that does not exist raises ``KeyError``."""


class EngineStatements(Mapping[str, str]):
    """The statements of an engine by name. Each is rendered when it is first used, because a process uses few of them.

    ``{word}`` is replaced by that fragment of ``fragments.sql``; fragments may contain others.
    """

    def __init__(self, engine: Engine, bodies: Mapping[str, str], fragments: EngineStatements | None = None) -> None:
        self._engine: Engine = engine
        self._bodies = bodies
        self._fragments = self if fragments is None else fragments
        self._rendered: dict[str, str] = {}

    def __getitem__(self, word: str) -> str:
        text = self._rendered.get(word)
        if text is None:
            sql = spelled(self._engine, _bare(self._bodies[word]))
            text = self._rendered[word] = _FRAGMENT.sub(lambda found: self._fragments.get(found[1], found[0]), sql)
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)


def load(engine: Engine, *own: Path) -> EngineStatements:
    """Return the statements of an engine: the shared ones, and those of its own files."""
    bodies: dict[str, str] = {}
    files = [file for file in sorted(SHARED.glob("*.sql")) if file != FRAGMENTS]
    for file in (*files, *own):
        for word, sql in named(engine, file):
            if word in bodies:
                raise ValueError(f"{file.name}: there is another statement with the name {word}")
            bodies[word] = sql
    return EngineStatements(engine, bodies, EngineStatements(engine, dict(named(engine, FRAGMENTS))))


def named(engine: Engine, file: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the body of each statement of a file that an engine has."""
    parts = _parts(file)
    for word, body in zip(parts[1::2], parts[2::2], strict=True):
        common, *bodies = _ENGINE.split(body)
        by_engine = dict(zip(bodies[::2], bodies[1::2], strict=True)) or {engine: common}
        if engine in by_engine:
            yield word, by_engine[engine]


def _bare(sql: str) -> str:
    """Remove the comment. A statement is empty if the engine has nothing to do for that name."""
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip().rstrip(";").rstrip()


# One spelling for both engines


def _balanced(depth: int) -> str:
    """Return a pattern for text with parentheses up to ``depth`` deep."""
    return rf"[^()]*(?:\({_balanced(depth - 1)}\)[^()]*)*" if depth else "[^()]*"


_BALANCED = _balanced(8)
_MACRO = re.compile(rf"\b(json_row|json_list|json_map|IN ids|rows)\(({_BALANCED})\)")
_PARSED = re.compile(rf"([\w.]+|\({_BALANCED}\))::json\b(?! ->)")
_CAST = re.compile(r"::[a-z]\w*")
_PARAMETER = re.compile(r"\$(?=\d)")
_WORDS = {"true": "1", "false": "0", "greatest": "max", "least": "min"}


def spelled(engine: Engine, sql: str) -> str:
    """Return the text of a statement in the dialect of an engine."""
    if engine == "postgres":
        return _expanded(sql, _POSTGRES)
    sql = _expanded(sql, _SQLITE)
    if "::json" in sql:
        sql = _parsed(sql)
    sql = _PARAMETER.sub("?", _CAST.sub("", sql))
    for word, own in _WORDS.items():
        if word in sql:
            sql = re.sub(rf"(?<!')\b{word}\b(?!')", own, sql)
    return sql


def _expanded(sql: str, macros: Mapping[str, Callable[[str], str]]) -> str:
    return _MACRO.sub(lambda call: macros[call[1]](_expanded(call[2], macros)), sql)


def _parsed(sql: str) -> str:
    """Replace ``x::json`` by ``json(x)``, also inside ``x``."""
    return _PARSED.sub(lambda cast: f"json({_parsed(cast[1])})", sql)


def _unsorted(aggregated: str) -> str:
    """Remove the ORDER BY of an aggregate, but not that of a subquery inside it."""
    before, order, after = aggregated.rpartition(" ORDER BY ")
    return before if order and after.count("(") == after.count(")") else aggregated


def _columns(arguments: str) -> tuple[str, list[tuple[str, str]]]:
    parameter, *columns = re.split(r",\s+", arguments.strip())
    return parameter, [(name, kind) for name, kind in (column.split() for column in columns)]


def _sqlite_rows(arguments: str) -> str:
    parameter, columns = _columns(arguments)
    fields = [f"value {'->' if kind == 'json' else '->>'} {n} AS {name}" for n, (name, kind) in enumerate(columns)]
    return f"(SELECT {', '.join(fields)} FROM json_each({parameter}))"  # noqa: S608 - names in our own files


def _postgres_rows(arguments: str) -> str:
    parameter, columns = _columns(arguments)
    fields = [f"{_postgres_field(n, kind)} AS {name}" for n, (name, kind) in enumerate(columns)]
    return f"(SELECT {', '.join(fields)} FROM jsonb_array_elements({parameter}::jsonb) AS row (value))"  # noqa: S608


def _postgres_field(n: int, kind: str) -> str:
    if kind == "json":
        return f"value -> {n}"
    return f"value ->> {n}" if kind == "text" else f"(value ->> {n})::{kind}"


_SQLITE: Mapping[str, Callable[[str], str]] = {
    "json_row": lambda fields: f"json_array({fields})",
    "json_list": lambda item: f"json_group_array({_unsorted(item)})",
    "json_map": lambda pair: f"json_group_object({pair})",
    "IN ids": lambda parameter: f"IN (SELECT value FROM json_each({parameter}))",  # noqa: S608
    "rows": _sqlite_rows,
}
_POSTGRES: Mapping[str, Callable[[str], str]] = {
    "json_row": lambda fields: f"json_build_array({fields})",
    "json_list": lambda item: f"coalesce(json_agg({item}), '[]')",
    "json_map": lambda pair: f"coalesce(json_object_agg({pair}), '{{}}')",
    "IN ids": lambda parameter: f"= ANY (taskmill_ids({parameter}))",
    "rows": _postgres_rows,
}


# Parameters by position

_NUMBERED = re.compile(r"\?(\d+)")


class Positional(NamedTuple):
    """A statement of SQLite with one ``?`` per value, and the function that puts parameters into that order.

    Some versions of Python 3.12 warn for each ``?1`` that gets its value from a sequence. Named parameters would need a
    mapping for each call, which costs more than an occasional copy of a tuple.
    """

    text: str
    ordered: Callable[[Sequence[Any]], Sequence[Any]] | None
    """None if the parameters are needed once each, in the order in which they are given."""


def positional(sql: str) -> Positional:
    """Replace ``?1``, ``?2`` … by ``?``."""
    parts = _NUMBERED.split(sql)
    numbers = [int(number) for number in parts[1::2]]
    in_order = list(range(1, max(numbers, default=0) + 1))
    if set(numbers) != set(in_order):
        raise ValueError(f"a statement must use each of its parameters: {sql}")
    ordered = None if numbers == in_order else itemgetter(*[number - 1 for number in numbers])
    return Positional("?".join(parts[::2]), ordered)


# Migrations


class Migration(NamedTuple):
    """One upgrade step of the schema. A released one is never edited; later changes go into a new one."""

    number: int
    name: str
    sql: str


def numbered_migrations(folder: Path) -> list[Migration]:
    """Read every migration of an engine, in order."""
    return sorted(
        Migration(int(file.name.partition("_")[0]), file.name, file.read_text(encoding="utf-8"))
        for file in folder.glob("*.sql")
    )
