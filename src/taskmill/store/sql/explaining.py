"""Reading what ``explain`` and ``snapshot`` need: why a task waits, and the load of the groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from taskmill.model.controls import ScopeKind
from taskmill.model.durations import Instant
from taskmill.model.explanation import Situation, Surroundings
from taskmill.model.io_budget import IoBudget
from taskmill.model.status import Ending
from taskmill.model.task import Crossing, Described
from taskmill.policy.aging import effective_priority, wait_until_ms
from taskmill.policy.io_room import expected_io
from taskmill.policy.paused_time import clocks, paused_ms, pauses_of
from taskmill.policy.rules import Rules
from taskmill.store.sql import expiring, machine
from taskmill.store.sql.connection import Connection, decode_ids, encoded, one
from taskmill.store.sql.history import last_ended
from taskmill.store.sql.rows import View, describe
from taskmill.store.sql.statements import SQL

RECENT = 200
"""The number of endings from which the rate of ending tasks is estimated."""
_ENDINGS_OF_ATTEMPTS = tuple(end for end in Ending if end not in (Ending.EXPIRED, Ending.DEPENDENCY_FAILED))

_Recent = tuple[int, Instant | None, Instant | None]
_decode_situation = msgspec.json.Decoder(Situation, strict=False).decode
_decode_load = msgspec.json.Decoder(list[tuple[str, str, int]]).decode
_decode_ahead = msgspec.json.Decoder(list[tuple[str, int, int, int]]).decode
_decode_urgencies = msgspec.json.Decoder(list[int]).decode
_decode_following = msgspec.json.Decoder(list[int | None]).decode
_decode_heads = msgspec.json.Decoder(list[tuple[str, str, int, int, int | None]]).decode


def situation(connection: Connection, id: int, rules: Rules, now: int) -> tuple[Situation, Surroundings] | None:
    with connection.snapshot():
        row = connection.execute(SQL["situation"], (id,)).fetchone()
        if row is None:
            return None
        found = _decode_situation(row[0])
        running, waiting = load_of_groups(connection, View(rules, now))
        group = found.group if rules.is_shared else None
        around = Surroundings(
            running=running,
            waiting=waiting,
            ahead=_ahead(connection, found, rules, now),
            recent=_recent_endings(connection, group),
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
    """Return the number of the last endings of tasks that had run, and the times of the first and last of them."""
    where, parameters = ("true", []) if group is None else ("group_name = ?", [group])
    query, parameters = last_ended(f"duration_ms IS NOT NULL AND {where}", parameters, RECENT, _ENDINGS_OF_ATTEMPTS)
    spanned = f"SELECT count(*), min(ended_at), max(ended_at) FROM ({query}) AS recent"  # noqa: S608 - fixed fragments
    recent: _Recent = msgspec.convert(connection.execute(spanned, parameters).fetchone(), _Recent)
    return recent


def load_of_groups(connection: Connection, view: View) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Count running tasks, and tasks that may start, by group and type."""
    running, waiting = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for counted, statement in ((running, "running"), (waiting, "waiting")):
        for group, type, n in _decode_load(one(connection, SQL[statement])):
            counted[group, type] += n
    if expiring.any_expired(connection, view):
        text, moments = expiring.at_present(connection.text(SQL["expired_waiting"]), view)
        waiting -= Counter({(group, type): n for group, type, n in _decode_load(one(connection, text, *moments))})
    return running, waiting


def _ahead(connection: Connection, situation: Situation, rules: Rules, now: int) -> int:
    """Return how many waiting tasks would start before this one now."""
    aging = rules.declared.aging
    effective = effective_priority(aging, situation.urgency, clocks(situation, rules, now).waited)
    group = situation.group if rules.is_shared else None
    lines: list[tuple[int, int, int]] = []
    for urgency in _decode_urgencies(one(connection, SQL["urgencies"], group)):
        more, equal = (_since(rules, urgency, level, now) for level in (effective - 1, effective))
        lines.append((urgency, more, equal))
    paused = (encoded(sorted(rules.paused(kind, now))) for kind in (ScopeKind.GROUP, ScopeKind.DOMAIN))
    found = _decode_ahead(
        one(connection, SQL["ahead"], group, situation.queued_at, situation.place_id, encoded(lines), *paused)
    )
    own = sum(before for name, _, before, _ in found if name == situation.group)
    # Equally urgent tasks of different groups start alternately.
    others = sum(min(equal, own) for name, _, _, equal in found if name != situation.group)
    return sum(more for _, more, _, _ in found) + own + others


def _since(rules: Rules, urgency: int, level: int, now: int) -> int:
    """Return when a task of this urgency must have begun to wait, at the latest, to be as urgent as ``level`` now."""
    if urgency <= level:
        return now
    aging = rules.declared.aging
    wait = None if aging is None else wait_until_ms(aging, urgency, level)
    return -1 if wait is None else now - wait


def next_priorities(connection: Connection, rules: Rules, now: int) -> dict[str, int]:
    """Return the effective priority of the task that each group would start next."""
    lanes = one(connection, SQL["lanes"])
    found: dict[str, int] = {}
    for group, type, urgency, aged_from, paused_at in _decode_heads(one(connection, SQL["heads"], lanes)):
        paused = paused_ms(pauses_of(rules, group, type, paused_at), aged_from, now)
        effective = effective_priority(rules.declared.aging, urgency, now - aged_from - paused)
        found[group] = min(found.get(group, effective), effective)
    return found


def crossings(connection: Connection, wanted: Sequence[Crossing]) -> tuple[list[Described], list[int | None]]:
    given = encoded([(*crossing.lane, crossing.since, crossing.until) for crossing in wanted])
    ids = decode_ids(one(connection, SQL["crossed"], given))
    return describe(connection, ids), _decode_following(one(connection, SQL["following"], given))
