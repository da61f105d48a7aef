"""IO totals of task types, and the last reading of each dispatcher's machine."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import msgspec

from taskmill.errors import ConfigError
from taskmill.model.machine import Machine, MovedIo
from taskmill.model.status import Ending
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.statements import SQL

if TYPE_CHECKING:
    from taskmill.model.turn import Judged

_decode_moved = msgspec.json.Decoder(list[MovedIo]).decode
_decode_machine = msgspec.json.Decoder(Machine).decode
_decode_budgets = msgspec.json.Decoder(list[tuple[str, str, int | None]]).decode


def note_io(connection: Connection, judged: Sequence[Judged]) -> None:
    """Store the IO of attempts with their tasks."""
    if rows := [(each.task.id, each.task.attempt, each.io) for each in judged if each.io is not None]:
        connection.execute(SQL["note_io"], (encoded(rows),))


def learn_io(connection: Connection, judged: Sequence[Judged], lost: Container[tuple[int, int]]) -> None:
    """Add the IO of successful attempts to the totals of their types, except attempts whose token was lost."""
    learned = [
        (each.task.type, msgspec.Raw(each.io.encode()))
        for each in judged
        if each.io and _succeeded(each) and (each.task.id, each.task.attempt) not in lost
    ]
    if learned:
        connection.execute(SQL["learn_io"], (encoded(learned),))


def _succeeded(judged: Judged) -> bool:
    # Imported here, because a command that only reads judges no attempt.
    from taskmill.model.attempt import End, Wait

    match judged.verdict:
        case End(Ending.COMPLETED) | Wait():
            return True
        case _:
            return False


def moved(connection: Connection) -> dict[str, MovedIo]:
    """Return the IO totals by task type."""
    return {each.type: each for each in _decode_moved(one(connection, SQL["moved"]))}


def moved_by_type(connection: Connection, type: str) -> MovedIo | None:
    row = connection.execute(SQL["moved_by_type"], (type,)).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=MovedIo)


def running_budgets(connection: Connection) -> list[tuple[str, str, int | None]]:
    """Return ``(type, io, node)`` of running tasks that have an IO budget."""
    return _decode_budgets(one(connection, SQL["running_budgets"]))


def machine(connection: Connection, name: str) -> Machine | None:
    """Return the last stored reading of a machine."""
    row = connection.execute(SQL["machine"], (name,)).fetchone()
    return None if row is None else readable_machine(row[0])


def readable_machine(stored: str | None) -> Machine | None:
    """Decode a stored reading; return None if it is damaged, because the next reading replaces it."""
    try:
        return None if stored is None else _decode_machine(stored)
    except (msgspec.MsgspecError, ConfigError, UnicodeError):
        return None


def note_machine(connection: Connection, machine: Machine, name: str) -> None:
    connection.execute(SQL["note_machine"], (encoded(machine), name))
