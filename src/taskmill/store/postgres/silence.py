"""Detecting a connection that no longer gets answers while the server answers on another one.

A call may rightly take long, because it waits for a lock or has much to do. So the server is asked for the state of the
call's session first. If the session is idle, gone, or blocked sending its answer, the connection is broken, and the
call is given up. The writer finds out on its next connection whether the transaction was committed.
"""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

from taskmill.core.logs import logger
from taskmill.store.postgres.connection import PatientConnection
from taskmill.store.postgres.session import Session

UNHEARD = 8.0
"""Seconds that a call waits without an answer before the server is asked about its session."""
NOTHING_TO_DO = 2.0
"""Seconds for which the session must have been idle: its answer would have arrived by then."""


def give_up_unheard(asking: Session, others: Iterable[Session]) -> None:
    """Check the sessions that have waited long for an answer, through ``asking``, and give up the broken ones.

    Called with each heartbeat.
    """
    for other in others:
        raw = other.raw
        if not isinstance(raw, PatientConnection) or raw.unheard_for < UNHEARD:
            continue
        number = None if raw.alias else raw.info.backend_pid
        try:
            is_lost = asking.execute("is_abandoned", (number, raw.alias, NOTHING_TO_DO)).fetchone()[0]
        except psycopg.errors.InsufficientPrivilege:
            # This role may not see other sessions. The call then ends with the server's statement timeout.
            continue
        if is_lost:
            logger.warning("a connection to the server no longer gets answers; another is opened")
            other.give_up()
