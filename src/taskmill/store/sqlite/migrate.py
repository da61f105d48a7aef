"""Schema migrations: numbered scripts, applied in one transaction under the write lock.

Several processes may start at once. The version is kept in the table ``taskmill_schema``, not in ``PRAGMA
user_version``, which belongs to the application when the queue shares its file.
"""

from __future__ import annotations

from pathlib import Path

from taskmill.errors import SchemaTooNew, StoreCorrupt
from taskmill.store.sql.statements import numbered_migrations
from taskmill.store.sqlite.connection import Connection, complete_statement

MIGRATIONS = numbered_migrations(Path(__file__).with_name("migrations"))
NEWEST_VERSION = MIGRATIONS[-1].number


def migrate(connection: Connection, path: str) -> int:
    """Upgrade the schema and return the version found before; the caller has no open transaction."""
    connection.execute("PRAGMA busy_timeout = 60000")
    connection.execute("BEGIN IMMEDIATE")
    try:
        before = _version(connection, path)
        if before > NEWEST_VERSION:
            raise SchemaTooNew(
                f"{path} has schema {before}, this taskmill knows up to {NEWEST_VERSION}; upgrade taskmill"
            )
        for number, name, sql in MIGRATIONS:
            if number > before:
                for statement in statements(sql):
                    connection.execute(statement)
                connection.execute("INSERT INTO taskmill_schema (version, name) VALUES (?, ?)", (number, name))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    else:
        connection.execute("COMMIT")
    finally:
        connection.execute("PRAGMA busy_timeout = 0")
    return before


def statements(sql: str) -> list[str]:
    """Split a script into statements at the ends that SQLite itself recognizes."""
    found: list[str] = []
    pending = ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if complete_statement(pending):
            found.append(pending)
            pending = ""
    return found


def _version(connection: Connection, path: str) -> int:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS taskmill_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT"
    )
    version = connection.execute("SELECT max(version) FROM taskmill_schema").fetchone()[0]
    if version is None:
        return 0
    if not isinstance(version, int):
        raise StoreCorrupt(f"{path}: the schema version is unreadable: {version!r}")
    return version
