"""Several statements of SQLite in one call, as the body of a temporary trigger.

Each call into SQLite gives up Python's global lock. The calling thread gets it back only when the event loop gives it
up, which may take 5 ms while handlers run. So a transaction of ten calls in a thread can take 50 ms longer than its
work. The statements of a trigger need the lock once, after the last of them: the loop runs handlers while SQLite works
(docs/decisions/0043).

A combination is a view whose columns are the parameters, and an ``INSTEAD OF INSERT`` trigger on it. The value of a
SELECT goes to a table with one row. All of this is in the temporary schema of the connection and never in the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from taskmill.store.sql.connection import ANSWER, Statement
from taskmill.store.sqlite.connection import DataRefused

if TYPE_CHECKING:
    from taskmill.store.sqlite.connection import Connection

_NUMBERED = re.compile(r"\?(\d+)")
LARGE = 2**20
"""The length from which an answer is not kept in memory until the next one."""
_OTHER_ROWS = "other rows than expected"
_ANSWER = "SELECT value FROM taskmill_answer"


class CombinedStatements:
    """The combinations of one connection. Each is created when it is first used."""

    def __init__(self, connection: Connection, text: Callable[[str], str]) -> None:
        self._run = connection.execute
        self._text = text
        self._inserts: dict[tuple[str, ...], str] = {}
        """By the shapes of the statements: the statement that runs them."""

    def execute(self, statements: Sequence[Statement]) -> str | None:
        """Run statements; return the value of the last SELECT among them, or None if all were undone."""
        shape = tuple(map(_shape, statements))
        insert = self._inserts.get(shape)
        if insert is None:
            insert = self._inserts[shape] = self._create(shape, statements)
        values = (value for statement in statements for value in (*statement.parameters, statement.rows))
        try:
            self._run(insert, [None if value is ANSWER else value for value in values])
        except DataRefused as refused:
            if str(refused) != _OTHER_ROWS:
                raise
            return None
        value: str = self._run(_ANSWER).fetchone()[0]
        if len(value) > LARGE:
            self._run("UPDATE taskmill_answer SET value = ''")
        return value

    def forget(self) -> None:
        """Create combinations again, because a rollback may have removed them."""
        self._inserts.clear()

    def _create(self, shape: Sequence[str], statements: Sequence[Statement]) -> str:
        self._run("CREATE TEMP TABLE IF NOT EXISTS taskmill_answer AS SELECT '' AS value")
        columns: list[str] = []
        body: list[str] = []
        for number, statement in enumerate(statements):
            columns += [f"given{number}_{place}" for place in range(len(statement.parameters))] + [f"rows{number}"]
            body += self._part(number, statement)
        view = "taskmill_combined_" + "_then_".join(shape)
        self._run(f"DROP VIEW IF EXISTS {view}")
        self._run(f"CREATE TEMP VIEW {view} AS SELECT " + ", ".join(f"NULL AS {column}" for column in columns))
        self._run(f"CREATE TEMP TRIGGER {view}_run INSTEAD OF INSERT ON {view} BEGIN {'; '.join(body)}; END")
        return f"INSERT INTO {view} VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - our own names

    def _part(self, number: int, statement: Statement) -> list[str]:
        """Return the body of the trigger for one statement."""
        sources = [
            f"({_ANSWER})" if value is ANSWER else f"NEW.given{number}_{place}"
            for place, value in enumerate(statement.parameters)
        ]

        def source(found: re.Match[str]) -> str:
            return sources[int(found[1]) - 1]

        sql = _NUMBERED.sub(source, self._text(statement.name))
        if not sql.startswith("SELECT"):
            part, rows = [sql], "changes()"
        elif statement.rows is None:
            return [f"UPDATE taskmill_answer SET value = ({sql})"]  # noqa: S608
        else:
            part, rows = [], f"(SELECT count(*) FROM ({sql}))"  # noqa: S608
        if statement.rows is None:
            return part
        return [*part, f"SELECT RAISE(ABORT, '{_OTHER_ROWS}') WHERE {rows} <> NEW.rows{number}"]


def _shape(statement: Statement) -> str:
    """Return what the body of a trigger depends on, as a part of its name."""
    parameters = "".join("a" if value is ANSWER else "p" for value in statement.parameters)
    return f"{statement.name}_{parameters}{'' if statement.rows is None else '_rows'}"
