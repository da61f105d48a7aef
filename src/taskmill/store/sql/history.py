"""History: reviving dead letters, and deleting old tasks in small batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from heapq import nsmallest

import msgspec

from taskmill.errors import DuplicateTask
from taskmill.model.commit import Commit
from taskmill.model.settings import PruneRule
from taskmill.model.status import Ending
from taskmill.model.task import Described
from taskmill.store.sql import cron, load
from taskmill.store.sql.connection import ANSWER, Connection, Statement, decode_ids, decode_pairs, one
from taskmill.store.sql.releasing import release
from taskmill.store.sql.rows import describe, key_holder, key_stopper
from taskmill.store.sql.statements import SQL

_ALWAYS = 2**62
"""Later than every instant."""
_FORGETTING = ("uncount", "delete_history_tags", "delete_errors", "forget_edges", "delete_history")
"""Delete tasks from history, with everything that belongs to them."""

_decode_counts = msgspec.json.Decoder(dict[str, int]).decode


def revive(connection: Connection, id: int, now: int) -> Described | None:
    """Bring a dead letter back to the queue under its own id; return None if there is no such dead letter.

    The caller has to read the queue again, because siblings of the task may enter it as well.
    """
    row = connection.execute(SQL["dead_letter"], (id,)).fetchone()
    if row is None:
        return None
    type, group, duration_ms, key, cron_name = row
    holder = key_holder(connection, type, key)
    if holder is not None:
        # Without the key: a page that redacts records shows this message.
        raise DuplicateTask(f"{type}: task {holder} holds the key of task {id} now", existing_id=holder)
    cron.rejoin(connection, id, cron_name, now)
    # A task that was asked to stop has freed its key, but must end before another task with that key starts.
    connection.execute(SQL["revive"], (id, now, key_stopper(connection, type, key), cron_name))
    load.count_revived(connection, group, type)
    for statement in ("recount_child", "return_tags", "forget_ending_tags", "forget_ending"):
        connection.execute(SQL[statement], (id,))
    connection.execute(SQL["untally"], (type, group, "dead_letter", duration_ms))
    release(connection, [id], now, Commit())
    return describe(connection, [id])[0]


def revive_all(connection: Connection, ids: Sequence[int], now: int) -> list[Described]:
    """Bring dead letters back, without those whose key another task holds, and skip what is no dead letter."""
    revived: list[Described] = []
    for id in ids:
        # The key is checked before anything is written.
        with suppress(DuplicateTask):
            if (task := revive(connection, id, now)) is not None:
                revived.append(task)
    return revived


def prune(connection: Connection, rules: Sequence[PruneRule], now: int, limit: int) -> int:
    """Delete at most ``limit`` rows of history that exceed the retention rules; return how many."""
    kept = _decode_counts(one(connection, SQL["kept_by_ending"]))
    left = limit
    for rule in rules:
        # Query only endings that occur; most never do.
        endings = [ending for ending in rule.endings if kept.get(ending)]
        surplus = 0 if rule.max_count is None else max(sum(kept[ending] for ending in endings) - rule.max_count, 0)
        if surplus:
            for ending, count in _oldest(connection, endings, min(surplus, left)).items():
                left -= _delete_oldest(connection, ending, count, _ALWAYS)
        if rule.max_age_ms is not None:
            for ending in rule.endings:
                left -= _delete_oldest(connection, ending, left, now - rule.max_age_ms)
    return limit - left


def _delete_oldest(connection: Connection, ending: Ending, most: int, before: int) -> int:
    """Delete the oldest tasks of one ending that ended before an instant; return how many."""
    if most <= 0:
        return 0
    find = Statement(SQL["older_of_ending"], (ending, most, before))
    deleted = connection.execute_together([find, *(Statement(SQL[statement], (ANSWER,)) for statement in _FORGETTING)])
    return len(decode_ids(deleted or "[]"))


def oldest_ended(connection: Connection, endings: Sequence[Ending]) -> int | None:
    """Return when the oldest task in history with one of these endings ended, or None."""
    found = [one(connection, SQL["first_of_ending"], ending) for ending in endings]
    return min((ended_at for ended_at in found if ended_at is not None), default=None)


def _oldest(connection: Connection, endings: Sequence[Ending], count: int) -> Mapping[Ending, int]:
    """Return how many of the oldest ``count`` tasks of several endings have which ending."""
    if len(endings) == 1:
        return {endings[0]: count}
    ended = [
        (at, id, ending)
        for ending in endings
        for at, id in decode_pairs(one(connection, SQL["oldest_of_ending"], ending, count))
    ]
    return Counter(ending for _, _, ending in nsmallest(count, ended))
