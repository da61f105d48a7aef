"""Moving a queue: seal the source, copy it in batches, compare, hand over. An interrupted move can be resumed.

1. The source is sealed: from now on it does not change and is not dispatched (docs/decisions/0021).
2. The target is emptied of an earlier attempt's leftovers, and sealed too.
3. Tables are copied in batches. Each batch is committed together with the progress of the copy.
4. Both stores are read again completely and compared.
5. The source records that the target may become the queue at any moment. Then one transaction makes the target the
   queue.
6. The source records that the move has ended.

The source is the queue until the transaction of step 5, and the target from then on. There is no time at which both are
the queue, or neither.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from taskmill.errors import ConfigError, InvalidState, StoreCorrupt, StoreError, StoreMoved
from taskmill.store.moving import marks
from taskmill.store.moving.endpoint import Endpoint, Row, Unstorable
from taskmill.store.moving.marks import Arrival, Arrived, Copied, Departure, Marks
from taskmill.store.moving.tables import MAY_BE_THERE, Checksum, Table, add_up, moving

BATCH_ROWS = 10_000
BATCH_BYTES = 8 * 1024 * 1024
"""Largest amount of text in one transaction, so that large payloads do not fill the memory."""
LOOK_ROWS = 20_000
"""Rows between two progress reports of the comparison."""

Phase = Literal["copying", "comparing"]


class Step(msgspec.Struct, frozen=True):
    """Progress of a move: the number of rows copied or compared so far, and of all rows."""

    phase: Phase
    table: str
    done: int
    total: int


class Moved(msgspec.Struct, frozen=True):
    """The result of a move."""

    source: str
    target: str
    rows: Mapping[str, int]
    """Number of rows by table, without the prefix ``taskmill_`` of its name."""
    at: int
    """When the target became the queue, in milliseconds since the epoch."""
    before: bool = False
    """True if the queue had been moved already, and nothing was done."""


Tell = Callable[[Step], None]
Now = Callable[[], int]


def move(source: Endpoint, target: Endpoint, now: Now, tell: Tell) -> Moved:
    """Move the queue, or resume a move that was interrupted."""
    departure, theirs = source.marks().departure, target.marks()
    tables = moving(source.shapes(), target.shapes(), f"{source.name} and {target.name}")
    if departure is not None and _has_arrived(departure, theirs):
        return _told_again(source, target, departure, theirs)
    _check_target(source, target, departure, tables)
    if departure is None:
        departure = Departure(uuid.uuid4().hex, target.name)
        _seal_source(source, departure, now())
    arrival = target.marks().arrival
    if arrival is None or arrival.move != departure.move or arrival.spoiled:
        arrival = Arrival(departure.move, source.name)
        _begin(target, arrival, tables)
    arrival = _copy(source, target, tables, arrival, tell)
    with target.writing(_seal(target, Marks(arrival=arrival))):
        target.raise_ids(source.last_ids(tables))
        target.get_ready(tables)
    sums = _compare(source, target, tables, arrival, tell)
    return _hand_over(source, target, departure, arrival, sums, now())


def undo(source: Endpoint, target: Endpoint | None) -> str:
    """Cancel a move that has not ended, or, without ``target``, one whose target is lost; return the target's name."""
    departure = source.marks().departure
    if departure is None:
        raise InvalidState(f"{source.name} was not moved and is not being moved; there is nothing to undo")
    if target is not None:
        theirs = target.marks()
        if _has_arrived(departure, theirs):
            raise InvalidState(
                f"the queue was moved to {target.name}; bring it back with `taskmill move {target.name} {source.name}`"
            )
        is_there = theirs.arrival is not None and theirs.arrival.move == departure.move
        if departure.ended_at is not None or (departure.handing_over and not is_there):
            raise StoreMoved(_elsewhere(source, departure))
        if is_there:
            tables = moving(source.shapes(), target.shapes(), f"{source.name} and {target.name}")
            with target.writing(None, durable=True):
                target.clear(tables)
                target.begin_settings()
    with source.writing(None, durable=True):
        source.depart(None)
    return departure.to


# Checks before a move


def check_apart(source: Endpoint, target: Endpoint) -> None:
    if type(source) is type(target) and source.identity() == target.identity():
        raise ConfigError(f"{source.name} is both SOURCE and TARGET; a queue moves from one store to another")


