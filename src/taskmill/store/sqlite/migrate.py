"""Schema migrations: numbered scripts, applied in one transaction under the write lock.

Before a file with tasks is upgraded, it is copied to a new file beside it (:mod:`taskmill.store.sqlite.backup`), under
the write lock, so that nothing is written between the copy and the upgrade. A killed upgrade leaves the old file, with
or without its copy, or the upgraded file with its copy.

Several processes may start at once. The version is kept in the table ``taskmill_schema``, not in ``PRAGMA
user_version``, which belongs to the application when the queue shares its file.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

from taskmill.errors import InvalidState, SchemaTooNew, StoreCorrupt, StoreError
from taskmill.store.sql.statements import numbered_migrations
from taskmill.store.sqlite.connection import (
    BESIDE,
    MEMORY,
    Connection,
    complete_statement,
    connect,
    connect_plainly,
    create_file,
)

MIGRATIONS = numbered_migrations(Path(__file__).with_name("migrations"))
NEWEST_VERSION = MIGRATIONS[-1].number
_JOURNAL_MODE = 18
"""Where the header of a database says whether it has a write-ahead log, for writing and for reading."""
_WRITE_AHEAD = bytes((2, 2))


def migrate(connection: Connection, path: str) -> int:
    """Upgrade the schema and return the version found before; the caller has no open transaction."""
    connection.execute("PRAGMA busy_timeout = 60000")
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS taskmill_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT"
        )
        before = stored_version(connection, path)
        if before > NEWEST_VERSION:
            raise SchemaTooNew(
                f"{path} has schema {before}, this taskmill knows up to {NEWEST_VERSION}; upgrade taskmill"
            )
        if path != MEMORY and 0 < before < NEWEST_VERSION and _has_content(connection):
            _keep_copy(path, before)
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


def create_in_memory(connection: Connection) -> None:
    """Create the tables in an empty database in memory, as a copy: programs and tests open many, one after the other.

    The copy takes a twentieth of the time of the migrations.
    """
    image = _empty_image()
    if image is None:
        migrate(connection, MEMORY)
        return
    # Not deserialized into the connection itself: SQLite limits the size of such a database.
    with contextlib.closing(connect_plainly(MEMORY)) as source:
        source.deserialize(image)
        source.backup(connection)


def create_database(path: str) -> None:
    """Create the file if there is none, with all tables where the system allows it, else empty.

    A complete file gets its name in one step, so a killed process leaves all of it or nothing, and of several processes
    that create it one succeeds. Whatever prevents that, an empty file follows, to be migrated like any other.
    """
    if not _create_complete(path):
        create_file(path)


def _create_complete(path: str) -> bool:
    """Write all tables to a file without a name, sync it and give it the name; return False if that is impossible."""
    # SQLite would apply a log or journal that a deleted database has left to the new one, unless that is empty.
    if not hasattr(os, "O_TMPFILE") or any(os.path.lexists(path + ending) for ending in ("", *BESIDE)):
        return False
    image = _empty_image()
    if image is None:
        return False
    try:
        descriptor = os.open(os.path.dirname(path) or ".", os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            left = memoryview(image[:_JOURNAL_MODE] + _WRITE_AHEAD + image[_JOURNAL_MODE + len(_WRITE_AHEAD) :])
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
            # A descriptor of a folder lets Python follow the link; it is not used, because the path is absolute.
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        # No such files in this file system, no /proc, a full disk, or another process was first.
        return False
    return True


@functools.cache
def _empty_image() -> bytes | None:
    """Return the bytes of a database without tasks; ``None`` if this build of SQLite does not provide them."""
    with contextlib.closing(connect(MEMORY)) as connection:
        if not hasattr(connection, "deserialize"):
            return None
        migrate(connection, MEMORY)
        return connection.serialize()


def _keep_copy(path: str, before: int) -> None:
    """Copy a file beside itself; a copy that an earlier attempt to upgrade has left is replaced."""
    # Imported here, because only an upgrade needs them.
    import glob

    from taskmill.core.logs import logger
    from taskmill.store.sqlite.backup import back_up

    name = f"{path}.before-schema-{NEWEST_VERSION}.bak"
    copy = Path(name)
    for left in copy.absolute().parent.glob(f"{glob.escape(copy.name)}.partial-*"):
        # Only one process at a time holds the write lock, so its process is gone.
        left.unlink(missing_ok=True)
    try:
        kept = back_up(path, name, overwrite=True)
    except (InvalidState, StoreError) as wrong:
        raise type(wrong)(
            f"{path} must be upgraded from schema {before} to {NEWEST_VERSION}, and first copied to {name}: {wrong}"
        ) from wrong
    logger.warning(
        "%s is upgraded from schema %d to %d; a copy of it as it was is in %s (%d bytes)",
        path,
        before,
        NEWEST_VERSION,
        name,
        kept.bytes,
    )


def _has_content(connection: Connection) -> bool:
    found = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM taskmill_task) OR EXISTS (SELECT 1 FROM taskmill_history)"
        " OR EXISTS (SELECT 1 FROM taskmill_cron)"
    )
    return bool(found.fetchone()[0])


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


def stored_version(connection: Connection, path: str) -> int:
    """Return the version of the schema in a file that has the table of versions; 0 if the table is empty."""
    version = connection.execute("SELECT max(version) FROM taskmill_schema").fetchone()[0]
    if version is None:
        return 0
    if not isinstance(version, int):
        raise StoreCorrupt(f"{path}: the schema version is unreadable: {version!r}")
    return version
