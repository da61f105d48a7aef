"""Keeping the numbers of active tasks by group, type and status.

They are in the table ``taskmill_load``, and they change in the transaction that changes the tasks, so that no answer
counts the queue (docs/decisions/0032). Inserts, claims and endings are counted once per batch; on PostgreSQL the
statements that insert and claim tasks count them too, to save a round trip. A trigger counts everything else. Answers
show these numbers (:mod:`taskmill.store.sql.counting`). Which task starts next never depends on them.

A file has one row for each number. On PostgreSQL nodes would wait for each other's rows, so every change appends rows,
a number is their sum, and :mod:`taskmill.store.postgres.load_upkeep` merges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter

from taskmill.model.status import PENDING
from taskmill.model.task import Claimed, NewTask
from taskmill.store.sql.connection import Connection, encoded
from taskmill.store.sql.statements import SQL

_counted_as = attrgetter("group", "type", "status._value_")
_group_and_type = attrgetter("group", "type")


def count_new(connection: Connection, tasks: Iterable[NewTask]) -> None:
    """Add new tasks."""
    # The value of the status, because the hash of an enum's member takes as long as all the rest.
    _add(connection, Counter(map(_counted_as, tasks)))


def count_claimed(connection: Connection, tasks: Iterable[Claimed]) -> None:
    """Subtract tasks that were pending and now run."""
    counted = Counter(map(_group_and_type, tasks))
    _add(connection, {(group, type, PENDING): -n for (group, type), n in counted.items()})


def count_revived(connection: Connection, group: str, type: str) -> None:
    """Add a dead letter that was brought back."""
    connection.execute(SQL["add_revived_to_load"], (group, type))


def count_ended(connection: Connection, ids: str) -> None:
    """Subtract tasks that end, before they are deleted."""
    connection.execute(SQL["take_from_load"], (ids,))


def _add(connection: Connection, changes: Mapping[tuple[str, str, str], int]) -> None:
    connection.execute(SQL["add_to_load"], (encoded([(*key, n) for key, n in changes.items()]),))


def recount(connection: Connection) -> None:
    """Count all tasks again, because some changes could not be counted; the caller is the only writer."""
    connection.execute(SQL["forget_load"])
    connection.execute(SQL["count_load"])
