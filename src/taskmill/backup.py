"""Copy the file of a queue while programs use it, as ``taskmill backup`` does.

::

    copy = back_up("tasks.db", "copies/monday.db")
    print(copy.bytes, copy.rows["taskmill_task"])

The copy is consistent and complete, or it does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from taskmill.errors import ConfigError
from taskmill.store.opening import is_postgres
from taskmill.store.sqlite import backup
from taskmill.store.sqlite.backup import Backup

__all__ = ["Backup", "back_up"]


def back_up(
    store: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    watch: Callable[[int, int], None] = lambda _done, _total: None,
) -> Backup:
    """Copy the queue in ``store`` to the new ``file``, check the copy, and return what is in it.

    This blocks until the copy is complete; from an event loop, call it in a thread. ``watch`` is called with the number
    of copied bytes and the number of all bytes.
    """
    source, target = _name(store, "store"), _name(file, "file")
    if is_postgres(source):
        raise ConfigError("store: a database server is backed up with its own tools, such as pg_dump")
    if is_postgres(target):
        raise ConfigError("file must be the name of a new file; `taskmill move` moves a queue to a server")
    return backup.back_up(source, target, overwrite=overwrite, watch=watch)


def _name(given: str | os.PathLike[str], what: str) -> str:
    name = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise ConfigError(f"{what} must be a file name, not {given!r}")
    return name
