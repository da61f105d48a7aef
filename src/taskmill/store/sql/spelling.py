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

Text for SQLite also loses what only PostgreSQL writes: casts (``::bigint``), ``$1`` for ``?1``, ``true`` for ``1``,
``greatest`` for ``max``, and the order of an aggregate, which older versions of SQLite do not know. Where SQLite must
return a list in a certain order, its statement sorts a subquery.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

Engine = Literal["sqlite", "postgres"]

_MACRO = re.compile(r"\b(json_row|json_list|json_map|IN ids|rows)\(")
_PARSED = re.compile(r"([\w.]+)::json\b(?! ->)")
_CAST = re.compile(r"::[a-z]\w*")
_PARAMETER = re.compile(r"\$(?=\d)")
_WORD = re.compile(r"(?<!')\b(true|false|greatest|least)\b(?!')")
_SQLITE_WORDS = {"true": "1", "false": "0", "greatest": "max", "least": "min"}


def spelled(engine: Engine, sql: str) -> str:
    """Return the text of a statement in the dialect of an engine."""
    if engine == "postgres":
        return _expanded(sql, _POSTGRES)
    sql = _PARSED.sub(r"json(\1)", _expanded(sql, _SQLITE))
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
    for parenthesis in re.compile("[()]").finditer(sql, start):
        depth += 1 if parenthesis[0] == "(" else -1
        if depth == 0:
            return parenthesis.start()
    raise ValueError(f"a parenthesis is never closed: {sql[start:]}")


def _unsorted(aggregated: str) -> str:
    """Remove the ORDER BY of an aggregate, but not that of a subquery inside it."""
    before, order, after = aggregated.rpartition(" ORDER BY ")
    return before if order and after.count("(") == after.count(")") else aggregated


def _columns(arguments: str) -> tuple[str, list[tuple[str, str]]]:
    parameter, *columns = re.split(r",\s+", arguments.strip())
    return parameter, [(name, kind) for name, kind in (column.split() for column in columns)]


def _sqlite_rows(arguments: str) -> str:
    parameter, columns = _columns(arguments)
    fields = ", ".join(f"value ->> {n} AS {name}" for n, (name, _) in enumerate(columns))
    return f"(SELECT {fields} FROM json_each({parameter}))"  # noqa: S608 - names in our own files


def _postgres_rows(arguments: str) -> str:
    parameter, columns = _columns(arguments)
    fields = ", ".join(
        f"value ->> {n} AS {name}" if kind == "text" else f"(value ->> {n})::{kind} AS {name}"
        for n, (name, kind) in enumerate(columns)
    )
    return f"(SELECT {fields} FROM jsonb_array_elements({parameter}::jsonb) AS row (value))"  # noqa: S608


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
