"""The errors for stored values that cannot be read. They name the damaged row and column, if these can be found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import msgspec

from taskmill.errors import StoreCorrupt, TaskmillError
from taskmill.store import sql
from taskmill.store.sql.connection import Connection

UNDECODABLE = (msgspec.MsgspecError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""The exceptions that reading a damaged value may raise; nothing else in a store raises them."""

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def corrupt(wrong: Exception, store: str) -> StoreCorrupt:
    """Return the error for a value that cannot be read, if its row is unknown."""
    if isinstance(wrong, StoreCorrupt) and str(wrong).startswith(store):
        return wrong
    why = str(wrong) if isinstance(wrong, TaskmillError) else f"a stored value cannot be read: {wrong}"
    return StoreCorrupt(f"{store}: {why}; `taskmill doctor {store}` lists the damaged rows")


class Locating(ABC):
    """The handling of damaged rows, shared by the reading and the writing half of a store."""

    name: str

    @abstractmethod
    async def _read(self, request: Callable[[Connection], T]) -> T: ...

    def _decoded(self, request: Callable[[Connection], T], connection: Connection) -> T:
        """Run a request that reads, and raise ``StoreCorrupt`` with the damaged row if something cannot be decoded."""
        try:
            return request(connection)
        except StoreCorrupt as wrong:
            raise corrupt(wrong, self.name) from wrong
        except UNDECODABLE as wrong:
            if isinstance(wrong, TaskmillError):
                raise
            raise self._naming_damage(corrupt(wrong, self.name), connection) from wrong

    async def _located(self, wrong: StoreCorrupt) -> StoreCorrupt:
        """Find the row that a writing request could not read."""
        return await self._read(lambda connection: self._naming_damage(wrong, connection))

    def _naming_damage(self, wrong: E, connection: Connection) -> E | StoreCorrupt:
        """Return the error, or one that names the first damage found."""
        if not isinstance(wrong, StoreCorrupt):
            return wrong
        try:
            found = next(sql.damage.find(connection), None)
        except UNDECODABLE:
            # The rows cannot be read one by one either, so the damaged one stays unnamed.
            found = None
        if found is None:
            return wrong
        return StoreCorrupt(
            f"{self.name}: {found}; `taskmill doctor {self.name}` lists all damage. "
            "A dispatcher ends damaged tasks as dead letters"
        )
