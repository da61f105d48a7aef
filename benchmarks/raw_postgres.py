"""The bare loop that a scheduler on PostgreSQL is compared with: the same rows through ``psycopg`` and nothing else.

It uses the project's own migration, so tables and indexes are the same, and one connection. Everything goes in batches
of 100: one insert from arrays, one ``UPDATE … RETURNING`` behind ``FOR UPDATE SKIP LOCKED`` for the claim, one
``DELETE`` that feeds an ``INSERT`` for the move to history. The move of one batch shares its transaction with the claim
of the next. It keeps no tally, no tags, no tokens, checks no payload and calls no handler.
"""

from __future__ import annotations

import time

import psycopg

from taskmill.store.postgres.migrate import migrate

BATCH = 100

INSERT = """
INSERT INTO taskmill_task (id, type, group_name, priority, urgency, status, payload, created_at, queued_at)
SELECT nextval('taskmill_task_id'), 'bench::noop', '', 128, 128, 'pending', payload, %s, %s
FROM unnest(%s::text[]) AS payload
"""
CLAIM = f"""
UPDATE taskmill_task SET status = 'running', attempt = attempt + 1, started_at = %s
WHERE id IN (
    SELECT id FROM taskmill_task
    WHERE status = 'pending' AND stop IS NULL AND group_name = '' AND urgency = 128 AND type = 'bench::noop'
        AND (renewed_at IS NOT NULL) = false
    ORDER BY queued_at, id LIMIT {BATCH} FOR UPDATE SKIP LOCKED)
RETURNING id, payload
"""
_MOVED = (
    "id, type, key, label, group_name, priority, payload, tags, overrides, attempt, retries, created_at, due_at,"
    " expires_at, started_at, parent_id, saved, progress, last_error"
)
MOVE = f"""
WITH gone AS (DELETE FROM taskmill_task WHERE id = ANY (%s) RETURNING {_MOVED})
INSERT INTO taskmill_history ({_MOVED}, ending, ended_at, duration_ms, result)
SELECT {_MOVED}, 'completed', %s, 0, 'null' FROM gone
"""


class RawQueue:
    """Inserts, claims and moves rows in batches of 100."""

    def __init__(self, address: str) -> None:
        self.connection = psycopg.connect(address, autocommit=True)
        migrate(self.connection, address)

    def insert(self, tasks: int) -> None:
        """Store ``tasks`` rows, a multiple of 100."""
        for start in range(0, tasks, BATCH):
            now = _now_ms()
            payloads = [f'{{"i":{i}}}' for i in range(start, start + BATCH)]
            with self.connection.transaction():
                self.connection.execute(INSERT, (now, now, payloads))

    def work(self) -> int:
        """Claim and finish rows until none waits; return how many there were."""
        done = 0
        held: list[int] = []
        while True:
            now = _now_ms()
            with self.connection.transaction():
                if held:
                    self.connection.execute(MOVE, (held, now))
                rows = self.connection.execute(CLAIM, (now,)).fetchall()
            done += len(held)
            if not rows:
                return done
            held = [id for id, _payload in rows]

    def close(self) -> None:
        self.connection.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
