"""Track what other processes have changed in the queue since this one last read it, and what to read because of it.

On SQLite new tasks are found by their ids (docs/decisions/0034). Nodes on PostgreSQL name the tasks that they queue
(docs/decisions/0035).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from taskmill.model.commit import Changes
from taskmill.model.task import Lane
from taskmill.model.turn import Look, News

MOST_NEWS_READ = 1000
"""A survey follows after this many changes by other processes, to find changes that were not made by taskmill."""


class OthersNews:
    """Changes by other processes that can be read without a survey."""

    def __init__(self) -> None:
        self._known: News | None = None
        """The known changes; None before the first survey, and on PostgreSQL, where ids do not show what is new."""
        self._is_wanted = False
        """True if another process has committed since the news was read."""
        self._queued: frozenset[int] = frozenset()
        """Tasks that other nodes have put into the queue, and that were not read yet."""
        self._outdated: set[Lane] = set()
        """Lanes in which other nodes have claimed tasks that were picked here. They are read with the next turn, so
        that the order among lanes is right."""
        self._count = 0
        """How often changes were noted since the last survey."""

    @property
    def is_waiting(self) -> bool:
        """True if tasks may have been queued that were not read yet."""
        return self._is_wanted or bool(self._queued)

    def hear(self, changes: Changes) -> bool:
        """Note changes by other processes; return False if only a survey can show them."""
        self._count += 1
        if self._count > MOST_NEWS_READ or (changes.more and self._known is None):
            return False
        if changes.more:
            self._is_wanted = True
        else:
            self._queued |= changes.queued
        return True

    def stored_here(self, id: int) -> None:
        """Note that this process has stored a task, which need not be read."""
        if self._known is not None and id == self._known.last_id + 1:
            self._known = News(id, self._known.moves)

    def taken_elsewhere(self, lanes: Iterable[Lane]) -> None:
        """Note that other nodes have claimed tasks that were picked here."""
        self._outdated.update(lanes)

    def look(self, look: Look) -> Look:
        """Add the pending reads to a turn."""
        news, self._is_wanted = self._known if self._is_wanted else None, False
        queued, self._queued = self._queued, frozenset()
        refill = [*look.refill, *self._outdated.difference(look.refill)]
        self._outdated.clear()
        return msgspec.structs.replace(look, news=news, queued=queued, refill=refill)

    def read(self, look: Look, news: News | None) -> None:
        """Note that a turn has made its reads."""
        self._known = news or self._known
        if look.survey:
            self._count = 0
            self._outdated.clear()

    def forget(self) -> None:
        """Drop the pending reads, because a survey follows."""
        self._is_wanted, self._queued = False, frozenset()
