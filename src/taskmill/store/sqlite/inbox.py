"""Storing submissions: keys are looked up, the policy is asked, rows are written, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taskmill.errors import DuplicateTask
from taskmill.model.stages import NewTask, Stored
from taskmill.model.status import Ending, Status
from taskmill.policy.duplicates import Holder
from taskmill.policy.inbox import InboxPlan, Keys, plan_inbox
from taskmill.ports import Arrived
from taskmill.store.sqlite.connection import Connection
from taskmill.store.sqlite.ledger import describe, end_tasks
from taskmill.store.sqlite.queries import load

SQL = load("inbox.sql")

_encode = msgspec.json.Encoder().encode
_decode_holders = msgspec.json.Decoder(list[tuple[str, str, int, Status, int, int, int | None]]).decode
_decode_stoppers = msgspec.json.Decoder(list[tuple[str, str, int]]).decode

Answers = list["list[Stored] | DuplicateTask"]


def insert(connection: Connection, requests: Sequence[Sequence[NewTask]], now: int) -> tuple[Answers, Arrived]:
    """Store the tasks of each request, or answer with the error that refuses it."""
    if not any(task.key is not None for request in requests for task in request):
        return _insert_plain(connection, requests)
    first_id = connection.execute(SQL["last_id"]).fetchone()[0] + 1
    plan = plan_inbox(requests, _keys(connection, requests), first_id)
    arrived = Arrived(fresh=list(enumerate(plan.fresh, first_id)), raised=bool(plan.raised))
    _give_up_keys(connection, plan)
    if plan.fresh:
        _insert_rows(connection, plan.fresh)
    if plan.superseded:
        _supersede(connection, plan, arrived, now)
    return plan.answers, arrived


def _insert_plain(connection: Connection, requests: Sequence[Sequence[NewTask]]) -> tuple[Answers, Arrived]:
    """Without keys there is nothing to decide: ids ascend in input order."""
    tasks = requests[0] if len(requests) == 1 else [task for request in requests for task in request]
    arrived = Arrived(fresh=list(enumerate(tasks, _insert_rows(connection, tasks))))
    ids = iter(arrived.fresh)
    return [[Stored(next(ids)[0], "inserted") for _ in request] for request in requests], arrived


def _keys(connection: Connection, requests: Sequence[Sequence[NewTask]]) -> Keys:
    wanted = {(task.type, task.key) for request in requests for task in request if task.key is not None}
    given = _encode(list(wanted)).decode()
    (holders,) = connection.execute(SQL["key_holders"], (given,)).fetchone()
    (stoppers,) = connection.execute(SQL["key_stoppers"], (given,)).fetchone()
    return Keys(
        {(row[0], row[1]): Holder(*row[2:]) for row in _decode_holders(holders)},
        {(type, key): id for type, key, id in _decode_stoppers(stoppers)},
    )


def _give_up_keys(connection: Connection, plan: InboxPlan) -> None:
    """Let go of the keys that new rows will hold, and note what else becomes of their holders."""
    if replaced := [one.old_id for one in plan.superseded if one.old_id < plan.first_id]:
        connection.execute(SQL["give_up_keys"], (_encode(replaced).decode(),))
    if plan.raised:
        connection.execute(SQL["raise_priority"], (_encode(list(plan.raised.items())).decode(),))
    if plan.again:
        rows = [(id, task.payload, task.expires_at) for id, task in plan.again.items()]
        connection.execute(SQL["run_again"], (_encode(rows).decode(),))


def _supersede(connection: Connection, plan: InboxPlan, arrived: Arrived, now: int) -> None:
    """What waited ends at once; what runs was asked to stop, and its successor waits behind it."""
    pairs = [(one.old_id, one.new_id) for one in plan.superseded]
    connection.execute(SQL["hand_down_saved"], (_encode(pairs).decode(),))
    ended = {one.old_id: one.new_id for one in plan.superseded if one.waits}
    arrived.stopping = [one.old_id for one in plan.superseded if not one.waits]
    arrived.superseded = [(task, ended[task.id]) for task in describe(connection, list(ended))]
    end_tasks(connection, [(id, Ending.SUPERSEDED, now, None, None, None) for id in ended], now)


def _insert_rows(connection: Connection, tasks: Sequence[NewTask]) -> int:
    """Write the rows; returns the id of the first, the others follow it."""
    last_id = connection.execute(SQL["insert"], (_encode(tasks).decode(),)).lastrowid or 0
    first_id = last_id - len(tasks) + 1
    if any(task.tags for task in tasks):
        connection.execute(SQL["insert_tags"], (first_id, last_id))
    return first_id
