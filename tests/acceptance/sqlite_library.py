"""The SQLite library that the store uses: two of them in one process break each other's locks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from taskmill.store.sqlite.connection import sqlite_module

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = importlib.import_module(sqlite_module())

__all__ = ["sqlite3"]
