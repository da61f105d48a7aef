"""Which starts, failures and endings were announced, so that none is announced twice.

Listeners learn of a start, a failure or an ending in one of two ways: this process committed it, or this process read
it from the store because another process committed it. A commit of this process may be read from the store before it is
announced, so both ways check here first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEPT_MS = 30_000
"""How long starts, failures and endings are kept. Reads of the store look back for less than that."""

ENDINGS = frozenset(
    {
        "TaskCompleted",
        "TaskFailed",
        "TaskDeadLettered",
        "TaskCancelled",
        "TaskSuperseded",
        "TaskExpired",
        "TaskDependencyFailed",
    }
)


class Announced:
    """The starts, failures and endings that were announced recently; instants are in milliseconds."""

    def __init__(self) -> None:
        self._starts: dict[tuple[int, int], int] = {}
        """When the start of an attempt was announced, by task and number of the attempt."""
        self._failures: dict[tuple[int, int], int] = {}
        """The same for failures. One of another process may be read after a later one of this process."""
        self._last_failures: set[tuple[int, int]] = set()
        """Those among them that were read from the store and had made the task a dead letter, which was revived."""
        self._ended_here: dict[int, int] = {}
        """When the ending of a task, committed here, was announced."""
        self._ended_elsewhere: dict[int, int] = {}
        """For each task whose ending was read from the store: when the task ended."""

    def is_news_of_this_process(
        self, kind: str, id: int, now: int, details: Mapping[str, Any], attempt: int | None = None
    ) -> bool:
        """Note an event of this process; return False if it was announced because it was read from the store.

        ``attempt`` is the number of the attempt, if the event is about one.
        """
        if kind == "TaskDispatched":
            self._starts[id, details["attempt"]] = now
        if kind not in ENDINGS or details.get("will_retry"):
            # The task is active; if it had ended, it was revived.
            self._ended_elsewhere.pop(id, None)
            return kind != "TaskFailed" or attempt is None or self.is_new_failure(id, attempt, now)
        if id in self._ended_elsewhere or (attempt is not None and (id, attempt) in self._last_failures):
            return False
        if kind == "TaskFailed" and attempt is not None:
            # If the task is revived, its error may be read as that of a dead letter that history no longer shows.
            self._failures[id, attempt] = now
        self._ended_here[id] = now
        return True

    def is_new_start(self, id: int, attempt: int, now: int) -> bool:
        """Note a start that was read from the store; return False if it was announced before."""
        is_new = (id, attempt) not in self._starts
        self._starts[id, attempt] = now
        return is_new

    def may_be_new_failure(self, id: int, attempt: int) -> bool:
        """True if a failure that was read from the store was not announced before."""
        return (id, attempt) not in self._failures

    def is_new_failure(self, id: int, attempt: int, now: int, *, is_last: bool = False) -> bool:
        """Note a failure; return False if it was announced before.

        ``is_last`` is true if no retry followed: the failure was read from the store after the task was revived.
        """
        is_new = self.may_be_new_failure(id, attempt)
        if is_new:
            self._failures[id, attempt] = now
            if is_last:
                self._last_failures.add((id, attempt))
        return is_new

    def may_be_new_ending(self, id: int, ended_at: int) -> bool:
        """True if an ending that was read from the store was not announced before."""
        here, elsewhere = self._ended_here.get(id), self._ended_elsewhere.get(id)
        return (here is None or here < ended_at) and (elsewhere is None or elsewhere < ended_at)

    def is_new_ending(self, id: int, ended_at: int) -> bool:
        """Note an ending that was read from the store; return False if it was announced before."""
        is_new = self.may_be_new_ending(id, ended_at)
        if is_new:
            self._ended_elsewhere[id] = ended_at
        return is_new

    def forget(self, now: int, running: frozenset[int]) -> None:
        """Forget entries that are too old to be read from the store again, except the starts of running tasks."""
        before = now - KEPT_MS
        self._starts = {start: at for start, at in self._starts.items() if at >= before or start[0] in running}
        self._failures = {failure: at for failure, at in self._failures.items() if at >= before}
        self._last_failures &= self._failures.keys()
        self._ended_here = {id: at for id, at in self._ended_here.items() if at >= before}
        self._ended_elsewhere = {id: at for id, at in self._ended_elsewhere.items() if at >= before}
