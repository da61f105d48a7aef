"""A scheduler that remembers what was submitted, for assertions in tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from taskmill.define.task import Task
from taskmill.handle import Handle
from taskmill.model.submission import Submission
from taskmill.scheduler import Scheduler


class ObservedScheduler(Scheduler):
    """A scheduler for tests. ``inline=True`` runs each submission to its end before ``submit`` returns."""

    def __init__(self, *args: Any, inline: bool = False, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._inline = inline
        self.submitted: list[Submission] = []
        """Every submission that was stored, in order."""

    async def submit(self, submission: Submission, *, connection: object = None) -> Handle[Any]:
        return (await self.submit_many([submission], connection=connection))[0]

    async def submit_many(self, submissions: Iterable[Submission], *, connection: object = None) -> list[Handle[Any]]:
        given = list(submissions)
        handles = await super().submit_many(given, connection=connection)
        self.submitted += given
        if self._inline and not self.is_dispatching:
            await self.run_until_idle()
        return handles

    def assert_submitted(self, task: Task[Any, Any] | str, /, **arguments: Any) -> Submission:
        """Assert that this task was submitted with (at least) these arguments, and return that submission."""
        name = task if isinstance(task, str) else task.name
        of_type = [submission for submission in self.submitted if submission.type == name]
        for submission in of_type:
            if all(submission.payload.get(key, _MISSING) == value for key, value in arguments.items()):
                return submission
        seen = [dict(submission.payload) for submission in of_type]
        raise AssertionError(f"no submission of {name} with {arguments!r}; submitted were {seen!r}")

    def assert_not_submitted(self, task: Task[Any, Any] | str, /) -> None:
        """Assert that this task was not submitted."""
        name = task if isinstance(task, str) else task.name
        seen = [dict(submission.payload) for submission in self.submitted if submission.type == name]
        assert not seen, f"{name} was submitted with {seen!r}"


_MISSING = object()
