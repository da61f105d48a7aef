"""Opening the store that a name or address refers to. Each engine is imported only when it is used."""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING, Literal

from taskmill.errors import ConfigError
from taskmill.model.options import text

if TYPE_CHECKING:
    from taskmill.core.ports import Clock
    from taskmill.store.moving.endpoint import Endpoint
    from taskmill.store.postgres.reading import PostgresReader
    from taskmill.store.postgres.store import PostgresStore
    from taskmill.store.sqlite.reading import FileReader
    from taskmill.store.sqlite.store import SqliteStore

    AnyStore = SqliteStore | PostgresStore
    AnyReader = FileReader | PostgresReader

_POSTGRES = ("postgresql://", "postgres://")
_SCHEME = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*://|postgres(?:ql)?(?:\+\w+)?:)", re.IGNORECASE)


def is_postgres(name: str) -> bool:
    """True if ``name`` is a PostgreSQL address; raise ``ConfigError`` if it looks like any other address."""
    if name.startswith(_POSTGRES):
        return True
    if (found := _SCHEME.match(name)) is not None:
        # Show only the scheme: the rest may contain a password.
        raise ConfigError(
            f"store must be a file name, ':memory:' or 'postgresql://user@host/database', not {found[0]!r}…"
        )
    return False


def open_endpoint(name: str, *, must_exist: bool) -> Endpoint:
    """Open a store as the source or target of a move."""
    if is_postgres(name):
        _check_extra()
        from taskmill.store.postgres.endpoint import PostgresEndpoint

        return PostgresEndpoint(name, must_exist=must_exist)
    from taskmill.store.sqlite.endpoint import SqliteEndpoint

    return SqliteEndpoint(name, must_exist=must_exist)


def open_store(
    store: str | os.PathLike[str] | AnyStore, durability: Literal["full", "process"], clock: Clock
) -> AnyStore:
    """Return the store that a name refers to, not opened yet, or the store that was passed in."""
    from taskmill.store.sql.write_side import WriteSide

    if isinstance(store, WriteSide):
        return store
    name = _checked_name(store)
    if is_postgres(name):
        _check_extra()
        from taskmill.store.postgres.store import PostgresStore

        return PostgresStore(name, durability, clock)
    from taskmill.store.sqlite.store import SqliteStore

    return SqliteStore(name, durability, clock)


def open_reader(store: str | os.PathLike[str], clock: Clock, *, in_thread: bool) -> AnyReader:
    """Return the store that a name refers to, for reading only, not opened yet.

    It is read in a thread of its own or, if not ``in_thread``, in the calling thread, without an event loop.
    """
    name = _checked_name(store)
    if is_postgres(name):
        _check_extra()
        from taskmill.store.postgres.reading import PostgresReader

        return PostgresReader(name, clock, in_thread=in_thread)
    from taskmill.store.sqlite.reading import FileReader

    return FileReader(name, clock, in_thread=in_thread)


def _checked_name(store: str | os.PathLike[str]) -> str:
    name = os.fspath(store) if isinstance(store, str | os.PathLike) else None
    if not isinstance(name, str):
        raise ConfigError(f"store must be a file name, ':memory:' or 'postgresql://…', not {type(store).__name__}")
    text(name, "store", ConfigError)
    if not name:
        raise ConfigError("store must not be empty; name a file, ':memory:' or 'postgresql://…'")
    return name


def _check_extra() -> None:
    """Import the module whose error says which extra to install, before others raise a plain ImportError."""
    importlib.import_module("taskmill.store.postgres.connection")
