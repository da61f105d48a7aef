"""Reading what ``explain`` needs: why a task waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import astuple

from taskmill.model.durations import Instant
from taskmill.model.explanation import Situation, Surroundings
from taskmill.model.io_budget import IoBudget
from taskmill.model.status import Ending, Status
from taskmill.model.task import Crossing, Described
from taskmill.policy.io_room import expected_io
from taskmill.policy.rules import Rules
from taskmill.store.sql import counting, machine
from taskmill.store.sql.ahead import Ahead, count_ahead
from taskmill.store.sql.connection import Connection, decode_ids, encoded, one
from taskmill.store.sql.last_ended import last_ended
from taskmill.store.sql.rows import View, describe
from taskmill.store.sql.statements import SQL

RECENT = 200
"""The number of endings from which the rate at which tasks end is estimated."""
_ENDINGS_OF_ATTEMPTS = tuple(end for end in Ending if end not in (Ending.EXPIRED, Ending.DEPENDENCY_FAILED))

_Recent = tuple[int, Instant | None, Instant | None]
_decode_situation = msgspec.json.Decoder(Situation, strict=False).decode
_decode_following = msgspec.json.Decoder(list[int | None]).decode


def situation(connection: Connection, id: int, rules: Rules, now: int) -> tuple[Situation, Surroundings] | None:
    with connection.snapshot():
        row = connection.execute(SQL["situation"], (id,)).fetchone()
        if row is None:
            return None
        found = _decode_situation(row[0])
        running, waiting = counting.running_in_groups(connection), Counter[tuple[str, str]]()
        if rules.is_shared:
            running, waiting = counting.load_of_groups(connection, View(rules, now))
        ahead = count_ahead(connection, found, rules, now) if found.status is Status.PENDING else Ahead(0, True)
        around = Surroundings(
            running=running,
            waiting=waiting,
            ahead=ahead.number,
            ahead_is_exact=ahead.is_exact,
            recent=_recent_endings(connection, found.group if rules.is_shared else None),
        )
        if found.io is not None:
            moved = machine.moved(connection)
            around.budget = expected_io(found.io, moved.get(found.type))
            by_node: dict[int | None, list[IoBudget]] = {}
            for type, io, node in machine.running_budgets(connection):
                if (budget := expected_io(io, moved.get(type))) is not None:
                    by_node.setdefault(node, []).append(budget)
            around.budgets_by_node = by_node
        return found, around


def _recent_endings(connection: Connection, group: str | None) -> _Recent:
    """Count the last endings of tasks that had run, at most ``RECENT``. Return count, first and last time."""
    where, parameters = ("true", []) if group is None else ("group_name = ?", [group])
    query, parameters = last_ended(f"duration_ms IS NOT NULL AND {where}", parameters, RECENT, _ENDINGS_OF_ATTEMPTS)
    spanned = f"SELECT count(*), min(ended_at), max(ended_at) FROM ({query}) AS recent"  # noqa: S608 - fixed fragments
    recent: _Recent = msgspec.convert(connection.execute(spanned, parameters).fetchone(), _Recent)
    return recent


def crossings(connection: Connection, wanted: Sequence[Crossing]) -> tuple[list[Described], list[int | None]]:
    given = encoded([(*astuple(crossing.lane), crossing.since, crossing.until) for crossing in wanted])
    ids = decode_ids(one(connection, SQL["crossed"], given))
    return describe(connection, ids), _decode_following(one(connection, SQL["following"], given))
