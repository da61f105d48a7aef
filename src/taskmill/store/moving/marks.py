"""The marks that a move leaves in a store, as rows of its settings, and the errors of a store that is sealed by them.

Rules:

* A store with a departure or an arrival is sealed: it cannot be written to, and no scheduler opens it.
* A store whose departure has not ended is still complete: only the seal prevents its use.
* A store with an arrival holds nothing but copies. One transaction makes it the queue: it replaces the arrival by an
  ``arrived`` mark and removes the seal. That is the moment of the move.
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
"""The start of the error message with which the database refuses writes to a sealed store; the rest is for people.

The triggers of sealed stores contain this text, so it must not change.
"""


class Departure(msgspec.Struct, frozen=True):
    """Mark of a store that the queue is leaving, or has left."""

    move: str
    to: str
    handing_over: bool = False
    """True if the target may have become the queue already; only its marks show whether it has."""
    ended_at: int | None = None


class Copied(msgspec.Struct, frozen=True):
    """How much of a table has been copied."""

    rows: int = 0
    after: list[int | str] | None = None
    """The key of the last copied row."""
    whole: bool = False


class Arrival(msgspec.Struct, frozen=True):
    """Mark of a store that a queue is being copied to."""

    move: str
    origin: str
    copied: dict[str, Copied] = {}
    spoiled: bool = False
    """True if the comparison found a difference; then everything is copied again."""


class Arrived(msgspec.Struct, frozen=True):
    """Mark of a store whose queue came from another store."""

    move: str
    origin: str
    at: int


class Marks(msgspec.Struct, frozen=True):
    """All marks of moves in a store."""

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
    """Return why a sealed store cannot be used, and what to do instead."""
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
    return f"`taskmill move {source} {target}` resumes the move, and with --undo cancels it"


def check_not_sealed(rows: Iterable[tuple[str, str]], name: str) -> None:
    marks = Marks.of(rows)
    if marks.is_sealed:
        raise StoreMoved(refusal(marks, name))


def told_by_seal(text: str) -> StoreMoved:
    """Return the error for a database message that starts with ``SEALED``, maybe after a prefix."""
    return StoreMoved(text[text.index(SEALED) + len(SEALED) :])
