"""Deleting old tasks from history, in small batches."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import msgspec

from taskmill.model.settings import PruneRule
from taskmill.model.status import Ending
from taskmill.store.sql import dependencies
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.json_sql import decode_ids, decode_pairs, encoded, one
from taskmill.store.sql.statements import SQL

_decode_counts = msgspec.json.Decoder(dict[str, int]).decode


def prune(connection: Connection, rules: Sequence[PruneRule], now: int, limit: int) -> int:
    """Delete at most ``limit`` rows of history that exceed the retention rules; return how many."""
    kept = _decode_counts(one(connection, SQL["kept_by_ending"]))
    left = limit
    for rule in rules:
        ids: set[int] = set()
        surplus = 0 if rule.max_count is None else sum(kept.get(ending, 0) for ending in rule.endings) - rule.max_count
        if surplus > 0:
            # Query only endings that occur; most never do.
            endings = [ending for ending in rule.endings if kept.get(ending)]
            ids.update(_oldest(connection, endings, min(surplus, left)))
        if rule.max_age_ms is not None:
            before = now - rule.max_age_ms
            for ending in rule.endings:
                ids.update(decode_ids(one(connection, SQL["older_of_ending"], ending, left, before)))
        if ids:
            given = encoded(sorted(ids)[:left])
            connection.execute(SQL["uncount"], (given,))
            connection.execute(SQL["delete_history_tags"], (given,))
            dependencies.forget(connection, given)
            left -= connection.execute(SQL["delete_history"], (given,)).rowcount
        if left <= 0:
            break
    return limit - left


def oldest_ended(connection: Connection, endings: Sequence[Ending]) -> int | None:
    """Return when the oldest task in history with one of these endings ended, or None."""
    found = [one(connection, SQL["first_of_ending"], ending) for ending in endings]
    return min((ended_at for ended_at in found if ended_at is not None), default=None)


def _oldest(connection: Connection, endings: Sequence[Ending], count: int) -> list[int]:
    """Return the oldest ``count`` tasks of several endings taken together."""
    candidates: list[tuple[int, int]] = []
    for ending in endings:
        candidates += decode_pairs(one(connection, SQL["oldest_of_ending"], ending, count))
    return [id for _, id in nsmallest(count, candidates)]
