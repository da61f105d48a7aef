"""Copy a live database file into another one.

The copy is a snapshot: a read transaction stays open until it is complete. In the write-ahead log a reader blocks no
writer, and because the snapshot does not move, commits of other processes do not restart the copying. Meanwhile the log
cannot be truncated, so it grows.

The copy is made under a temporary name, synced and checked. It gets its own name as the last step, so that a killed
process leaves no incomplete copy under that name.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import NamedTuple

from taskmill.errors import ConfigError, InvalidState, StoreCorrupt, StoreError
from taskmill.store.sqlite.connection import (
    BESIDE,
    MEMORY,
    Connection,
    connect,
    connect_plainly,
    create_file,
    is_lack_of_space,
    translated_errors,
)
from taskmill.store.sqlite.session import LostIds, raise_sequence

STEP_PAGES = 1024
"""Pages that are copied between two reports of the progress."""

Watch = Callable[[int, int], None]
"""Called with the number of copied bytes and of all bytes."""


class Backup(NamedTuple):
    """A complete and checked copy."""

    file: str
    bytes: int
    schema: int
    rows: Mapping[str, int]
    """The number of rows of each table of taskmill."""


def back_up(source: str, target: str, *, overwrite: bool = False, watch: Watch = lambda _done, _total: None) -> Backup:
    """Copy the database ``source`` to the new file ``target``; the queue may be in use meanwhile."""
    if source == MEMORY:
        raise ConfigError("a store in memory cannot be backed up: it has no file")
    if not Path(source).is_file():
        raise StoreError(f"{source} does not exist")
    _check_target(source, target, overwrite=overwrite)
    with translated_errors(source), contextlib.closing(connect(source, read_only=True)) as reading:
        reading.execute("BEGIN")
        try:
            return _copied(reading, source, target, overwrite=overwrite, watch=watch)
        finally:
            reading.execute("ROLLBACK")


def _check_target(source: str, target: str, *, overwrite: bool) -> None:
    goal = Path(target)
    if goal.is_dir():
        raise ConfigError(f"{target} is a folder; give the name of a new file")
    if not goal.absolute().parent.is_dir():
        raise ConfigError(f"{target}: the folder {goal.absolute().parent} does not exist; create it first")
    taken = {Path(source + ending).resolve() for ending in ("", *BESIDE)}
    if goal.resolve() in taken:
        raise ConfigError(f"{target} belongs to the queue itself; give the name of a new file")
    if goal.exists() and not overwrite:
        raise InvalidState(f"{target} exists; give another name, or replace it with overwrite=True")
    for beside in (Path(target + ending) for ending in BESIDE):
        # SQLite would apply a log that was left there to the new file.
        if beside.exists():
            raise InvalidState(
                f"{beside} exists: {target} is in use, or was not closed; give another name, or remove that file first"
            )


def _copied(reading: Connection, source: str, target: str, *, overwrite: bool, watch: Watch) -> Backup:
    rows, schema = _contents(reading, source)  # the snapshot begins with this read
    size = _size(reading)
    _check_room(target, size)
    with _temporary(target) as temporary:
        _copy(reading, source, temporary, size, watch)
        _sync(temporary)
        _check_copy(temporary, source, rows, schema)
        if Path(target).exists() and not overwrite:
            raise InvalidState(f"{target} was created meanwhile; give another name")
        size = os.stat(temporary).st_size
        os.replace(temporary, target)
    _sync_folder(Path(target).absolute().parent)
    return Backup(target, size, schema, rows)


@contextlib.contextmanager
def _temporary(target: str) -> Generator[str, None, None]:
    """Yield the name of a new file beside the target, which is gone in the end."""
    name = f"{target}.partial-{os.getpid()}"
    Path(name).unlink(missing_ok=True)
    create_file(name)
    try:
        yield name
    except OSError as wrong:
        if is_lack_of_space(wrong):
            raise StoreError(f"{target}: the disk is full; free some space and try again") from wrong
        raise StoreError(f"{target} cannot be written: {wrong.strerror}") from wrong
    finally:
        for ending in ("", *BESIDE):
            Path(name + ending).unlink(missing_ok=True)


def _copy(reading: Connection, source: str, temporary: str, size: int, watch: Watch) -> None:
    def report(_status: int, remaining: int, total: int) -> None:
        watch(size * (total - remaining) // max(total, 1), size)

    with translated_errors(temporary), contextlib.closing(connect_plainly(temporary)) as writing:
        # The file is synced as a whole afterwards.
        writing.execute("PRAGMA synchronous = OFF")
        reading.backup(writing, pages=STEP_PAGES, progress=report)
        # One plain file, which can also be read where no log can be created beside it.
        writing.execute("PRAGMA journal_mode = DELETE")
        if highest := LostIds(source).highest():
            raise_sequence(writing, "taskmill_task", highest)


def _check_copy(temporary: str, source: str, rows: Mapping[str, int], schema: int) -> None:
    with translated_errors(source), contextlib.closing(connect_plainly(temporary, immutable=True)) as copy:
        (found,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise StoreCorrupt(
                f"{source} is damaged ({found}), and so is its copy, which was removed; "
                "restore an earlier backup or rescue it with the `sqlite3` shell's .recover"
            )
        if _contents(copy, source) != (rows, schema):
            raise StoreError(f"the copy of {source} is not the same as the file, and was removed; check the disk")


def _contents(connection: Connection, source: str) -> tuple[dict[str, int], int]:
    """Return the number of rows of each table of taskmill, and the version of the schema."""
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 9) = 'taskmill_' ORDER BY name"
    ).fetchall()
    if ("taskmill_schema",) not in names:
        raise StoreError(f"{source} is an SQLite database, but taskmill's tables are not in it")
    rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in names}  # noqa: S608
    (schema,) = connection.execute("SELECT max(version) FROM taskmill_schema").fetchone()
    return rows, schema or 0


def _size(connection: Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    size: int = pages * page_size
    return size


def _check_room(target: str, size: int) -> None:
    folder = Path(target).absolute().parent
    free = shutil.disk_usage(folder).free
    if free < size:
        raise StoreError(
            f"a backup needs {_megabytes(size)}, and only {_megabytes(free)} are free in {folder}; "
            "free some space and try again"
        )


def _megabytes(count: int) -> str:
    return f"{count / 1_000_000:,.1f} MB"


def _sync(file: str) -> None:
    """Force a file to the disk. No connection to it is open: closing the descriptor would drop its locks."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Force the names of files to the disk."""
    if os.name == "nt":
        return  # a folder cannot be opened there
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
