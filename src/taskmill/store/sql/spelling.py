"""One spelling of SQL for both engines. The text is PostgreSQL with five macros; this module renders it once, at load.

==================================  ====================================================================
macro                               meaning
==================================  ====================================================================
``json_row(a, b)``                  the JSON array ``[a, b]``
``json_list(x ORDER BY y)``         aggregate: a JSON array of all ``x``; ``[]`` if there are none
``json_map(name, x)``               aggregate: a JSON object of all ``name: x``; ``{}`` if there are none
``id IN ids($1)``                   true if ``id`` is in the parameter, a JSON array of ids
``rows($1, id bigint, key text)``   the parameter, a JSON array of arrays, as a table with these columns
==================================  ====================================================================

For SQLite the rest of PostgreSQL's spelling is replaced too: ``$1`` by ``?1``, ``true`` by ``1``, ``greatest`` by ``max``,
``x::json`` by ``json(x)``. Other casts are dropped, and so is the order of an aggregate, which older versions of SQLite
do not know; where the order matters there, the statement sorts a subquery.

A flag is compared (``open = true``, not ``open``), because SQLite uses a partial index only if the text of its condition
is found in the statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

Engine = Literal["sqlite", "postgres"]

_MACRO = re.compile(r"\b(json_row|json_list|json_map|IN ids|rows)\(")
_PARENTHESIS = re.compile("[()]")
_PARSED = re.compile(r"([\w.]+|\))::json\b(?! ->)")
_CAST = re.compile(r"::[a-z]\w*")
_PARAMETER = re.compile(r"\$(?=\d)")
_WORD = re.compile(r"(?<!')\b(true|false|greatest|least)\b(?!')")
_SQLITE_WORDS = {"true": "1", "false": "0", "greatest": "max", "least": "min"}


def spelled(engine: Engine, sql: str) -> str:
    """Return the text of a statement in the dialect of an engine."""
    if engine == "postgres":
        return _expanded(sql, _POSTGRES)
    sql = _parsed(_expanded(sql, _SQLITE))
    sql = _PARAMETER.sub("?", _CAST.sub("", sql))
    return _WORD.sub(lambda word: _SQLITE_WORDS[word[0]], sql)


def _expanded(sql: str, macros: Mapping[str, Callable[[str], str]]) -> str:
    if (call := _MACRO.search(sql)) is None:
        return sql
    end = _closing(sql, call.end())
    inside = _expanded(sql[call.end() : end], macros)
    return sql[: call.start()] + macros[call[1]](inside) + _expanded(sql[end + 1 :], macros)


def _closing(sql: str, start: int) -> int:
    """Return the index of the parenthesis that closes the one before ``start``."""
    depth = 1
    for found in _PARENTHESIS.finditer(sql, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    raise ValueError(f"a parenthesis is never closed: {sql[start:]}")


def _opening(sql: str, end: int) -> int:
    """Return the index of the parenthesis that the one at ``end`` closes."""
    return next(n for n in range(end, -1, -1) if sql[n] == "(" and _closing(sql, n + 1) == end)


def _parsed(sql: str) -> str:
    """Replace ``text::json`` by ``json(text)``: as a part of other JSON it is a value, not a string."""
    while cast := _PARSED.search(sql):
        start = _opening(sql, cast.start()) if cast[1] == ")" else cast.start()
        sql = f"{sql[:start]}json({sql[start : cast.end(1)]}){sql[cast.end() :]}"
    return sql


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
