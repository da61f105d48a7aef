"""Connections to a database file: one SQLite library per process, safe settings, errors that say what to do.

Two SQLite libraries in one process break each other's POSIX locks on the same file. So the library is chosen once,
here: ``pysqlite3`` when the extra ``sqlite`` is installed, else the standard library's ``sqlite3``.

The operating system lets a process write to a file that no longer has a name. Such data is lost when the last process
closes the file, and a process that opens the path in the meantime sees another file. :class:`Identity` detects that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from taskmill.errors import StoreBusy, StoreCorrupt, StoreError, StoreLost
from taskmill.store.moving.marks import SEALED, told_by_seal

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import pysqlite3 as sqlite3
    except ImportError:
        import sqlite3

Connection = sqlite3.Connection
DatabaseError = sqlite3.Error
DataRefused = sqlite3.IntegrityError
Durability = Literal["full", "process"]
MEMORY = ":memory:"
BESIDE = ("-wal", "-shm", "-journal")
"""The names of SQLite's own files beside a database, after its name."""
SWITCH_PATIENCE = 10.0
LOG_BYTES_KEPT = 7 * 1024 * 1024
"""Size to which the log file is truncated when it starts over.

A sync takes 155 µs while commits overwrite the file and 250 µs while they make it grow. The size has to be below
``CHECKPOINT_BYTES``, because the size of the file shows when a checkpoint is due.
"""
OLDEST_SQLITE = (3, 38, 0)

# The first version without the rare corruption race between a checkpoint and another connection's commit.
MENDED_SQLITE = (3, 51, 3)


_CANNOT_GROW = ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE")
"""SQLite's error names for an exhausted quota, a file size limit, and a full disk on which its -shm file must grow."""

complete_statement = sqlite3.complete_statement


def sqlite_module() -> str:
    return sqlite3.__name__.partition(".")[0]


def sqlite_version() -> tuple[int, ...]:
    return tuple(sqlite3.sqlite_version_info)


def connect(path: str, *, read_only: bool = False) -> Connection:
    """Open a connection in autocommit mode that may be passed between threads.

    Commits on it do not wait for the disk. The writer syncs the log itself if the durability setting requires it.
    """
    with translated_errors(path):
        connection = _opened(path)
        try:
            connection.execute("PRAGMA busy_timeout = 10000")
            if path != MEMORY:
                mode = _write_ahead_mode(connection)
                if mode != "wal":
                    raise StoreError(
                        f"{path}: SQLite cannot use its write-ahead log there (journal mode {mode!r}); use a local disk"
                    )
            connection.execute("PRAGMA synchronous = NORMAL")
            # The writer runs checkpoints itself, under the write lock, because of the race at MENDED_SQLITE.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}")
            # On macOS, let checkpoints empty the cache of the drive; elsewhere it changes nothing.
            connection.execute("PRAGMA checkpoint_fullfsync = 1")
            _use_memory(connection)
            if read_only:
                # Keep the busy timeout: readers wait in their own thread, for instance while another process recovers
                # the log after a crash.
                connection.execute("PRAGMA query_only = 1")
            else:
                connection.execute("PRAGMA busy_timeout = 0")
                # Give the memory of large temporary values back (combined.py).
                connection.execute("PRAGMA temp.auto_vacuum = FULL")
        except BaseException:
            connection.close()
            raise
    return connection


def connect_plainly(path: str, *, immutable: bool = False) -> Connection:
    """Open a copy that no other process uses, in its own journal mode; with ``immutable``, only to read it."""
    if not immutable:
        return sqlite3.connect(path, isolation_level=None)
    return sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)


def connect_to_read(path: str, *, leaves_log: bool) -> Connection:
    """Open a connection on which nothing can be written; with ``leaves_log``, closing it leaves the log as it is."""
    name = Path(path).absolute().as_posix()
    for character in "%?#":
        name = name.replace(character, f"%{ord(character):02x}")
    address = f"file:{'' if name.startswith('/') else '/'}{name}?mode={'ro' if leaves_log else 'rw'}"
    with translated_errors(path):
        connection = _opened(address, is_address=True)
        try:
            # Other processes may be recovering the log after a crash, or creating the tables.
            connection.execute("PRAGMA busy_timeout = 60000")
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            _use_memory(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _opened(name: str, *, is_address: bool = False) -> Connection:
    if sqlite_version() < OLDEST_SQLITE:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} is too old, 3.38 is needed; install taskmill[sqlite] for a newer one"
        )
    connection = sqlite3.connect(
        name, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256, uri=is_address
    )
    # Text that is not valid UTF-8 must be readable, so that the damaged row can be named and set aside.
    connection.text_factory = _lenient_text
    return connection