def _has_arrived(departure: Departure, theirs: Marks) -> bool:
    return theirs.arrived is not None and theirs.arrived.move == departure.move


def _elsewhere(source: Endpoint, departure: Departure) -> str:
    when = "was moved" if departure.ended_at is not None else "was being handed over"
    return (
        f"{source.name} {when} to {departure.to}, and TARGET is another queue; "
        f"if {departure.to} is lost for good, --undo --target-is-lost reopens {source.name} as it was"
    )


def _check_target(source: Endpoint, target: Endpoint, departure: Departure | None, tables: Sequence[Table]) -> None:
    theirs, ours = target.marks(), source.marks()
    if ours.arrival is not None:
        raise StoreMoved(marks.refusal(ours, source.name))
    arrival = theirs.arrival
    is_ours = arrival is not None and departure is not None and arrival.move == departure.move
    if departure is not None and not is_ours:
        if departure.handing_over:
            raise StoreMoved(_elsewhere(source, departure))
        if departure.to != target.name:
            raise StoreMoved(marks.refusal(ours, source.name))
    if arrival is not None and not is_ours and arrival.origin != source.name:
        raise StoreMoved(marks.refusal(theirs, target.name))
    if theirs.departure is not None and not _is_shell(ours, theirs.departure):
        raise StoreMoved(marks.refusal(theirs, target.name))
    if not theirs.is_sealed:
        _check_empty(target, tables)
    target.check_unused()


def _is_shell(ours: Marks, their_departure: Departure) -> bool:
    """True if the target is the store that the source's queue came from: this move brings the queue back."""
    return ours.arrived is not None and ours.arrived.move == their_departure.move


def _check_empty(target: Endpoint, tables: Sequence[Table]) -> None:
    for table in tables:
        if table.name not in MAY_BE_THERE and not target.is_empty(table):
            raise StoreError(
                f"{target.name} is not empty: table {table.name} has rows. A queue moves to a new store; "
                "name another file, schema or database"
            )


def _told_again(source: Endpoint, target: Endpoint, departure: Departure, theirs: Marks) -> Moved:
    """Return the result of a move that has ended, and complete the source's record if it was interrupted before."""
    assert theirs.arrived is not None  # noqa: S101 - the caller has looked
    at = departure.ended_at or theirs.arrived.at
    if departure.ended_at is None:
        _tell_source(source, departure, at)
    return Moved(source.name, target.name, {}, at, before=True)


# The steps of a move


def _seal(endpoint: Endpoint, found: Marks) -> str:
    return marks.refusal(found, endpoint.name)


def _seal_source(source: Endpoint, departure: Departure, now: int) -> None:
    with source.writing(_seal(source, Marks(departure=departure)), durable=True):
        source.settle(now)
        if source.query("SELECT 1 FROM taskmill_task WHERE status = 'running' LIMIT 1"):
            raise StoreError(
                f"{source.name}: tasks are marked as running, but no scheduler runs them; run `taskmill doctor`"
            )
        source.depart(departure)


def _begin(target: Endpoint, arrival: Arrival, tables: Sequence[Table]) -> None:
    """Empty the target and start its arrival.

    Nothing of value is lost: the target holds an unfinished copy, the few rows that a scheduler writes when it opens a
    store, or the remains of a queue that was moved away.
    """
    with target.writing(_seal(target, Marks(arrival=arrival))):
        target.check_unused()
        target.clear(tables)
        target.depart(None)
        target.remember(None)
        target.arrive(arrival)


def _copy(source: Endpoint, target: Endpoint, tables: Sequence[Table], arrival: Arrival, tell: Tell) -> Arrival:
    total = sum(map(source.count, tables))
    done = sum(copied.rows for copied in arrival.copied.values())
    seal = _seal(target, Marks(arrival=arrival))
    for table in tables:
        tell(Step("copying", table.name, done, total))
        copied = arrival.copied.get(table.name, Copied())
        if copied.whole:
            continue
        key = [table.columns.index(column) for column in table.key]
        with contextlib.closing(source.stream(table, copied.after, ordered=True)) as rows:
            for batch in _batches(rows):
                copied = Copied(copied.rows + len(batch), [batch[-1][position] for position in key])
                arrival = _noted(arrival, table, copied)
                _store(source, target, seal, table, batch, arrival)
                done += len(batch)
                tell(Step("copying", table.name, done, total))
        arrival = _noted(arrival, table, msgspec.structs.replace(copied, whole=True))
        with target.writing(seal):
            target.arrive(arrival)
    return arrival


