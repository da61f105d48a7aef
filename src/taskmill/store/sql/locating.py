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
            found = next(find(connection), None)
        except UNDECODABLE:
            # The rows cannot be read one by one either, so the damaged one stays unnamed.
            found = None
        if found is None:
            return wrong
        return StoreCorrupt(
            f"{self.name}: {found}; `taskmill doctor {self.name}` lists all damage, "
            "and a dispatcher sets damaged tasks aside as dead letters"
        )
