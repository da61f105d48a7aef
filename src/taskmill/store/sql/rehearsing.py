"""Rehearsing submissions: what would become of each of them, without storing any.

The look-ups and the plan are those of :mod:`taskmill.store.sql.inbox`. They only read, except in one case: the holder
of a key has expired. Its end can free other keys and create tasks that take them, so it has to be carried out, in a
transaction that is always rolled back (:class:`Rehearsed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from taskmill.errors import StoreError, SubmissionError
from taskmill.model.commit import Commit
from taskmill.model.task import NewTask
from taskmill.policy.inbox import InboxPlan, plan_inbox
from taskmill.policy.rehearsal import Rehearsal, connected_parts, reasons
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.inbox import Found, look_up, needs_of, read_holders


class Rehearsed(StoreError):
    """Carries the result of a rehearsal out of a transaction, which is rolled back for it."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        super().__init__("a rehearsal is never committed")
        self.rehearsal = rehearsal


def read_only(connection: Connection, tasks: Sequence[NewTask], now: int) -> Rehearsal | None:
    """Rehearse the storing of tasks in one request; return None if :func:`and_roll_back` has to do it."""
    with connection.snapshot():
        found = read_holders(connection, [tasks], now, 0)
        return None if found.late else _rehearse(connection, tasks, found)


def and_roll_back(connection: Connection, tasks: Sequence[NewTask], now: int) -> NoReturn:
    """Rehearse the storing of tasks in one request, and raise :class:`Rehearsed` with the result."""
    connection.be_alone()
    with connection.rehearsal():
        found = look_up(connection, [tasks], now, Commit(), 0)
        # An occurrence that follows an expired one may be the last task by now.
        found.last_id = max([found.last_id, *found.holders])
        raise Rehearsed(_rehearse(connection, tasks, found))


def _rehearse(connection: Connection, tasks: Sequence[NewTask], found: Found) -> Rehearsal:
    """Plan the request; if it is refused, leave out the submissions that are the reason, and plan the rest."""

    def plan(requests: Sequence[Sequence[NewTask]]) -> InboxPlan:
        return plan_inbox(requests, found.keys, found.last_id + 1, needs_of(connection, requests, found.keys))

    left, errors = list(range(len(tasks))), dict[int, SubmissionError]()
    while True:
        planned = plan([[tasks[index] for index in left]])
        answer = planned.answers[0]
        if not isinstance(answer, SubmissionError):
            return Rehearsal(dict(zip(left, answer, strict=True)), errors, planned)
        parts = connected_parts(tasks, left)
        answers = plan([[tasks[index] for index in part] for part in parts]).answers
        refused = {
            index: wrong
            for part, wrong in zip(parts, answers, strict=True)
            if isinstance(wrong, SubmissionError)
            for index in reasons(tasks, part, wrong, found.keys.holders)
        }
        # Submissions that are refused only together, such as a cycle through stored tasks, are all refused.
        refused = refused or dict.fromkeys(left, answer)
        errors |= refused
        left = [index for index in left if index not in refused]
