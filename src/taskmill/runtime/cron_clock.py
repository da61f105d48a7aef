"""Fire the cron tasks of a scheduler when they are due.

The next occurrence of each task is on an agenda, ordered by time, so that checking for due tasks costs the same however
many tasks there are. Retries and restarts are not on the agenda: a firing is an ordinary task, and the scheduler
retries it like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, tzinfo

from taskmill.core.cron_port import CronStore, Occasion
from taskmill.core.exits import ends_program
from taskmill.core.logs import cron_logger as logger
from taskmill.core.ports import Clock
from taskmill.define.registry import Registry
from taskmill.errors import StoreCorrupt, StoreError, StoreLost
from taskmill.model.cron import CronState
from taskmill.model.exceptions import message_of
from taskmill.policy.cron.decisions import Agenda, next_occurrence
from taskmill.runtime.announcer import Announcer, Commits
from taskmill.runtime.attempt import Attempt
from taskmill.runtime.cron_tasks import CronTask

BATCH = 64
"""The largest number of tasks to fire in one transaction, so that other transactions are committed in between."""
RETRY_MS = 1_000
"""How long to wait before a failed read or firing is tried again."""


class CronClock:
    """Fires cron tasks while the scheduler dispatches."""

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
        """Tasks whose stored states may have changed; they are read again."""
        self._read_at: int | None = None
        """When to read those states: 0 for at once, later if the last read failed, None if there are none."""

    async def begin(self) -> None:
        """Replace the stored cron tasks by the declared ones, and learn when each is due."""
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
        """When a task is due or a state is to be read."""
        return self._agenda.earliest() if self._read_at is None else self._read_at

    def is_due(self, now: int) -> bool:
        at = self.next_at
        return at is not None and at <= now

    def follow(self, states: Iterable[CronState]) -> None:
        """Put tasks on the agenda by their committed states."""
        for state in states:
            task = self._tasks.get(state.name)
            if task is not None:
                self._agenda.put(state.name, self._moment(state, task))

    def _moment(self, state: CronState, task: CronTask) -> int | None:
        try:
            return next_occurrence(state, task.registration.expression, self._zone)
        except Exception:  # noqa: BLE001 - one task whose occurrence cannot be computed must not stop the others
            logger.exception(
                "the next occurrence of cron task %r cannot be computed, retrying in %g s", state.name, RETRY_MS / 1000
            )
            return self._clock.now_ms() + RETRY_MS

    def look_again(self) -> None:
        """Read the states of running tasks again, which another process may have ended."""
        if self._tasks:
            self._doubt(name for name in self._tasks if name not in self._agenda)

    def clock_stepped(self) -> None:
        """Read all states again, because a step of the wall clock may repeat or skip occurrences."""
        self._doubt(self._tasks)

    def _doubt(self, names: Iterable[str]) -> None:
        self._in_doubt.update(names)
        self._read_at = 0 if self._in_doubt else None

    async def fire_due(self) -> None:
        """Fire the tasks that are due, at most :data:`BATCH` at once."""
        now = self._clock.now_ms()
        try:
            if self._read_at is not None:
                await self._read_again()
            if due := self._agenda.take_due(now, BATCH):
                await self._fire(due, now)
        except StoreLost:
            raise
        except StoreError as wrong:
            # An unreadable value may come from a bug in a calculation, which the traceback shows.
            unreadable = isinstance(wrong, StoreCorrupt)
            logger.error("the store refused to fire cron tasks, trying again: %s", wrong, exc_info=unreadable)
        except Exception:  # noqa: BLE001 - the loop must continue
            logger.exception("cron tasks that are due could not be fired, trying again")

    async def _read_again(self) -> None:
        names, self._read_at = list(self._in_doubt), self._clock.now_ms() + RETRY_MS
        rows = await self._store.cron_rows(names)
        self._in_doubt.difference_update(names)
        self._read_at = 0 if self._in_doubt else None
        self.follow(row.state for row in rows)

    async def _fire(self, names: Sequence[str], now: int) -> None:
        for name in names:
            # Due again soon if the firing fails; a success replaces this.
            self._agenda.put(name, now + RETRY_MS)
        occasions = [occasion for name in names if (occasion := self._occasion(name, now)) is not None]
        firings = await self._store.fire_cron(occasions, now, self._zone)
        for occasion in occasions:
            self._agenda.put(occasion.name, None)
        self.follow(firings.states)
        for fired in firings.fired:
            self._announcer.fired(fired, self._zone)
        for name in firings.forgotten:
            logger.warning(
                "cron task %r was removed: another node declares a list without it; declare the same list on all nodes",
                name,
            )
        for name, why in firings.left:
            logger.info("an occurrence of cron task %r does not run: %s", name, why)

    def _occasion(self, name: str, now: int) -> Occasion | None:
        task = self._tasks[name]
        try:
            return Occasion(name, task.registration.expression, task.firing(self._registry, now))
        except BaseException as wrong:
            if ends_program(wrong):
                raise
            # A user's function that computes an option may raise anything.
            logger.error("cron task %r cannot be fired, retrying in %g s: %s", name, RETRY_MS / 1000, message_of(wrong))
            return None

    def note_cut_short(self, attempts: Iterable[Attempt]) -> None:
        """Log the cron tasks among these attempts, which the shutdown stops before their end."""
        for attempt in attempts:
            if attempt.task.cron is not None:
                logger.warning("cron task %r was interrupted by the shutdown; it will start again", attempt.task.cron)
