"""Check submissions, apply defaults, and store tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from taskmill.errors import UnknownTaskType
from taskmill.handle import Handle
from taskmill.model.submission import Submission, checked_submissions
from taskmill.model.task import NewTask, Origin, Stored
from taskmill.verbs.components import Components


class SubmitMethods(Components):
    """Methods that store tasks."""

    async def submit(self, submission: Submission, *, connection: object = None) -> Handle[Any]:
        """Store one task. With ``connection``, store it in the caller's transaction on the same database."""
        known = isinstance(submission, Submission) and self._registry.knows(submission.type)
        if connection is not None or not known:
            return (await self.submit_many([submission], connection=connection))[0]
        # Fast path for almost every task.
        self._opened()
        task = self._registry.resolve(submission, self._clock.now_ms())
        if (task.due_is_relative or task.expires_at is not None) and await self._settle_clock():
            task = self._registry.resolve(submission, self._clock.now_ms())
        return self._handle(task.type, (await self._store.add([task]))[0])

    async def submit_many(self, submissions: Iterable[Submission], *, connection: object = None) -> list[Handle[Any]]:
        """Store many tasks in one transaction; the handles are in input order."""
        tasks = await self.resolve(submissions)
        if connection is not None:
            return self._handles(tasks, await self._store.add_within(connection, tasks) if tasks else [])
        stored = await self._store.add(tasks) if tasks else []
        return self._handles(tasks, stored)

    async def _spawn(self, submissions: Sequence[Submission], origin: Origin) -> list[Handle[Any]]:
        """Store children or siblings of an attempt."""
        tasks = await self.resolve(submissions, spawning=True)
        return self._handles(tasks, await self._store.spawn(tasks, origin) if tasks else [])

    async def resolve(self, submissions: Iterable[Submission], *, spawning: bool = False) -> list[NewTask]:
        """Check submissions and apply defaults; nothing is stored yet."""
        self._opened()
        given = checked_submissions(submissions)
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
        return self._handles(tasks, self._store.add_through(connection, tasks) if tasks else [])

    def _handles(self, tasks: Sequence[NewTask], stored: Sequence[Stored]) -> list[Handle[Any]]:
        return [self._handle(task.type, answer) for task, answer in zip(tasks, stored, strict=True)]
