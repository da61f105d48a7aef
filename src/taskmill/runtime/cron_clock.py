"""The clock of cron tasks: fires what is due, and knows when something else will be.

What each task has coming is on an agenda, so that a look when nothing is due costs the same however many tasks there
are. Retries and restarts are not on it: the engine does them with the task that was fired.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, tzinfo

from taskmill.core.cron_port import CronStore, Occasion
from taskmill.core.exits import ends_program
from taskmill.core.ports import Clock
from taskmill.define.registry import Registry
from taskmill.errors import StoreCorrupt, StoreError, StoreLost
from taskmill.model.attempt import message_of
from taskmill.model.cron import CronState
from taskmill.observe.log import cron_logger as logger
from taskmill.policy.cron.decisions import Agenda, next_occurrence
from taskmill.runtime.announcer import Announcer
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.commits import Commits
from taskmill.runtime.cron_tasks import CronTask

BITE = 64
"""How many tasks are fired in one transaction. Others get their turn in between."""
PATIENCE_MS = 1_000
"""How long to wait before what could not be done is tried again."""


class CronClock:
    """Fires the cron tasks of one scheduler while it dispatches."""

    def __init__(
        self,
        store: CronStore,
        registry: Registry,
        clock: Clock,
        announcer: Announcer,
        commits: Commits,
        tasks: Sequence[CronTask],
    ) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock
        self._announcer = announcer
        self._commits = commits
        self._tasks = {task.name: task for task in tasks}
        self._zone: tzinfo = UTC
        self._agenda = Agenda()
        self._in_doubt: set[str] = set()
        """Tasks whose states may be other than is known here."""
        self._look_at: int | None = None
        """When to ask the store about those, if it could not answer."""

    async def begin(self) -> None:
        """Compare what is declared with what is stored; the declarations win."""
        if not self._tasks and not await self._store.cron_rows():
            return
        now, self._zone = self._clock.now_ms(), self._clock.zone()
        begun = await self._store.begin_cron([task.declaration() for task in self._tasks.values()], now, self._zone)
        if begun.difference.total:
            logger.info(
                "cron tasks have changed: %d added, %d removed%s, %d settings modified",
                len(begun.difference.added),
                len(begun.difference.removed),
                f" ({', '.join(begun.difference.removed)})" if begun.difference.removed else "",
                len(begun.difference.modified),
                extra=begun.difference.attributes(),
            )
        self.follow(begun.states)
        self._commits.publish(begun.commit, now, durable=True)

    @property
    def next_at(self) -> int | None:
        """When something is due."""
        return self._agenda.earliest() if self._look_at is None else self._look_at

    def is_due(self, now: int) -> bool:
        at = self.next_at
        return at is not None and at <= now

    def follow(self, states: Iterable[CronState]) -> None:
        """Something was committed about these tasks."""
        for state in states:
            task = self._tasks.get(state.name)
            if task is not None:
                self._agenda.put(state.name, self._moment(state, task))

    def _moment(self, state: CronState, task: CronTask) -> int | None:
        try:
            return next_occurrence(state, task.registration.expression, self._zone)
        except Exception:  # noqa: BLE001 - whatever it is, the loop goes on
            # One task that cannot be reckoned must not keep the others from running.
            logger.exception("when cron task %r is due cannot be told, trying again", state.name)
            return self._clock.now_ms() + PATIENCE_MS

    def look_again(self) -> None:
        """Another process may have ended what was at work."""
        if self._tasks:
            self._doubt(name for name in self._tasks if name not in self._agenda)

    def clock_stepped(self) -> None:
        """What has passed may come again."""
        self._doubt(self._tasks)

    def _doubt(self, names: Iterable[str]) -> None:
        self._in_doubt.update(names)
        self._look_at = 0 if self._in_doubt else None

    async def look(self) -> None:
        """Fire what is due; of much that is due at once a part, so that others get their turn in between."""
        now = self._clock.now_ms()
        try:
            if self._look_at is not None:
                await self._read_again()
            if due := self._agenda.take_due(now, BITE):
                await self._fire(due, now)
        except StoreLost:
            raise
        except StoreError as wrong:
            # A value that cannot be read may also be a mistake in a calculation: the traceback tells.
            unreadable = isinstance(wrong, StoreCorrupt)
            logger.error("the store could not be asked about cron tasks, trying again: %s", wrong, exc_info=unreadable)
        except Exception:  # noqa: BLE001 - whatever it is, the loop goes on
            logger.exception("cron tasks that are due could not be fired, trying again")

    async def _read_again(self) -> None:
        names, self._look_at = list(self._in_doubt), self._clock.now_ms() + PATIENCE_MS
        rows = await self._store.cron_rows(names)
        self._in_doubt.difference_update(names)
        self._look_at = 0 if self._in_doubt else None
        self.follow(row.state for row in rows)

    async def _fire(self, names: Sequence[str], now: int) -> None:
        for name in names:
            # Until they have been fired they are due soon, whatever happens here.
            self._agenda.put(name, now + PATIENCE_MS)
        occasions = [occasion for name in names if (occasion := self._occasion(name, now)) is not None]
        firings = await self._store.fire_cron(occasions, now, self._zone)
        for occasion in occasions:
            self._agenda.put(occasion.name, None)
        self.follow(firings.states)
        for fired in firings.fired:
            self._announcer.fired(fired, self._zone)
        for name in firings.forgotten:
            logger.warning("cron task %r does not run any longer: another node has declared a list without it", name)
        for name, why in firings.left:
            logger.info("an occurrence of cron task %r does not run: %s", name, why)

    def _occasion(self, name: str, now: int) -> Occasion | None:
        task = self._tasks[name]
        try:
            return Occasion(name, task.registration.expression, task.firing(self._registry, now))
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            # What computes an option of it has failed, in whatever way.
            logger.error("cron task %r cannot be started, trying again: %s", name, message_of(wrong))
            return None

    def note_cut_short(self, attempts: Iterable[Attempt]) -> None:
        """These attempts are stopped before their end because the scheduler stops."""
        for attempt in attempts:
            if attempt.task.cron is not None:
                logger.warning("cron task %r is cut short by a stop; it will start again", attempt.task.cron)
