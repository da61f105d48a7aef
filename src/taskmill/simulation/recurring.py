"""The future occurrences of recurring series and cron tasks in a simulation."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo

import msgspec

from taskmill.model.cron import CronState
from taskmill.model.queue_state import QueuedCron, QueuedSeries, QueuedTask, WholeQueue
from taskmill.model.status import Ending, Status
from taskmill.policy.cron import decisions
from taskmill.policy.cron.expression import CronExpression
from taskmill.policy.series import is_spent, next_occurrence
from taskmill.simulation.agenda import RECURRING


class Recurring:
    """Makes the next occurrence when the last one has ended, by the rules of :mod:`taskmill.policy`."""

    def __init__(
        self,
        queue: WholeQueue,
        zone: tzinfo,
        add: Callable[[QueuedTask, int | None], None],
        at: Callable[[int, Callable[[int], None], int], None],
    ) -> None:
        self._zone = zone
        self._add = add
        self._at = at
        self._series = {series.id: msgspec.structs.replace(series) for series in queue.series if not series.paused}
        self._crons: list[QueuedCron] = list(queue.crons)
        self._numbers = {cron.state.name: number for number, cron in enumerate(self._crons)}
        self._states: list[CronState] = [cron.state for cron in self._crons]
        self._expressions = [CronExpression.parse(cron.state.expression) for cron in self._crons]
        self._now = queue.now
        self._last_id = 0

    @property
    def is_any(self) -> bool:
        """True if there is recurring work that is not paused."""
        return bool(self._series or self._crons)

    @property
    def made(self) -> int:
        """The number of occurrences made so far."""
        return -self._last_id

    def begin(self, now: int) -> None:
        """Plan the next firing of each cron task."""
        self._now = now
        for number in range(len(self._crons)):
            self._plan(number)

    def claimed(self, cron: str, now: int) -> None:
        """Note that a firing begins."""
        number = self._numbers.get(cron)
        if number is not None and self._states[number].firing is not None:
            self._states[number] = decisions.claimed(self._states[number], now)

    def ended(self, task: QueuedTask, ending: Ending, now: int) -> None:
        """Make the next occurrence of the series or cron task that an ended task belongs to."""
        if task.series_id is not None and (series := self._series.get(task.series_id)) is not None:
            self._follow(series, task, now)
        number = None if task.cron is None else self._numbers.get(task.cron)
        if number is not None and self._states[number].firing is not None:
            succeeded = ending is Ending.COMPLETED
            state = self._states[number]
            self._states[number] = decisions.succeeded(state, now) if succeeded else decisions.gave_up(state, now)
            self._now = now
            self._plan(number)

    def _new_id(self) -> int:
        # Negative, so that it differs from the id of every task.
        self._last_id -= 1
        return self._last_id

    def _follow(self, series: QueuedSeries, last: QueuedTask, now: int) -> None:
        if is_spent(series.runs, series.max_runs):
            return
        due_at = next_occurrence(series.first_at, series.every_ms, series.due_at, now).due_at
        series.due_at, series.runs = due_at, series.runs + 1
        self._add(self._occurrence(last, due_at, None if series.ttl_ms is None else due_at + series.ttl_ms), due_at)

    def _occurrence(self, like: QueuedTask, queued_at: int, expires_at: int | None) -> QueuedTask:
        id = self._new_id()
        return msgspec.structs.replace(
            like,
            id=id,
            place_id=id,
            status=Status.PENDING,
            created_at=queued_at,
            queued_at=queued_at,
            renewed_at=None,
            due_at=None,
            expires_at=expires_at,
            started_at=None,
            paused_at=None,
            clock_from=queued_at,
            retries=0,
            may_expire=expires_at is not None,
            gate_id=None,
            parent_id=None,
            stop=None,
        )

    def _plan(self, number: int) -> None:
        at = decisions.next_moment(self._states[number], self._expressions[number], self._zone)
        if at is not None:
            self._at(max(at, self._now), lambda _id: self._fire(number, max(at, self._now)), RECURRING)

    def _fire(self, number: int, now: int) -> None:
        self._now = now
        state, expression = self._states[number], self._expressions[number]
        why = decisions.due(state, expression, now, self._zone)
        if why is None:
            return
        self._states[number] = decisions.started(state, expression, why, now, self._zone)
        self._add(self._occurrence(self._crons[number].template, now, None), None)
