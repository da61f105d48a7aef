"""A connection that has fallen silent by itself, while the server answers on another.

A call may wait for long, for a lock or because there is much to do. So it is not given up before the server was asked
what its session is at: one that does nothing for us, or is gone, or cannot get rid of its answer, has been lost on the
way. What became of its transaction is found out on the next connection.
"""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

from taskmill.logs import logger
from taskmill.store.postgres.connection import PatientConnection
from taskmill.store.postgres.session import Session

UNHEARD = 8.0
"""Seconds for which a call waits before the server is asked."""
NOTHING_TO_DO = 2.0
"""Seconds for which its session has done nothing: an answer would have arrived by now."""


def give_up_unheard(asking: Session, others: Iterable[Session]) -> None:
    """Ask through one session what the others are at, if they wait for long; called again and again."""
    for other in others:
        raw = other.raw
        if not isinstance(raw, PatientConnection) or raw.unheard_for < UNHEARD:
            continue
        number = None if raw.alias else raw.info.backend_pid
        try:
            is_lost = asking.execute("works_for_nobody", (number, raw.alias, NOTHING_TO_DO)).fetchone()[0]
        except psycopg.errors.InsufficientPrivilege:
            # We are not told. The call ends after the longest time that the server works on one.
            continue
        if is_lost:
            logger.warning("a connection to the server has fallen silent; another is opened")
            other.give_up()
