"""Schema migrations: numbered scripts, applied in one transaction under a lock, so that nodes may start together."""

from __future__ import annotations

from pathlib import Path

from psycopg import IsolationLevel

from taskmill.errors import SchemaTooNew, StoreError
from taskmill.store.postgres.connection import RawConnection
from taskmill.store.sql.statements import numbered_migrations

MIGRATIONS = numbered_migrations(Path(__file__).with_name("migrations"))
NEWEST_VERSION = MIGRATIONS[-1].number
_LOCK = 0x7461736B6D696C6C
"""The advisory lock held during a migration; it is ``taskmill`` in ASCII."""


def migrate(connection: RawConnection, name: str, *, create: bool = True) -> int:
    """Upgrade the schema and return the version found before; the caller has no open transaction.

    Without ``create``, raise ``StoreError`` if the schema is missing or old.
    """
    found = _version(connection)
    if found == NEWEST_VERSION:
        # Return before the lock: a role that may not create tables can still use an up-to-date schema.
        return found
    if not create:
        check_schema(connection, name)
    if connection.info.encoding not in ("utf-8", "UTF8", "utf8"):
        raise StoreError(f"{name}: the database must be in UTF-8, not in {connection.info.encoding}")
    # Set explicitly, because the database may have another default: after the lock, statements must see the migration
    # of another node.
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        return _upgrade(connection, name)


def check_schema(connection: RawConnection, name: str) -> None:
    """Raise ``StoreError`` unless the schema is the newest one."""
    found = _version(connection)
    if not found:
        raise StoreError(
            f"{name}: taskmill's tables are not in it; open it with a scheduler to create them, or put their"
            " schema on the search path"
        )
    if found > NEWEST_VERSION:
        raise SchemaTooNew(f"{name} has schema {found}, this taskmill knows up to {NEWEST_VERSION}; upgrade taskmill")
    if found < NEWEST_VERSION:
        raise StoreError(
            f"{name} has schema {found}, this taskmill has {NEWEST_VERSION}; "
            "open it with a scheduler whose user may create tables to upgrade it"
        )


def _upgrade(connection: RawConnection, name: str) -> int:
    found = _version(connection)
    if found > NEWEST_VERSION:
        raise SchemaTooNew(f"{name} has schema {found}, this taskmill knows up to {NEWEST_VERSION}; upgrade taskmill")
    if found == 0:
        connection.execute("CREATE TABLE taskmill_schema (version bigint PRIMARY KEY, name text NOT NULL)")
    for number, title, sql in MIGRATIONS:
        if number > found:
            connection.execute(sql.encode())
            connection.execute("INSERT INTO taskmill_schema (version, name) VALUES (%s, %s)", (number, title))
    return found


def _version(connection: RawConnection) -> int:
    # Not by `to_regclass`, which may answer from the session's cache inside a transaction.
    row = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_class WHERE relname = 'taskmill_schema' AND pg_table_is_visible(oid))"
    ).fetchone()
    if row is None or not row[0]:
        return 0
    row = connection.execute("SELECT coalesce(max(version), 0) FROM taskmill_schema").fetchone()
    version: int = row[0] if row is not None else 0
    return version
