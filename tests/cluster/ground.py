"""The store of the mixed workload, read without taskmill: its rows, and a log of claims that triggers write.

The log has the start and the end of each claim, in the order of their transactions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

Row = dict[str, Any]

SERVER_LOG = """
CREATE TABLE seen (
    n bigserial PRIMARY KEY, what text, id bigint, attempt integer, type text, group_name text, node bigint,
    now bigint, is_hook boolean
);
CREATE FUNCTION note_seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = 'running' AND (TG_OP = 'DELETE' OR NEW.status <> 'running' OR NEW.attempt <> OLD.attempt) THEN
        INSERT INTO seen (what, id, attempt, type, group_name, node, now, is_hook)
        VALUES ('end', OLD.id, OLD.attempt, OLD.type, OLD.group_name, OLD.node_id, OLD.started_at,
            OLD.stop IS NOT NULL);
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.status = 'running' AND NEW.attempt <> OLD.attempt THEN
        INSERT INTO seen (what, id, attempt, type, group_name, node, now, is_hook)
        VALUES ('claim', NEW.id, NEW.attempt, NEW.type, NEW.group_name, NEW.node_id, NEW.started_at,
            NEW.stop IS NOT NULL);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note_seen AFTER UPDATE OR DELETE ON taskmill_task FOR EACH ROW EXECUTE FUNCTION note_seen();
CREATE FUNCTION note_bucket() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen (what, type, group_name, node)
    SELECT 'bucket', CASE WHEN TG_OP = 'DELETE' THEN 'forgotten' ELSE NEW.bucket END, OLD_NAME.name,
        nullif(current_setting('taskmill.node', true), '')::bigint
    FROM (SELECT CASE WHEN TG_OP = 'DELETE' THEN OLD.name ELSE NEW.name END AS name) AS OLD_NAME;
    RETURN NULL;
END $$;
CREATE TRIGGER note_bucket AFTER INSERT OR UPDATE OR DELETE ON taskmill_control
    FOR EACH ROW EXECUTE FUNCTION note_bucket();
"""

_ENDED = """
BEGIN
    INSERT INTO seen (what, id, attempt, type, group_name, now, is_hook)
    VALUES ('end', OLD.id, OLD.attempt, OLD.type, OLD.group_name, OLD.started_at, OLD.stop IS NOT NULL);
END;
"""
FILE_LOG = f"""
CREATE TABLE seen (
    n INTEGER PRIMARY KEY, what TEXT, id INTEGER, attempt INTEGER, type TEXT, group_name TEXT, now INTEGER,
    is_hook INTEGER
);
CREATE TRIGGER seen_leaves AFTER DELETE ON taskmill_task WHEN OLD.status = 'running' {_ENDED}
CREATE TRIGGER seen_ends AFTER UPDATE ON taskmill_task
WHEN OLD.status = 'running' AND (NEW.status <> 'running' OR NEW.attempt <> OLD.attempt) {_ENDED}
CREATE TRIGGER seen_claimed AFTER UPDATE ON taskmill_task
WHEN NEW.status = 'running' AND NEW.attempt <> OLD.attempt
BEGIN
    INSERT INTO seen (what, id, attempt, type, group_name, now, is_hook)
    VALUES ('claim', NEW.id, NEW.attempt, NEW.type, NEW.group_name, NEW.started_at, NEW.stop IS NOT NULL);
END;
"""


def is_server(address: str) -> bool:
    """True if the store is on a server and not a file."""
    return address.startswith("postgresql:")


def keep_log(address: str) -> None:
    """Create the triggers that log the start and the end of each claim."""
    if is_server(address):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(SERVER_LOG.encode())
    else:
        with closing(sqlite3.connect(address, timeout=60)) as file:
            file.executescript(FILE_LOG)


def rows(address: str, tables: Mapping[str, str]) -> dict[str, list[Row]]:
    """Return all rows of these tables, by the names given to them; a table that a file does not have is empty."""
    found: dict[str, list[Row]] = {}
    if is_server(address):
        with psycopg.connect(address, row_factory=dict_row) as connection:
            for name, table in tables.items():
                found[name] = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
        return found
    with closing(sqlite3.connect(f"{Path(address).as_uri()}?mode=ro", uri=True, timeout=60)) as file:
        file.row_factory = sqlite3.Row
        known = {name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        for name, table in tables.items():
            exists = table.partition(" ")[0] in known
            found[name] = [dict(row) for row in file.execute(f"SELECT * FROM {table}")] if exists else []
    return found


def left(address: str) -> int:
    """Count the tasks that have not ended, without firings of cron tasks, which never stop."""
    query = "SELECT count(*) FROM taskmill_task WHERE cron IS NULL"
    if is_server(address):
        with psycopg.connect(address) as connection:
            row = connection.execute(query.encode()).fetchone()
    else:
        with closing(sqlite3.connect(f"{Path(address).as_uri()}?mode=ro", uri=True, timeout=60)) as file:
            row = file.execute(query).fetchone()
    assert row is not None
    return int(row[0])
