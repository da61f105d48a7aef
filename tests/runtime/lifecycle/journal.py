"""A journal of every change of a task's state, written by triggers in the store, one line per row and statement.

Rows that are compared before and after a step would show several transitions as one. Triggers show each by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from taskmill.model.lifecycle import Mark, Standing, State
from taskmill.model.status import Ending, Status
from taskmill.store.opening import is_postgres
from tests.both_engines import name_of
from tests.raw_rows import raw

FLAGS: dict[Mark, str] = {
    Mark.STOPPING: "stop IS NOT NULL",
    Mark.GATED: "gate_id IS NOT NULL",
    Mark.HELD: "held",
    Mark.FINALIZING: "finalizing",
    Mark.INTERRUPTED: "interrupted",
    Mark.PREEMPTED: "preempted > 0",
    Mark.FROZEN: "frozen",
    Mark.RUNS_AGAIN: "gave_key",
}


class Change(NamedTuple):
    """The effect of one statement on one task."""

    id: int
    before: State
    after: State
    used_retry: bool

    def __str__(self) -> str:
        return f"task {self.id}: {_shown(self.before)} -> {_shown(self.after)}" + " (a retry)" * self.used_retry


def _shown(state: State) -> str:
    return " + ".join([str(state.standing or "not stored"), *sorted(state.marks)])


class Journal:
    """The journal of one store. It is removed at the end, since other tests may use the schema."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        is_pg = is_postgres(name_of(path))
        with raw(path) as connection:
            for statement in (*_dropping(is_pg=is_pg), *_creating(is_pg=is_pg)):
                connection.execute(statement)

    def changes(self) -> list[Change]:
        """Return the changes since the last call, in the order in which they were made."""
        with raw(self._path) as connection:
            rows = connection.execute(
                "SELECT n, id, before, after, retry FROM journal WHERE n > ? ORDER BY n", (self._read,)
            ).fetchall()
        if rows:
            self._read = rows[-1][0]
        changes = [Change(id, _state(before), _state(after), bool(retry)) for _, id, before, after, retry in rows]
        return [change for change in changes if change.before.seen() != change.after.seen() or change.used_retry]

    def remove(self) -> None:
        with raw(self._path) as connection:
            for statement in _dropping(is_pg=is_postgres(name_of(self._path))):
                connection.execute(statement)


def _state(text: str | None) -> State:
    if text is None:
        return State(None)
    standing, *marks = text.split(",")
    known: Standing = Status(standing) if standing in {*Status} else Ending(standing)
    return State(known, frozenset(Mark(mark) for mark in marks if mark))


def _marks(row: str) -> str:
    """Return SQL for the state of the row ``NEW``, ``OLD`` or of a table, as a text: its status and its marks."""
    columns = ("gate_id", "gave_key", "held", "finalizing", "interrupted", "preempted", "frozen", "stop")
    parts = [f"{row}.status"]
    for mark, condition in FLAGS.items():
        named = next(column for column in columns if condition.startswith(column))
        parts.append(f"CASE WHEN {row}.{named}{condition.removeprefix(named)} THEN ',{mark}' ELSE '' END")
    return " || ".join(parts)


def _lines() -> dict[str, tuple[str, str]]:
    """Return the event and the SELECT of each trigger."""
    stored = "SELECT NEW.id, (SELECT h.ending FROM taskmill_history AS h WHERE h.id = NEW.id), {after}, 0"
    changed = "SELECT NEW.id, {before}, {after}, CASE WHEN NEW.retries > OLD.retries THEN 1 ELSE 0 END"
    ended = "SELECT OLD.id, {before}, (SELECT h.ending FROM taskmill_history AS h WHERE h.id = OLD.id), 0"
    words = {"before": _marks("OLD"), "after": _marks("NEW")}
    return {
        "stored": ("INSERT ON taskmill_task", stored.format(**words)),
        "changed": ("UPDATE ON taskmill_task", changed.format(**words)),
        "ended": ("DELETE ON taskmill_task", ended.format(**words)),
    }


def _creating(*, is_pg: bool) -> list[str]:
    number = "bigserial PRIMARY KEY" if is_pg else "INTEGER PRIMARY KEY"
    made = [f"CREATE TABLE journal (n {number}, id bigint, before text, after text, retry integer)"]
    for name, (event, select) in _lines().items():
        insert = f"INSERT INTO journal (id, before, after, retry) {select};"
        if is_pg:
            made.append(
                f"CREATE FUNCTION journal_{name}() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN {insert} RETURN NULL; END $$"
            )
            made.append(f"CREATE TRIGGER journal_{name} AFTER {event} FOR EACH ROW EXECUTE FUNCTION journal_{name}()")
        else:
            made.append(f"CREATE TRIGGER journal_{name} AFTER {event} BEGIN {insert} END")
    return made


def _dropping(*, is_pg: bool) -> list[str]:
    dropped: list[str] = []
    for name, (event, _) in _lines().items():
        if is_pg:
            dropped.append(f"DROP TRIGGER IF EXISTS journal_{name} ON {event.split()[-1]}")
            dropped.append(f"DROP FUNCTION IF EXISTS journal_{name}()")
        else:
            dropped.append(f"DROP TRIGGER IF EXISTS journal_{name}")
    return [*dropped, "DROP TABLE IF EXISTS journal"]
