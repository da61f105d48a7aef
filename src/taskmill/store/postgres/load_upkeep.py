"""Keeping ``taskmill_load`` short: its rows are changes of the numbers of tasks, and reading them all takes time.

Every process that writes looks at the table once a second, as a part of one of its transactions. If there are many more
rows than its last merge left, it merges them. A node does nothing while another node merges. The table has to
double before it is merged again, so merging costs about the same for each change, however many groups there are
(docs/decisions/0032).
"""

from __future__ import annotations

import time

from taskmill.store.postgres.session import Session

LOOK_EVERY = 1.0
"""Seconds between two looks at the table."""
FEW_ROWS = 1000
"""With no more rows than this, merging saves no measurable time."""


class LoadUpkeep:
    """Decides when one process merges the rows."""

    def __init__(self) -> None:
        self._look_at = 0.0
        self._numbers = 0
        """The smallest number of rows seen since the last merge."""

    def merge_if_long(self, session: Session) -> None:
        """Merge the rows if there are too many; called in a transaction that writes."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        rows, is_allowed = session.execute("rows_of_load").fetchone()
        self._numbers = min(self._numbers, rows)
        # A role that only submits may append rows, but not delete any.
        if is_allowed and rows > 2 * self._numbers + FEW_ROWS:
            self._numbers = session.execute("fold_load").fetchone()[0]
