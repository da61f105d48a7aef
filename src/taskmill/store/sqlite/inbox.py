"""Storing submissions: keys are looked up, the policy is asked, rows are written, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taskmill.errors import SubmissionError
from taskmill.model.stages import NewTask, Stored
from taskmill.model.status import Status
from taskmill.policy.duplicates import Holder
from taskmill.policy.inbox import InboxPlan, Name, Refusal, plan_inbox
from taskmill.store.sqlite.connection import Connection
from taskmill.store.sqlite.queries import load

SQL = load("inbox.sql")

_encode = msgspec.json.Encoder().encode
_decode_holders = msgspec.json.Decoder(list[tuple[int, str, str, Status, int]]).decode

Answers = list["list[Stored] | SubmissionError"]


def insert(connection: Connection, requests: Sequence[Sequence[NewTask]]) -> Answers:
    """Store the tasks of each request, or answer with the error that refuses it."""
    plan = plan_inbox(requests, _holders(connection, requests))
    if plan.raised:
        connection.execute(SQL["raise_priority"], (_encode(list(plan.raised.items())).decode(),))
    first = _insert_rows(connection, plan.fresh) if plan.fresh else 0
    return _numbered(plan, first)


def _numbered(plan: InboxPlan, first: int) -> Answers:
    return [
        answer.error(first) if isinstance(answer, Refusal) else [one.stored(first) for one in answer]
        for answer in plan.answers
    ]


def _holders(connection: Connection, requests: Sequence[Sequence[NewTask]]) -> dict[Name, Holder]:
    wanted = {(task.type, task.key) for request in requests for task in request if task.key is not None}
    if not wanted:
        return {}
    (found,) = connection.execute(SQL["key_holders"], (_encode(list(wanted)).decode(),)).fetchone()
    return {(type, key): Holder(id, status, priority) for id, type, key, status, priority in _decode_holders(found)}


def _insert_rows(connection: Connection, tasks: Sequence[NewTask]) -> int:
    """Write the rows; returns the id of the first, the others follow it."""
    last = connection.execute(SQL["insert"], (_encode(tasks).decode(),)).lastrowid or 0
    first = last - len(tasks) + 1
    if any(task.tags for task in tasks):
        connection.execute(SQL["insert_tags"], (first, last))
    return first
