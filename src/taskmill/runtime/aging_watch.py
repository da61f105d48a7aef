"""Telling when waiting tasks grow more urgent, if anyone wants to know.

Nothing is written as tasks age, so nothing happens by itself when one crosses a line. While somebody listens for that,
the store is asked which tasks have crossed one since the last look: a range of each lane's index, whatever waits in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from taskmill.core.ports import Dispatches
from taskmill.errors import StoreError
from taskmill.model.task import Crossing, Lane
from taskmill.observe.log import logger
from taskmill.policy.aging import lines_ahead, wait_until_ms
from taskmill.policy.rules import Rules
from taskmill.runtime.announcer import Announcer

LEAST_PAUSE_MS = 1000
"""Between two looks, so that a backlog in which tasks cross lines all the time costs little."""


class AgingWatch:
    """Announces ``TaskAged``."""

    def __init__(self, store: Dispatches, announcer: Announcer) -> None:
        self._store = store
        self._announcer = announcer
        self._looked_at: int | None = None
        self._version = -1
        self.next_look: int | None = None

    def clock_stepped(self, by_ms: int) -> None:
        """Nobody has waited longer or shorter for it."""
        if self._looked_at is not None and self.next_look is not None:
            self._looked_at += by_ms
            self.next_look += by_ms

    def is_due(self, rules: Rules, now: int) -> bool:
        if rules.declared.aging is None or not self._announcer.wants_aging:
            self._looked_at = self.next_look = None
            return False
        if self._looked_at is None or self._version != rules.controls.version:
            # Where time was given back after a pause, the past is no longer what it was.
            self._looked_at = self.next_look = now
            self._version = rules.controls.version
        return self.next_look is not None and self.next_look <= now

    async def look(self, rules: Rules, lanes: Iterable[Lane], now: int) -> None:
        """Announce the tasks that have crossed a line since the last look."""
        aging = rules.declared.aging
        assert aging is not None  # noqa: S101 - else no look is due
        since = now if self._looked_at is None else self._looked_at
        crossings = [
            Crossing(lane, since - wait, now - wait)
            for lane in lanes
            if not any(pause.holds(now) for pause in rules.pauses(lane.group, lane.type).values())
            if not rules.owed(lane.group, lane.type)
            for line in lines_ahead(aging, lane.urgency)
            if (wait := wait_until_ms(aging, lane.urgency, line)) is not None
        ]
        # What begins to wait now crosses nothing before this.
        self.next_look = now + aging.grace_ms + aging.interval_ms
        try:
            crossed, following = await self._store.crossings(crossings)
        except StoreError as wrong:
            logger.error("tasks that grew more urgent could not be read, trying again: %s", wrong)
            self.next_look = now + LEAST_PAUSE_MS
            return
        self._looked_at = now
        for task in crossed:
            self._announcer.aged(task, now)
        for crossing, aged_from in zip(crossings, following, strict=True):
            if aged_from is not None:
                crosses_at = aged_from + now - crossing.until
                self.next_look = min(self.next_look, max(crosses_at, now + LEAST_PAUSE_MS))