def _store(source: Endpoint, target: Endpoint, seal: str, table: Table, batch: Sequence[Row], arrival: Arrival) -> None:
    try:
        with target.writing(seal):
            target.write(table, batch)
            target.arrive(arrival)
    except Unstorable:
        _blame(source, target, seal, table, batch)
        raise


def _noted(arrival: Arrival, table: Table, copied: Copied) -> Arrival:
    return msgspec.structs.replace(arrival, copied={**arrival.copied, table.name: copied})


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        for value in row:
            if type(value) is str:
                size += len(value)
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _blame(source: Endpoint, target: Endpoint, seal: str, table: Table, rows: Sequence[Row]) -> None:
    """Find the first row that the target refuses, by bisection, and raise ``StoreCorrupt`` with its key."""
    refused = rows
    while len(refused) > 1:
        half = refused[: len(refused) // 2]
        refused = half if _why_refused(target, seal, table, half) else refused[len(half) :]
    why = _why_refused(target, seal, table, refused)
    where = ", ".join(
        f"{name} {value!r}" for name, value in zip(table.columns, refused[0], strict=True) if name in table.key
    )
    raise StoreCorrupt(
        f"{target.name} cannot hold a row of {table.name} ({where}) as it is in {source.name}: {why}; "
        "the source is unchanged, and the same command with --undo opens it again"
    )


def _why_refused(target: Endpoint, seal: str, table: Table, rows: Sequence[Row]) -> str | None:
    try:
        with contextlib.suppress(_Unwanted), target.writing(seal):
            target.write(table, rows)
            raise _Unwanted
    except Unstorable as wrong:
        return str(wrong)
    return None


class _Unwanted(Exception):
    """Raised to roll back a trial."""


def _compare(
    source: Endpoint, target: Endpoint, tables: Sequence[Table], arrival: Arrival, tell: Tell
) -> dict[str, Checksum]:
    sums: dict[str, Checksum] = {}
    total = 2 * sum(copied.rows for copied in arrival.copied.values())
    done = 0
    for table in tables:
        found: list[Checksum] = []
        for endpoint in (source, target):
            checksum = Checksum()
            with contextlib.closing(endpoint.stream(table, ordered=False)) as rows:
                while (more := add_up(checksum, itertools.islice(rows, LOOK_ROWS))) != checksum:
                    done += more.rows - checksum.rows
                    checksum = more
                    tell(Step("comparing", table.name, done, total))
            found.append(checksum)
        sums[table.name], there = found
        if there != sums[table.name]:
            _spoil(target, arrival)
            raise StoreError(
                f"{table.name} differs: {sums[table.name]} in {source.name}, {there} in {target.name}. Nothing was "
                "handed over and the source is unchanged; the same command copies again, and with --undo gives up"
            )
    return sums


def _spoil(target: Endpoint, arrival: Arrival) -> None:
    with target.writing(_seal(target, Marks(arrival=arrival))):
        target.arrive(msgspec.structs.replace(arrival, spoiled=True))


def _hand_over(
    source: Endpoint, target: Endpoint, departure: Departure, arrival: Arrival, sums: Mapping[str, Checksum], now: int
) -> Moved:
    departure = msgspec.structs.replace(departure, handing_over=True)
    with source.writing(_seal(source, Marks(departure=departure)), durable=True):
        source.depart(departure)
    with target.writing(None, durable=True):
        target.arrive(None)
        target.remember(Arrived(arrival.move, source.name, now))
    _tell_source(source, departure, now)
    rows = {name.removeprefix("taskmill_"): found.rows for name, found in sums.items()}
    return Moved(source.name, target.name, rows, now)


def _tell_source(source: Endpoint, departure: Departure, at: int) -> None:
    departure = msgspec.structs.replace(departure, ended_at=at)
    with source.writing(_seal(source, Marks(departure=departure)), durable=True):
        source.depart(departure)
