"""The health of a server and of taskmill's tables on it, for ``taskmill doctor``, read from the server's catalogs."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from taskmill.store.postgres import lease
from taskmill.store.sql.connection import Connection

STUCK = 10
"""Seconds of waiting for the write lock after which a session counts as blocked."""

_SERVER = """
SELECT json_build_object(
    'server_version', current_setting('server_version'),
    'encoding', getdatabaseencoding(),
    'schema', (SELECT max(version) FROM taskmill_schema),
    'connections', (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    'max_connections', current_setting('max_connections')::int,
    'sees_all_sessions', pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')
)"""

_TABLES = """
SELECT coalesce(json_agg(json_build_object(
    'name', c.relname,
    'bytes', pg_table_size(c.oid),
    'index_bytes', pg_indexes_size(c.oid),
    'live', coalesce(s.n_live_tup, 0),
    'dead', coalesce(s.n_dead_tup, 0),
    'last_vacuum', to_char(greatest(s.last_vacuum, s.last_autovacuum) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
    ) ORDER BY c.relname), '[]')
FROM pg_class AS c LEFT JOIN pg_stat_all_tables AS s ON s.relid = c.oid
WHERE c.relkind = 'r' AND starts_with(c.relname, 'taskmill_')
    AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'taskmill_task'::regclass)"""

_INDEXES = """
SELECT coalesce(json_agg(json_build_object(
    'name', c.relname,
    'table', t.relname,
    'bytes', pg_relation_size(c.oid),
    'is_valid', i.indisvalid AND i.indisready,
    'scans', coalesce(s.idx_scan, 0)
    ) ORDER BY c.relname), '[]')
FROM pg_index AS i
JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_class AS t ON t.oid = i.indrelid
LEFT JOIN pg_stat_all_indexes AS s ON s.indexrelid = i.indexrelid
WHERE starts_with(t.relname, 'taskmill_')
    AND t.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'taskmill_task'::regclass)"""

# The oldest transaction in this database: vacuum keeps every row version that it may still see.
_OLDEST_TRANSACTION = """
SELECT json_build_object(
    'seconds', extract(epoch FROM clock_timestamp() - xact_start)::float8,
    'pid', pid, 'application', application_name, 'user', usename, 'state', state)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL OR state LIKE 'idle in transaction%')
    AND backend_type = 'client backend'
ORDER BY xact_start LIMIT 1"""

_BLOCKED = """
SELECT json_build_object(
    'waiting', count(DISTINCT waiting.pid),
    'behind', coalesce(array_to_json(array_agg(DISTINCT behind.pid)), '[]'))
FROM pg_locks AS waiting
JOIN pg_stat_activity AS who ON who.pid = waiting.pid
CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS behind (pid)
WHERE waiting.relation = 'taskmill_writing'::regclass AND NOT waiting.granted
    AND who.query_start < clock_timestamp() - make_interval(secs => ?::float8)"""

_PREPARED = """
SELECT coalesce(json_agg(json_build_object(
    'gid', gid, 'seconds', extract(epoch FROM clock_timestamp() - prepared)::float8) ORDER BY prepared), '[]')
FROM pg_prepared_xacts WHERE database = current_database()"""

_SLOTS = """
SELECT coalesce(json_agg(json_build_object(
    'name', slot_name, 'active', active,
    'bytes', CASE WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END
    ) ORDER BY slot_name), '[]')
FROM pg_replication_slots"""


def examine(connection: Connection) -> dict[str, Any]:
    """Return all findings by name; what this role may not see is missing in them."""

    def read(statement: str, *parameters: Any) -> Any:
        row = connection.execute(statement, parameters).fetchone()
        return None if row is None else msgspec.json.decode(row[0])

    tables = read(_TABLES)
    return {
        **read(_SERVER),
        "bytes": sum(table["bytes"] + table["index_bytes"] for table in tables),
        "tables": tables,
        "indexes": read(_INDEXES),
        "oldest_transaction": read(_OLDEST_TRANSACTION),
        "blocked": read(_BLOCKED, float(STUCK)),
        "prepared_transactions": read(_PREPARED),
        "replication_slots": read(_SLOTS),
        "clock_ahead": _clock_ahead(connection),
        "nodes": read("health_of_nodes", lease.LEASE),
    }


def _clock_ahead(connection: Connection) -> float:
    """Return by how many seconds the server's clock is ahead, from the fastest of three round trips."""
    looks: list[tuple[float, float]] = []
    for _ in range(3):
        asked = time.time()
        (theirs,) = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        answered = time.time()
        looks.append((answered - asked, theirs - (asked + answered) / 2))
    return min(looks)[1]
