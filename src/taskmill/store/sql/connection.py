"""What the shared half of a store in SQL needs of an engine's connection.

Statements are called by name (:mod:`taskmill.store.sql.statements`); each engine has them in its own dialect, with the
same parameters and the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Cursor(Protocol):
    """What a statement has answered."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """One session of an engine, inside a transaction wherever something is written."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Cursor:
        """Run a statement by its name, or a text that was put together from fragments in the engine's dialect."""
        ...

    def text(self, name: str, /) -> str:
        """A statement or a fragment of one, in the engine's dialect."""
        ...

    def insert(self, statement: str, rows: str, count: int, first_id: int | None = None, /) -> int:
        """Store so many new tasks with successive ids; returns the first. ``first_id`` was set aside before."""
        ...

    def pass_over_lost_ids(self) -> None:
        """Make sure that the next ids were never told to a caller whose transaction was rolled back."""
        ...

    def execute_if_all(self, statement: str, parameters: Sequence[Any], count: int, /) -> bool:
        """Run a statement and say whether it concerned that many rows; if not, it did nothing."""
        ...

    def be_alone(self) -> None:
        """From here to the commit nobody else writes, and what is read stays true.

        An engine with many writers may have to begin the transaction anew for that; requests are repeatable.
        """
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Statements inside read one state of the store."""
        ...
