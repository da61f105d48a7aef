"""Control: cancel, revive, tune, prune."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Unpack

from taskmill.errors import ConfigError, InvalidState
from taskmill.handle import Handle
from taskmill.model.effects import SeriesChange
from taskmill.model.filters import FilterOptions, checked_filters
from taskmill.model.records import HistoryRecord
from taskmill.model.retention import PRUNE_BITE, Retention
from taskmill.model.stages import Stored
from taskmill.verbs.parts import checked_id
from taskmill.verbs.reading import Reading


class Control(Reading):
    """Verbs that act on stored tasks."""

    async def cancel(self, id: int) -> bool:
        """Cancel a task: at once if it waits; a running one is asked to stop. ``False`` if it had ended."""
        self._opened()
        result = await self._store.cancel([checked_id(id)], self._clock.now_ms())
        self._follow(result.effects)
        if not result.ids:
            await self.get(id)
            return False
        return True

    async def cancel_where(self, **filters: Unpack[FilterOptions]) -> list[int]:
        """Cancel every active task that matches; returns their ids."""
        self._opened()
        chosen = checked_filters(filters)
        if not chosen.selects:
            raise ConfigError("cancel_where needs at least one filter; it would cancel everything")
        found = [record.id for record in await self._store.tasks(chosen)]
        cancelled: list[int] = []
        for start in range(0, len(found), PRUNE_BITE):
            result = await self._store.cancel(found[start : start + PRUNE_BITE], self._clock.now_ms())
            self._follow(result.effects)
            cancelled += result.ids
        return sorted(cancelled)

    async def retry_dead(self, id: int) -> Handle[Any]:
        """Bring a dead letter back to the queue, under its own id and with a fresh retry counter."""
        self._opened()
        task = await self._store.revive(checked_id(id), self._clock.now_ms())
        if task is None:
            record = await self.get(id)
            state = record.ending if isinstance(record, HistoryRecord) else record.status
            raise InvalidState(f"task {id} is {state}, not a dead letter")
        self._announcer.revived(task)
        if self._dispatcher is not None:
            self._dispatcher.look_again()
        return self._handle(task.type, Stored(task.id, "inserted"))

    async def pause_recurring(self, id: int) -> None:
        """Pause a recurring series, named by any task of it: nothing of it starts until it is resumed."""
        change = await self._change_series(self._store.pause_series, id)
        if change.occurrence is not None:
            self._announcer.paused(change.occurrence)

    async def resume_recurring(self, id: int) -> None:
        """Go on with the next occurrence of a paused series; those that passed meanwhile are skipped."""
        change = await self._change_series(self._store.resume_series, id)
        if change.occurrence is not None:
            self._announcer.resumed(change.occurrence)

    async def cancel_recurring(self, id: int) -> None:
        """End a recurring series; its present occurrence is cancelled."""
        await self._change_series(self._store.cancel_series, id)

    async def _change_series(
        self, change_series: Callable[[int, int], Awaitable[SeriesChange]], id: int
    ) -> SeriesChange:
        self._opened()
        await self._settle_clock()
        change = await change_series(checked_id(id), self._clock.now_ms())
        if change.series_id is None:
            await self.get(id)
            raise InvalidState(f"task {id} is not part of a recurring series, or its series has ended")
        self._follow(change.effects)
        return change

    async def prune(self, retention: Retention | None = None) -> int:
        """Apply retention now, the scheduler's or the one given; returns how many rows of history went."""
        self._opened()
        rule = self._settings.retention if retention is None else retention
        if rule is None:
            return 0
        rules = rule.rules()
        removed = 0
        while bite := await self._store.prune(rules, self._clock.now_ms(), PRUNE_BITE):
            removed += bite
        return removed
