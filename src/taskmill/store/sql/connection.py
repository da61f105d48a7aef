"""The protocol that an engine's connection implements for the shared SQL code, and the JSON that statements exchange.

Statements are called by name (:mod:`taskmill.store.sql.statements`). Each engine gets them in its own dialect, with the
same parameters and the same results. A statement handles a whole batch: one JSON value in, one JSON value out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from taskmill.model.commit import Commit


ANSWER = object()
"""A parameter of a :class:`Statement`: the value that an earlier one returned."""


class Statement(NamedTuple):
    """One of several statements that run in one call."""

    name: str
    parameters: Sequence[Any]
    rows: int | None = None
    """The number of rows that it has to affect or to return; None if any will do."""


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...
    @property
    def description(self) -> Any:
        """None if the statement returns no rows."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """One session of an engine. Code that writes runs inside a transaction."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Cursor:
        """Run a statement by its name, or a SQL text that was put together from fragments of the engine's dialect."""
        ...

    def text(self, name: str, /) -> str:
        """Return the text of a statement or fragment in the engine's dialect."""
        ...

    def insert(self, statement: str, rows: str, count: int, first_id: int | None = None, /) -> int:
        """Store ``count`` new tasks with consecutive ids and return the first id.

        ``first_id`` is the first of ids that were reserved before.
        """
        ...

    def pass_over_lost_ids(self) -> None:
        """Skip ids that a caller has received in a transaction that was rolled back."""
        ...

    def execute_if_all(self, statement: str, parameters: Sequence[Any], count: int, /) -> bool:
        """Run a statement; if it does not affect exactly ``count`` rows, undo it and return False."""
        ...

    def execute_together(self, statements: Sequence[Statement], /) -> str | None:
        """Run statements in one call, if the engine can; return the value that the last SELECT among them returns.

        If one of them has other rows than expected, undo all and return None. Statements whose :data:`ANSWER` is an
        empty list may be left out.
        """
        ...

    def be_alone(self) -> None:
        """Exclude other writers until the commit, so that what is read stays true.

        An engine with many writers may have to roll back and start the transaction again. So requests are repeatable.
        """
        ...

    @property
    def rows_changed(self) -> int | None:
        """How many rows this connection has changed so far; None if that is not known."""
        ...

    def note(self, commit: Commit, /) -> None:
        """Note what a part of this transaction did, for dispatchers in other processes."""
        ...

    def rehearsal(self) -> AbstractContextManager[None]:
        """Let the statements inside leave no trace outside the transaction, which the caller rolls back."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Let the statements inside read one consistent state of the store."""
        ...


_encode = msgspec.json.Encoder().encode

decode_ids = msgspec.json.Decoder(list[int]).decode
decode_pairs = msgspec.json.Decoder(list[tuple[int, int]]).decode


def encoded(value: Any) -> str:
    return _encode(value).decode()


def one(connection: Connection, sql: str, *parameters: Any) -> Any:
    """Return the single value that a statement returns."""
    return connection.execute(sql, parameters).fetchone()[0]
