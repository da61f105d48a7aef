"""Which store a user's words name."""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING, Literal

from taskmill.errors import ConfigError
from taskmill.model.options import text
from taskmill.ports import Clock
from taskmill.store.sql.write_side import WriteSide

if TYPE_CHECKING:
    from taskmill.store.moving.place import Place
    from taskmill.store.postgres.store import PostgresStore
    from taskmill.store.sqlite.store import SqliteStore

    AnyStore = SqliteStore | PostgresStore

_POSTGRES = ("postgresql://", "postgres://")
_SCHEME = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*://|postgres(?:ql)?(?:\+\w+)?:)", re.IGNORECASE)


def is_postgres(name: str) -> bool:
    """Whether it is an address of PostgreSQL; what looks like another address is refused."""
    if name.startswith(_POSTGRES):
        return True
    if (found := _SCHEME.match(name)) is not None:
        # What follows may hold a password.
        raise ConfigError(
            f"store must be a file name, ':memory:' or 'postgresql://user@host/database', not {found[0]!r} and more"
        )
    return False


def open_place(name: str, *, must_exist: bool) -> Place:
    """One end of a move, open and taken."""
    if is_postgres(name):
        _check_extra()
        from taskmill.store.postgres.place import PostgresPlace

        return PostgresPlace(name, must_exist=must_exist)
    from taskmill.store.sqlite.place import SqlitePlace

    return SqlitePlace(name, must_exist=must_exist)


def open_store(
    store: str | os.PathLike[str] | AnyStore, durability: Literal["full", "process"], clock: Clock
) -> AnyStore:
    """A store that is not open yet, or the one that was given; each engine is imported when it is wanted."""
    if isinstance(store, WriteSide):
        return store
    name = os.fspath(store) if isinstance(store, str | os.PathLike) else None
    if not isinstance(name, str):
        raise ConfigError(f"store must be a file name, ':memory:' or 'postgresql://…', not {type(store).__name__}")
    text(name, "store", ConfigError)
    if is_postgres(name):
        _check_extra()
        from taskmill.store.postgres.store import PostgresStore

        return PostgresStore(name, durability, clock)
    from taskmill.store.sqlite.store import SqliteStore

    return SqliteStore(name, durability, clock)


def _check_extra() -> None:
    """The module that says which extra is missing, before others that only fail."""
    importlib.import_module("taskmill.store.postgres.connection")
