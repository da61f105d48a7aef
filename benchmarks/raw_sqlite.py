"""The bare loop that taskmill is compared with: the same rows through ``sqlite3`` and nothing else.

It uses the project's own migration, so tables and indexes are the same, and the project's own connection settings: WAL,
``synchronous=FULL``, the same page cache, a checkpoint at the same size of the log. It writes the same columns.
Everything goes in batches of 100, each in the faster of the forms tried: one statement of 100 rows for the insert
(``executemany`` was slower in most rounds, never faster by much), one guarded ``UPDATE … RETURNING`` for the claim, one
``INSERT … SELECT`` and one ``DELETE`` for the move to history. The move of one batch shares its transaction with the
claim of the next, as a dispatcher would do it. It keeps no tally, no tags, no tokens, checks no payload, and calls no
handler, unless :meth:`RawQueue.work_with_handlers` is used.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from itertools import chain
from pathlib import Path
from typing import Any

from taskmill.store.sqlite.connection import connect
from taskmill.store.sqlite.log import CHECKPOINT_BYTES
from taskmill.store.sqlite.migrate import migrate

BATCH = 100

_INSERTED = (
    "type, key, label, group_name, priority, urgency, status, payload, tags, overrides, created_at, queued_at, due_at,"
    " due_is_relative, expires_at"
)
_MOVED = (
    "id, type, key, label, group_name, priority, payload, tags, overrides, attempt, retries, created_at, due_at,"
    " expires_at, started_at, parent_id, saved, progress, last_error"
)
_ROW = "(" + ", ".join("?" * 15) + ")"
_IDS = "(" + ", ".join("?" * BATCH) + ")"

INSERT = f"INSERT INTO taskmill_task ({_INSERTED}) VALUES " + ", ".join([_ROW] * BATCH)
CLAIM = f"""
UPDATE taskmill_task SET status = 'running', attempt = attempt + 1, started_at = ?
WHERE status = 'pending' AND id IN (
    SELECT id FROM taskmill_task WHERE status = 'pending' AND stop IS NULL AND group_name = '' AND urgency = 128
    ORDER BY queued_at, id LIMIT {BATCH})
RETURNING id, payload
"""
MOVE = f"""
INSERT INTO taskmill_history ({_MOVED}, ending, ended_at, duration_ms, result, error)
SELECT {_MOVED}, 'completed', ?, 0, 'null', NULL FROM taskmill_task WHERE id IN {_IDS}
"""
DELETE = f"DELETE FROM taskmill_task WHERE id IN {_IDS}"


class RawQueue:
    """Inserts, claims and moves rows in batches of 100."""

    def __init__(self, path: Path) -> None:
        self.connection = connect(str(path))
        self.connection.execute("PRAGMA synchronous = FULL")
        migrate(self.connection, str(path))
        (page_size,) = self.connection.execute("PRAGMA page_size").fetchone()
        self.connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_BYTES // page_size}")

    def insert(self, tasks: int) -> None:
        """Store ``tasks`` rows, a multiple of 100."""
        for start in range(0, tasks, BATCH):
            now = _now_ms()
            rows = [
                (
                    "bench::noop",
                    None,
                    None,
                    "",
                    128,
                    128,
                    "pending",
                    f'{{"i":{i}}}',
                    None,
                    None,
                    now,
                    now,
                    None,
                    0,
                    None,
                )
                for i in range(start, start + BATCH)
            ]
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.execute(INSERT, list(chain.from_iterable(rows)))
            self.connection.execute("COMMIT")

    def work(self) -> int:
        """Claim and finish rows until none waits; return how many there were."""
        done = 0
        held: list[int] = []
        while rows := self._turn(held):
            held = [id for id, _payload in rows]
            done += len(held)
        return done

    async def work_with_handlers(self, handler: Callable[..., Coroutine[Any, Any, None]]) -> int:
        """Do the same, and call a handler with each payload, each in an asyncio task of its own."""
        done = 0
        held: list[int] = []
        while rows := self._turn(held):
            await asyncio.gather(*(asyncio.create_task(handler(**json.loads(payload))) for _id, payload in rows))
            held = [id for id, _payload in rows]
            done += len(held)
        return done

    def _turn(self, held: list[int]) -> list[tuple[int, str]]:
        """Finish the held rows and claim the next."""
        now = _now_ms()
        self.connection.execute("BEGIN IMMEDIATE")
        if held:
            self.connection.execute(MOVE, [now, *held])
            self.connection.execute(DELETE, held)
        rows = self.connection.execute(CLAIM, (now,)).fetchall()
        self.connection.execute("COMMIT")
        return rows

    def close(self) -> None:
        self.connection.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
