"""Callers' transactions in which tasks were stored: other nodes are notified once such a transaction is committed."""

from __future__ import annotations

import msgspec
import psycopg

from taskmill.store.postgres.session import Session

_decode_states = msgspec.json.Decoder(list[tuple[str, str | None]]).decode


class CallersTransactions:
    """The numbers of callers' transactions in progress. Any thread may add one."""

    def __init__(self) -> None:
        self._numbers: set[str] = set()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: str) -> None:
        self._numbers.add(number)

    def take_committed(self, session: Session) -> bool:
        """Remove the transactions that have ended; return True if any of them was committed."""
        ended = [(number, state) for number, state in _states(session, sorted(self._numbers)) if state != "in progress"]
        self._numbers -= {number for number, _ in ended}
        return any(state == "committed" for _, state in ended)


def _states(session: Session, numbers: list[str]) -> list[tuple[str, str | None]]:
    """Return the number and state of each transaction; the state is None if the server has lost it in a crash."""
    try:
        given = msgspec.json.encode(numbers).decode()
        return _decode_states(session.execute("transaction_states", (given,)).fetchone()[0])
    except psycopg.errors.InvalidParameterValue:
        if len(numbers) == 1:
            # "In the future": the server has crashed, and has not assigned that number again.
            return [(numbers[0], None)]
        return [state for number in numbers for state in _states(session, [number])]
