"""Errors about damaged rows: a ``StoreCorrupt`` that names the store, the row and the column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from taskmill.errors import StoreCorrupt, TaskmillError
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.damage import UNDECODABLE, corrupt, find

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


class Locating(ABC):
    """What both halves of a store do about rows that cannot be read."""

    name: str

    @abstractmethod
    async def _read(self, request: Callable[[Connection], T]) -> T: ...

    def _decoded(self, request: Callable[[Connection], T], connection: Connection) -> T:
        """Run a request that reads."""
        try:
            return request(connection)
        except StoreCorrupt as wrong:
            raise corrupt(wrong, self.name) from wrong
        except UNDECODABLE as wrong:
            if isinstance(wrong, TaskmillError):
                raise
            raise self._naming_damage(corrupt(wrong, self.name), connection) from wrong

    async def _located(self, wrong: StoreCorrupt) -> StoreCorrupt:
        """Look for the row that a request which writes could not read."""
        return await self._read(lambda connection: self._naming_damage(wrong, connection))

    def _naming_damage(self, wrong: E, connection: Connection) -> E | StoreCorrupt:
        """The same error, or one that names the first damage there is."""
        if not isinstance(wrong, StoreCorrupt):
            return wrong
        try:
            found = next(find(connection), None)
        except UNDECODABLE:
            # Not even the rows can be examined.
            found = None
        if found is None:
            return wrong
        return StoreCorrupt(
            f"{self.name}: {found}; `taskmill doctor {self.name}` lists all damage, "
            "and a dispatcher sets damaged tasks aside as dead letters"
        )
