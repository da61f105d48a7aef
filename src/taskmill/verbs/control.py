"""Cancel, revive and prune tasks; pause, resume and cancel recurring series."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from taskmill.errors import ConfigError, InvalidState, StoreError
from taskmill.handle import Handle
from taskmill.model.filters import FilterOptions, checked_filters
from taskmill.model.options import checked_id
from taskmill.model.records import HistoryRecord
from taskmill.model.settings import PRUNE_BITE, Retention, chosen_retention
from taskmill.model.status import Ending
from taskmill.model.submission import Stored
from taskmill.verbs.waiting import WaitMethods

if TYPE_CHECKING:
    from taskmill.model.commit import CancelResult, SeriesChange
    from taskmill.model.settings import RetentionLimits
    from taskmill.model.task import Claimed


REVIVE_BITE = 50
"""How many dead letters one transaction returns to the queue, so that other transactions do not wait long for it."""


class ControlMethods(WaitMethods):
    """Methods that act on stored tasks."""

    async def cancel(self, id: int) -> bool:
        """End a waiting task, or ask a running one to stop; return ``False`` if the task had already ended."""
        self._opened()
        result = await self._cancel([checked_id(id)])
        if not result.ids:
            await self.get(id)
            return False
        return True

    async def cancel_where(self, **filters: Unpack[FilterOptions]) -> list[int]:
        """Cancel every active task that matches and return their ids."""
        self._opened()
        chosen = checked_filters(filters)
        if not chosen.selects:
            raise ConfigError("cancel_where needs at least one filter; without one it would cancel every task")
        await self._store_beginnings()
        found = [record.id for record in await self._store.tasks(chosen)]
        cancelled: list[int] = []
        for start in range(0, len(found), PRUNE_BITE):
            result = await self._cancel(found[start : start + PRUNE_BITE])
            cancelled += result.ids
        return sorted(cancelled)

    async def _cancel(self, ids: Sequence[int]) -> CancelResult:
        """Cancel tasks. Prefetched ones end at once, as waiting tasks do."""
        result = await self._cancel_withheld(ids, self._withhold(ids))
        late = self._withhold(result.ids)
        self._follow(result.commit)
        if late:
            # A turn that was in progress has claimed them.
            try:
                self._follow((await self._cancel_withheld([task.id for task in late], late)).commit)
            except StoreError:
                from taskmill.core.logs import logger

                # The request to stop them is stored, so they end with the next turn that the store accepts.
                logger.warning("%d cancelled tasks end once the store accepts writes again", len(late))
        return result

    def _withhold(self, ids: Sequence[int]) -> list[Claimed]:
        return [] if self._loop is None else self._loop.prefetching.withhold(ids)

    async def _cancel_withheld(self, ids: Sequence[int], withheld: Sequence[Claimed]) -> CancelResult:
        """Cancel tasks, some of which were prefetched and can no longer begin."""
        tokens = [(task.id, task.attempt) for task in withheld]
        try:
            return await self._store.cancel(ids, self._clock.now_ms(), tokens)
        except BaseException:
            if self._loop is not None and withheld:
                self._loop.prefetching.return_withheld(withheld)
                self._loop.wake()
            raise

    async def retry_dead(self, id: int) -> Handle[Any]:
        """Return a dead letter to the queue under its own id, with a fresh retry counter."""
        self._opened()
        task = await self._store.revive(checked_id(id), self._clock.now_ms())
        if task is None:
            record = await self.get(id)
            state = record.ending if isinstance(record, HistoryRecord) else record.status
            raise InvalidState(f"task {id} is {state}, not a dead letter")
        self._announcer.revived(task)
        if self._loop is not None:
            self._loop.look_again()
        return self._handle(task.type, Stored(task.id, "inserted"))

    async def retry_where(self, **filters: Unpack[FilterOptions]) -> list[int]:
        """Return every dead letter that matches to the queue, and return their ids.

        A dead letter stays if another task holds its key. ``exception`` and ``location`` select by the last error.
        """
        self._opened()
        chosen = checked_filters(filters)
        if chosen.status not in (None, Ending.DEAD_LETTER):
            raise ConfigError(f"retry_where returns dead letters to the queue; status cannot be {chosen.status}")
        if not chosen.selects:
            raise ConfigError("retry_where needs at least one filter; status='dead_letter' selects every dead letter")
        # All ids are read first: a task that fails again meanwhile must not return twice.
        found = await self._store.ended_ids(msgspec.structs.replace(chosen, status=Ending.DEAD_LETTER))
        revived: list[int] = []
        for start in range(0, len(found), REVIVE_BITE):
            tasks = await self._store.revive_all(found[start : start + REVIVE_BITE], self._clock.now_ms())
            for task in tasks:
                self._announcer.revived(task)
            if self._loop is not None and tasks:
                self._loop.look_again()
            revived += [task.id for task in tasks]
        return sorted(revived)

    async def pause_recurring(self, id: int) -> None:
        """Pause the recurring series that task ``id`` belongs to: none of its tasks starts until it is resumed."""
        change = await self._change_series(self._store.pause_series, id)
        if change.occurrence is not None:
            self._announcer.paused(change.occurrence)

    async def resume_recurring(self, id: int) -> None:
        """Resume a paused series with its next occurrence; those that passed meanwhile are skipped."""
        change = await self._change_series(self._store.resume_series, id)
        if change.occurrence is not None:
            self._announcer.resumed(change.occurrence)

    async def cancel_recurring(self, id: int) -> None:
        """End a recurring series and cancel its current occurrence."""
        await self._change_series(self._store.cancel_series, id)

    async def _change_series(
        self, change_series: Callable[[int, int], Awaitable[SeriesChange]], id: int
    ) -> SeriesChange:
        self._opened()
        await self._settle_clock()
        change = await change_series(checked_id(id), self._clock.now_ms())
        self._follow(change.commit)
        if change.series_id is None:
            await self.get(id)
            raise InvalidState(f"task {id} is not part of a recurring series, or its series has ended")
        return change

    async def prune(self, retention: Retention | None = None, **limits: Unpack[RetentionLimits]) -> int:
        """Prune history now and return the number of deleted rows.

        The limits are those of ``retention``, or its fields given by name, or else the scheduler's retention.
        ``prune(max_age="30d")`` deletes the tasks that ended more than 30 days ago, however few tasks are left.
        """
        self._opened()
        rule = chosen_retention(retention, limits) or self._settings.retention
        if rule is None:
            return 0
        rules = rule.rules()
        removed = 0
        while bite := await self._store.prune(rules, self._clock.now_ms(), PRUNE_BITE):
            removed += bite
        return removed