def _use_memory(connection: Connection) -> None:
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA temp_store = MEMORY")


def _write_ahead_mode(connection: Connection) -> str:
    """Switch to the write-ahead log and return the journal mode.

    SQLite's busy timeout does not cover several processes that do this at once on a new file, so retry here.
    """
    give_up_at = time.monotonic() + SWITCH_PATIENCE
    while True:
        try:
            mode: str = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.Error as wrong:
            if not is_busy(wrong) or time.monotonic() > give_up_at:
                raise
            # Imported here, because it is rare. The program may have seeded the module's own generator.
            from random import SystemRandom

            time.sleep(SystemRandom().uniform(0, 0.01))
        else:
            return mode


def _lenient_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def create_file(path: str) -> None:
    """Create the database file with mode 0600; SQLite gives the -wal and -shm files the same mode."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise StoreError(f"{path}: the folder {folder} does not exist; create it first")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        if Path(path).is_dir():
            raise StoreError(f"{path} is a folder, not a database file") from None
    except OSError as wrong:
        raise StoreError(f"{path} cannot be created: {wrong.strerror}") from wrong


@contextlib.contextmanager
def translated_errors(path: str) -> Generator[None, None, None]:
    """Raise SQLite's errors as taskmill's errors."""
    try:
        yield
    except sqlite3.Error as wrong:
        raise translated(wrong, path) from wrong
    except UnicodeDecodeError as wrong:
        # SQLite quotes a damaged schema in its message, which then cannot be decoded.
        raise _damaged("its schema cannot be read", path) from wrong


def translated(wrong: Exception, path: str) -> StoreError:
    if isinstance(wrong, StoreError):
        return wrong
    text = str(wrong)
    if SEALED in text:
        return told_by_seal(text)
    if is_busy(wrong):
        return StoreBusy(
            f"{path}: another process holds the write lock for too long; end its transaction, or try again"
        )
    if "not a database" in text:
        return StoreCorrupt(f"{path} is not an SQLite database; choose another file name")
    if "JSON" in text or "constraint failed" in text or "cannot store" in text:
        # New values always pass these checks, so the damage is in a value that was stored before.
        return StoreCorrupt(f"{path}: a stored value is damaged ({text}); `taskmill doctor {path}` lists damaged rows")
    if "malformed" in text:
        return _damaged(text, path)
    if "readonly" in text:
        return StoreError(f"{path} cannot be written: it, or its folder, is read-only for this user")
    if "is full" in text:
        return StoreError(f"{path}: the disk is full; nothing was stored. Free some space and try again")
    if "unable to open" in text:
        return StoreError(f"{path} cannot be opened: check that the file and its folder may be read and written")
    return StoreError(f"{path}: {text}")


def _damaged(why: str, path: str) -> StoreCorrupt:
    return StoreCorrupt(f"{path} is damaged ({why}); restore a backup or rescue it with the `sqlite3` shell's .recover")


def is_busy(wrong: Exception) -> bool:
    text = str(wrong)
    return isinstance(wrong, sqlite3.OperationalError) and ("locked" in text or "busy" in text)


def is_lack_of_space(wrong: BaseException) -> bool:
    """True if the disk is full, the quota is used up, or the file may not grow."""
    if isinstance(wrong, OSError):
        return wrong.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return isinstance(wrong, sqlite3.Error) and (
        "is full" in str(wrong) or getattr(wrong, "sqlite_errorname", None) in _CANNOT_GROW
    )


def is_failed_sync(wrong: Exception) -> bool:
    """True if SQLite could not sync a file to the disk."""
    return getattr(wrong, "sqlite_errorname", None) == "SQLITE_IOERR_FSYNC"


class Identity:
    """The file that a path names, or that a descriptor has open."""

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        # Absolute, because the program may change its working directory. Symbolic links are not resolved: the check
        # is about the path that other processes open.
        self._path = os.path.abspath(path)
        found = os.stat(self._path if descriptor is None else descriptor)
        self._known = (found.st_ino, found.st_dev)

    def check(self, what: str) -> None:
        """Raise :class:`StoreLost` if the path no longer names the same file; ``what`` names it in the message."""
        try:
            found = os.stat(self._path)
            is_there = (found.st_ino, found.st_dev) == self._known
        except (FileNotFoundError, NotADirectoryError):
            is_there = False
        except OSError:
            # The process may have dropped its permission to read the folder, so it cannot know.
            return
        if not is_there:
            raise StoreLost(
                f"{what} {self._path} was deleted, moved or replaced while it was open;"
                " nothing more is stored. Put the file back, then open it again"
            )
