"""What a store remembers of a move, as rows of its settings, and how it refuses to be used meanwhile.

Laws:

* A store with a departure or an arrival is sealed: nobody can write to it, and no scheduler opens it.
* A departure that has not ended is complete all the same: only the seal keeps it from being used.
* A store that arrives holds nothing but copies. It becomes a queue in one transaction, which turns its arrival into a
  memory and lifts its seal: that is the moment of the move.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from taskmill.errors import StoreMoved

DEPARTURE, ARRIVAL, ARRIVED = "departure", "arrival", "arrived"
NAMES = (DEPARTURE, ARRIVAL, ARRIVED)
READ = "SELECT name, value FROM taskmill_setting WHERE name IN ('departure', 'arrival', 'arrived')"

SEALED = "taskmill is not used here: "
"""How the database begins its answer to whoever writes to a sealed store; the rest is for people."""


class Departure(msgspec.Struct, frozen=True):
    """The queue leaves this store."""

    move: str
    to: str
    handing_over: bool = False
    """Whether the other store may have become the queue already: only that store can tell."""
    ended_at: int | None = None


class Copied(msgspec.Struct, frozen=True):
    """How much of a table has arrived."""

    rows: int = 0
    after: list[int | str] | None = None
    """The key of the last row."""
    whole: bool = False


class Arrival(msgspec.Struct, frozen=True):
    """The queue comes to this store."""

    move: str
    origin: str
    copied: dict[str, Copied] = {}
    spoiled: bool = False
    """Whether it was compared and found to differ: it is copied anew."""


class Arrived(msgspec.Struct, frozen=True):
    """The queue of this store came from another."""

    move: str
    origin: str
    at: int


class Marks(msgspec.Struct, frozen=True):
    """Everything a store remembers of moves."""

    departure: Departure | None = None
    arrival: Arrival | None = None
    arrived: Arrived | None = None

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str]]) -> Marks:
        return msgspec.convert({name: msgspec.json.decode(value) for name, value in rows}, cls)

    @property
    def is_sealed(self) -> bool:
        return self.departure is not None or self.arrival is not None


def encoded(mark: Departure | Arrival | Arrived) -> str:
    return msgspec.json.encode(mark).decode()


def refusal(marks: Marks, name: str) -> str:
    """Why a sealed store is not to be used, and what to do instead."""
    if marks.arrival is not None:
        origin = marks.arrival.origin
        return f"{name} is being filled from {origin}; {_go_on(origin, name)}"
    assert marks.departure is not None  # noqa: S101 - it is sealed
    to = marks.departure.to
    if marks.departure.ended_at is None:
        return f"{name} is being moved to {to}; {_go_on(name, to)}"
    at = datetime.fromtimestamp(marks.departure.ended_at / 1000, UTC)
    return (
        f"{name} was moved to {to} ({at:%Y-%m-%d %H:%M} UTC); use that, "
        f"or bring the queue back with `taskmill move {to} {name}`"
    )


def _go_on(source: str, target: str) -> str:
    return f"`taskmill move {source} {target}` goes on with that, and with --undo gives it up"


def check_not_sealed(rows: Iterable[tuple[str, str]], name: str) -> None:
    marks = Marks.of(rows)
    if marks.is_sealed:
        raise StoreMoved(refusal(marks, name))


def told_by_seal(text: str) -> StoreMoved:
    """The error for what the database has answered."""
    return StoreMoved(text[text.index(SEALED) + len(SEALED) :])
