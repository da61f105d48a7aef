"""Counting active tasks by group, type and the status that their records show; priorities of the next tasks."""

from collections import Counter
from typing import NamedTuple

import msgspec

from taskmill.model.status import WAITING_TO_RUN, Ending, Status
from taskmill.policy.aging import effective_priority
from taskmill.policy.paused_time import paused_ms, pauses_of
from taskmill.policy.rules import Rules
from taskmill.store.sql import expired
from taskmill.store.sql.connection import Connection, one
from taskmill.store.sql.rows import View
from taskmill.store.sql.statements import SQL

_decode_pairs = msgspec.json.Decoder(list[tuple[str, str, int]]).decode
_decode_load = msgspec.json.Decoder(list[tuple[str, str, str, int]]).decode


class LaneHead(NamedTuple):
    """A lane with waiting tasks, and the times of its first one."""

    group: str
    urgency: int
    type: str
    renewed: bool
    queued_at: int
    renewed_at: int | None
    paused_at: int | None


_decode_lanes = msgspec.json.Decoder(list[LaneHead]).decode


def load_of_groups(connection: Connection, view: View) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Count running tasks, and tasks that may start, by group and type."""
    waiting = Counter[tuple[str, str]]()
    for group, type, n in _decode_pairs(one(connection, SQL["waiting"])):
        waiting[group, type] += n
    for group, type, status, n in _expired(connection, view):
        if status == Status.PENDING:
            waiting[group, type] -= n
    return running_in_groups(connection), +waiting


def running_in_groups(connection: Connection) -> Counter[tuple[str, str]]:
    """Count running tasks by group and type."""
    return Counter({(group, type): n for group, type, n in _decode_pairs(one(connection, SQL["running"]))})


def running(connection: Connection) -> Counter[tuple[str, str, str]]:
    """Count running tasks by group, type and status."""
    return Counter({(*pair, Status.RUNNING): n for pair, n in running_in_groups(connection).items()})


def shown(connection: Connection, view: View) -> Counter[tuple[str, str, str]]:
    """Count active tasks by group, type and the status that their records show; some have expired already."""
    rules = view.rules.at(view.now)
    counted = running(connection)
    for group, type, n in _decode_pairs(one(connection, SQL["prefetched"])):
        counted[group, type, _shown_status(rules, group, type, Status.PENDING)] += n
    for group, type, status, n in _decode_load(one(connection, SQL["load"])):
        counted[group, type, _shown_status(rules, group, type, status)] += n
    for group, type, status, n in _expired(connection, view):
        counted[group, type, _shown_status(rules, group, type, status)] -= n
        counted[group, type, Ending.EXPIRED] += n
    return counted


def unstarted_by_type(connection: Connection, view: View) -> Counter[str]:
    """Count the tasks that wait to run, by type."""
    counted = Counter[str]()
    for (_, type, status), n in shown(connection, view).items():
        if status in WAITING_TO_RUN:
            counted[type] += n
    return +counted


def _shown_status(rules: Rules, group: str, type: str, status: str) -> str:
    """Return the status to show: a pending task is paused with its scheduler, domain or group."""
    return Status.PAUSED if status == Status.PENDING and rules.pauses(group, type) else status


def _expired(connection: Connection, view: View) -> list[tuple[str, str, str, int]]:
    """Count the tasks that have expired and are not in history yet."""
    if not expired.any_expired(connection, view):
        return []
    text, moments = expired.at_present(connection.text(SQL["expired_load"]), view)
    return _decode_load(one(connection, text, *moments))


def lanes(connection: Connection) -> list[LaneHead]:
    """Return every lane that has waiting tasks."""
    return _decode_lanes(one(connection, SQL["lanes"]))


def next_priorities(connection: Connection, rules: Rules, now: int) -> dict[str, int]:
    """Return the effective priority of the task that each group would start next."""
    found: dict[str, int] = {}
    for group, urgency, type, _, queued_at, renewed_at, paused_at in lanes(connection):
        aged_from = queued_at if renewed_at is None else renewed_at
        paused = paused_ms(pauses_of(rules, group, type, paused_at), aged_from, now)
        effective = effective_priority(rules.declared.aging, urgency, now - aged_from - paused)
        found[group] = min(found.get(group, effective), effective)
    return found
