"""Look ahead: what would become of submissions, when tasks will start, and what a change of settings would do.

Everything is computed in a thread from one read of the store: nothing is written, and the event loop stays free. A
call that is cancelled stops its thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from taskmill.errors import ConfigError, InvalidState, TaskmillError
from taskmill.model.controls import ScopeKind
from taskmill.model.durations import Duration, milliseconds, optional_milliseconds
from taskmill.model.submission import Submission, checked_submissions
from taskmill.verbs.components import in_thread
from taskmill.verbs.tuning import TuneMethods

if TYPE_CHECKING:
    from taskmill.model.looking_ahead import Comparison, Forecast, Projection
    from taskmill.model.queue_state import QueuedCron, WholeQueue
    from taskmill.model.task import NewTask
    from taskmill.policy.rules import Rules
    from taskmill.simulation.changes import TriedChanges

T = TypeVar("T")

MOST_READS = 10
"""How often the queue is read again because a turn was committed in between."""


class LookAheadMethods(TuneMethods):
    """Methods that predict what will happen."""

    async def dry_run(self, submissions: Iterable[Submission]) -> Projection:
        """Return what ``submit_many`` would make of these submissions. Nothing is stored, and no id is used.

        ``submit_many`` stores all submissions or none. Those that it would refuse are ``rejected``; the outcomes of the
        others are computed without them.
        """
        # Imported here, because most programs never call this.
        from taskmill.simulation.projecting import project

        self._opened()
        given = checked_submissions(submissions)
        tasks, refused = await self._resolve_each(given)
        rehearsal = await self._store.rehearse(list(tasks.values()))
        queue, rules = await self._queue_state([task.type for task in tasks.values()], only_runs=True)
        return await in_thread(project, len(given), list(tasks), refused, rehearsal, queue, rules)

    async def forecast(self, horizon: Duration | None = None, samples: int = 200, seed: int | None = None) -> Forecast:
        """Return when the tasks of the queue will start and end, if nothing more is submitted.

        Durations and failures are drawn from the history of each task type. The ranges come from ``samples`` simulated
        futures, fewer for a large queue, each up to ``horizon`` (7 days).
        """
        from taskmill.simulation import forecasting, runs

        self._opened()
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise ConfigError(f"samples must be a whole number of at least 1, got {samples!r}")
        length = runs.DEFAULT_HORIZON_MS if horizon is None else milliseconds(horizon, "horizon")
        number = _seed(seed)
        queue, rules = await self._queue_state()
        zone = self._clock.zone()
        return await in_thread(forecasting.forecast, queue, rules, samples, number, length, zone)

    async def simulate(
        self,
        changes: Mapping[str, Any],
        *,
        horizon: Duration | None = None,
        replay: Duration | None = None,
        seed: int | None = None,
    ) -> Comparison:
        """Return how the queue would run under the present settings and under changed ones. Nothing is changed.

        ``changes`` has any of ``max_concurrency``, ``groups``, ``default_group``, ``aging``, ``rates`` and ``resume``.
        With ``replay``, the tasks that were submitted in that time and have ended run again, instead of the queue.
        """
        from taskmill.simulation import runs

        self._opened()
        length = runs.DEFAULT_HORIZON_MS if horizon is None else milliseconds(horizon, "horizon")
        back, seed = optional_milliseconds(replay, "replay"), _seed(seed)
        queue, rules = await self._queue_state(only_runs=replay is not None)
        checked, zone = await self._checked_changes(changes, rules), self._clock.zone()
        if back is None:
            return await in_thread(runs.compare, queue, rules, checked, seed, length, zone)
        since = queue.now - back
        past = await self._store.past_tasks(since)
        return await in_thread(runs.replay, past, queue, since, rules, checked, back + length, zone)

    async def apply(self, changes: Mapping[str, Any]) -> None:
        """Make the changes of :meth:`simulate` durably.

        ``max_concurrency``, ``default_group`` and ``aging`` are declared by the dispatching program: only there can
        they be changed, and they last until it declares others.
        """
        self._opened()
        rules = self._rules(await self._store.controls())
        checked = await self._checked_changes(changes, rules)
        if checked.declared and self._loop is None:
            raise InvalidState(
                f"{', '.join(checked.declared)} can be changed only by the scheduler that dispatches; apply it there, "
                "or declare it in the settings of that program"
            )
        declared = dict(checked.declared)
        if "max_concurrency" in declared:
            declared["max_concurrency"] -= await self._slots_elsewhere(rules)
            if declared["max_concurrency"] < 1:
                raise InvalidState("max_concurrency: the other nodes have as many slots already; lower theirs first")
        # Resume first: slots that are added earlier would be taken by tasks of groups that are not paused.
        for scope in checked.resume:
            await self._resume(scope)
        await self._change(checked.controls)
        if declared:
            await self._declare(msgspec.structs.replace(self._settings.declared, **declared))

    async def _checked_changes(self, changes: object, rules: Rules) -> TriedChanges:
        """Check changes, before any of them is made, as the methods that make a single change do."""
        from taskmill.simulation.changes import checked_changes

        checked = checked_changes(changes, rules)
        for scope in (*checked.controls, *checked.resume):
            if scope.kind is ScopeKind.TYPE:
                await self._known_type(scope.name)
            elif scope.kind is ScopeKind.DOMAIN:
                await self._known_domain(scope.name)
        return checked

    async def _slots_elsewhere(self, rules: Rules) -> int:
        """Return the number of slots on other nodes."""
        nodes = (await self._store.running_tasks())[1] if self._store.is_cluster else []
        return self._with_all_slots(rules, nodes).declared.max_concurrency - rules.declared.max_concurrency

    async def _resolve_each(self, given: Sequence[Submission]) -> tuple[dict[int, NewTask], dict[int, TaskmillError]]:
        """Check submissions and apply defaults; return the tasks and the errors by index."""
        if any(not self._registry.knows(submission.type) for submission in given):
            self._registry.learn_foreign(await self._store.published_types())
        now = self._clock.now_ms()
        tasks: dict[int, NewTask] = {}
        refused: dict[int, TaskmillError] = {}
        for index, submission in enumerate(given):
            try:
                tasks[index] = self._registry.resolve(submission, now, has_looked=True)
            except TaskmillError as wrong:
                refused[index] = wrong
        return tasks, refused

    async def _queue_state(self, types: Collection[str] = (), *, only_runs: bool = False) -> tuple[WholeQueue, Rules]:
        queue, rules = await super()._queue_state(types, only_runs=only_runs)
        queue.crons = await self._queued_crons(queue.now) if not only_runs else ()
        queue.retries = {
            name: registered.retry
            for registered in self._registry
            for name in (registered.handler.name, *registered.handler.aliases)
        }
        return queue, rules

    async def _read_queue(self, types: Collection[str], *, only_runs: bool) -> WholeQueue:
        """Read the queue, with the turns of the dispatcher if this scheduler dispatches.

        Both must be of one moment. If a turn is committed between them, both are read again; after the last try the
        queue is returned without turns.
        """
        for _ in range(MOST_READS):
            await self._store_beginnings()
            count, turns = (0, None) if self._loop is None else self._loop.turns()
            queue = await self._store.queue_state(types, only_runs=only_runs)
            if self._loop is None or (turns is not None and self._loop.turns()[0] == count):
                queue.turns = turns
                return queue
            await asyncio.sleep(0)
        return await self._store.queue_state(types, only_runs=only_runs)

    async def _queued_crons(self, now: int) -> list[QueuedCron]:
        """Return the cron tasks, each with a task like those that it fires."""
        rows = await self._store.cron_rows()
        if not rows:
            return []
        from taskmill.model.queue_state import QueuedCron
        from taskmill.simulation.projecting import queued

        declared = {task.name: task for task in self._settings.cron}
        self._registry.learn_foreign(await self._store.published_types())
        found: list[QueuedCron] = []
        for row in rows:
            task, name = declared.get(row.state.name), row.state.name
            try:
                firing = (
                    self._registry.resolve(Submission(row.type, {}), now, has_looked=True)
                    if task is None
                    else task.firing(self._registry, now)
                )
            except TaskmillError:
                # The type of its firings is not known here; forecasts are made without it.
                continue
            found.append(QueuedCron(row.state, msgspec.structs.replace(queued(0, firing), cron=name)))
        return found


def _seed(seed: object) -> int:
    """Return the given seed, or a random one."""
    if seed is None:
        return Random().getrandbits(63)  # noqa: S311 - not for secrets
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConfigError(f"seed must be an int or None, not {type(seed).__name__}")
    return seed
