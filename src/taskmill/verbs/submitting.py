"""Check submissions, apply defaults, and store tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from taskmill.errors import TaskNotFound, UnknownTaskType
from taskmill.handle import Handle
from taskmill.model.submission import Stored, Submission, checked_submissions
from taskmill.verbs.components import Components, checked_text

if TYPE_CHECKING:
    from taskmill.model.task import NewTask, Origin
    from taskmill.verbs.blocking import Handle as BlockingHandle

R = TypeVar("R")


class SubmitMethods(Components):
    """Methods that store tasks."""

    async def submit(self, submission: Submission[R], *, connection: object = None) -> Handle[R]:
        """Store one task. With ``connection``, store it in the caller's transaction on the same database."""
        known = isinstance(submission, Submission) and self._registry.knows(submission.type)
        if connection is not None or not known or self._registry.is_changed:
            return (await self.submit_many([submission], connection=connection))[0]
        # Fast path for almost every task.
        self._opened()
        task = self._registry.resolve(submission, self._clock.now_ms())
        if (task.due_is_relative or task.expires_at is not None) and await self._settle_clock():
            task = self._registry.resolve(submission, self._clock.now_ms())
        (stored,) = await (self._store.add([task]) if self._tracing is None else self._add([task]))
        return self._handle(task.type, stored)

    def _submit_sync(self, submission: Submission[R], name: str) -> BlockingHandle[R]:
        """Store one task for a thread that may block."""
        # Imported here, because most programs never call this.
        from taskmill.verbs.blocking import Handle as BlockingHandle

        self._check_open()
        self._loop_caller.check_thread(f"write `await {name.rpartition('::')[2]}.submit(...)` there")
        return BlockingHandle(self._loop_caller.call(self.submit(submission)), self._loop_caller)

    async def submit_many(self, submissions: Iterable[Submission[R]], *, connection: object = None) -> list[Handle[R]]:
        """Store many tasks in one transaction; the handles are in input order."""
        tasks = await self.resolve(submissions)
        if connection is not None:
            return self._handles(tasks, await self._add(tasks, partial(self._store.add_within, connection)))
        return self._handles(tasks, await self._add(tasks))

    async def run_cron(self, name: str) -> Handle[Any]:
        """Fire a cron task once now, beside its schedule, which stays as it is."""
        # Imported here, because most programs never call this.
        from taskmill.runtime.cron_tasks import submission_of

        self._opened()
        rows = await self._store.cron_rows([checked_text(name, "name")])
        declared = [task.submission for task in self._settings.cron if task.name == name]
        submissions = declared or [submission_of(row) for row in rows]
        if not rows or not submissions:
            raise TaskNotFound(
                f"no cron task is named {name!r}; a scheduler stores its list of them when it starts to dispatch"
            )
        (task,) = await self.resolve(submissions)
        fired = await self._store.run_cron(name, task, self._clock.now_ms())
        self._announcer.fired(fired, self._clock.zone())
        return self._handle(task.type, Stored(fired.id, "inserted"))

    async def _spawn(self, submissions: Sequence[Submission], origin: Origin) -> list[Handle[Any]]:
        """Store children or siblings of an attempt."""
        tasks = await self.resolve(submissions, spawning=True)
        return self._handles(tasks, await self._add(tasks, lambda tasks: self._store.spawn(tasks, origin)))

    async def resolve(self, submissions: Iterable[Submission], *, spawning: bool = False) -> list[NewTask]:
        """Check submissions and apply defaults; nothing is stored yet."""
        self._opened()
        given = checked_submissions(submissions)
        if self._registry.is_changed:
            await self._publish_types()
        await self._settle_clock()
        now = self._clock.now_ms()
        resolve = self._registry.resolve
        try:
            return [resolve(submission, now, spawning=spawning) for submission in given]
        except UnknownTaskType:
            self._registry.learn_foreign(await self._store.published_types())
            return [resolve(submission, now, spawning=spawning, has_looked=True) for submission in given]

    def submit_through(self, connection: object, tasks: Sequence[NewTask]) -> list[Handle[Any]]:
        """Store resolved tasks in the transaction of the caller's connection, in the caller's thread."""
        if not tasks:
            return []
        add = partial(self._store.add_through, connection)
        return self._handles(tasks, add(tasks) if self._tracing is None else self._tracing.submit_here(tasks, add))

    async def _add(
        self, tasks: Sequence[NewTask], add: Callable[[Sequence[NewTask]], Awaitable[Sequence[Stored]]] | None = None
    ) -> Sequence[Stored]:
        """Store resolved tasks, inside a span if this scheduler traces."""
        if not tasks:
            return []
        add = add or self._store.add
        return await (add(tasks) if self._tracing is None else self._tracing.submit(tasks, add))

    def _handles(self, tasks: Sequence[NewTask], stored: Sequence[Stored]) -> list[Handle[Any]]:
        return [self._handle(task.type, answer) for task, answer in zip(tasks, stored, strict=True)]
