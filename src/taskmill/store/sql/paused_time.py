"""Pausing a scope, and giving the paused time back to its tasks.

The age and the deadline of a task stand still while its scheduler, domain or group is paused. So the length of the
pause is added to the stored times of every task of the scope when the pause ends. That can be a million rows, so it
happens in small batches between other work (docs/decisions/0022):

* Ending a pause writes one row. Its tasks may start from then on.
* The times are rewritten afterwards, up to ``BITE`` tasks per transaction. The row stores how far that has come, so it
  continues after a crash.
* Until the time of a task is *settled*, every reader adds what it is *owed*. A task is settled before it starts.
* The task's ``paused_at`` records up to when it is settled, so nothing is added twice, whatever the order.

Tasks are settled from the newest to the oldest. Tasks not settled yet have queue positions that are too early, and
since they are the older ones, they are in front anyway: the order inside a lane stays right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from taskmill.model.commit import Commit
from taskmill.model.controls import Declared, Scope, ScopeKind
from taskmill.model.status import Status
from taskmill.model.task import Lane, Place
from taskmill.policy.paused_time import settled, settled_all
from taskmill.policy.rules import Rules
from taskmill.store.sql import controls
from taskmill.store.sql.connection import Connection, encoded, one
from taskmill.store.sql.releasing import note_queued
from taskmill.store.sql.rows import describe
from taskmill.store.sql.statements import SQL

BITE = 200
"""The largest number of tasks settled in one transaction, so that other transactions do not wait long."""
LOOKED_AT = 5 * BITE
"""The largest number of tasks scanned to find them; tasks of other scopes may lie in between."""
FROZEN = 2_000
"""The largest number of tasks kept from expiring in one transaction."""


class Times(msgspec.Struct, array_like=True):
    """The stored times of a waiting task, as needed to settle them."""

    id: int
    group: str
    type: str
    status: Status
    created_at: int
    queued_at: int
    renewed_at: int | None
    paused_at: int | None
    expires_at: int | None
    clock_from: int
    io: str | None
    place_id: int
    started_at: int | None = None

    @property
    def aged_from(self) -> int:
        return self.queued_at if self.renewed_at is None else self.renewed_at


_decode_times = msgspec.json.Decoder(list[Times]).decode
_decode_fronts = msgspec.json.Decoder(list[tuple[str, int, str, bool, list[Times]]]).decode


def is_owed(connection: Connection) -> bool:
    """True if any ended pause still has to give time back."""
    return controls.version(connection)[1]


def pause(connection: Connection, scope: Scope, now: int, until: int | None, *, relative: bool) -> bool:
    end_pauses(connection, now)
    was_paused = _paused_at(connection, scope) is not None
    connection.execute(SQL["pause"], (*scope, now, until, relative))
    connection.execute(SQL["bump_version"])
    return not was_paused


def resume(connection: Connection, scope: Scope, now: int) -> bool:
    # End overdue pauses first, as of their own times: one of them may be this pause, or overlap with it.
    return scope in end_pauses(connection, now) or _resume(connection, scope, now)


def end_pauses(connection: Connection, now: int) -> list[Scope]:
    """End the timed pauses that are over, each as of its own end, and return their scopes."""
    overdue = connection.execute(SQL["overdue"], (now,)).fetchall()
    ended = [(Scope(ScopeKind(kind), name), resume_at) for kind, name, resume_at in overdue]
    for scope, resume_at in ended:
        _resume(connection, scope, resume_at)
    return [scope for scope, _ in ended]


def _resume(connection: Connection, scope: Scope, now: int) -> bool:
    since = _paused_at(connection, scope)
    if since is None:
        return False
    connection.execute(SQL["resume"], scope)
    if now > since:
        connection.execute(SQL["end_pause"], (*scope, since, now))
        bite(connection)
    connection.execute(SQL["bump_version"])
    return True


def _paused_at(connection: Connection, scope: Scope) -> int | None:
    row = connection.execute(SQL["paused_at"], scope).fetchone()
    return None if row is None else row[0]


def freeze(connection: Connection, now: int) -> bool:
    """Keep tasks that are paused, or are owed paused time, from expiring; return True if none is left to keep."""
    if not one(connection, SQL["is_anything_paused"]):
        return True
    return connection.execute(SQL["freeze"], (now, FROZEN)).rowcount < FROZEN


def bring_back(connection: Connection, why: Collection[int], now: int, commit: Commit) -> None:
    """Return tasks that were preempted for one of the causes in ``why`` to the queue."""
    ids = [id for id, cause in controls.away(connection) if cause in why]
    if ids:
        commit.pauses_ended += end_pauses(connection, now)
        connection.execute(SQL["resume_preempted"], (encoded(ids), now))
        note_queued(connection, ids, commit)
        commit.resumed += describe(connection, [task.id for task in commit.released if task.id in set(ids)])


def bite(connection: Connection) -> bool:
    """Give the time of an ended pause back to some of its tasks; return True if more is left to do."""
    ended = connection.execute(SQL["first_ended_pause"]).fetchone()
    if ended is None:
        return False
    connection.be_alone()
    *pause, reached = ended
    count, last, found = connection.execute(SQL["next_owed"], (*pause[:2], reached, LOOKED_AT, BITE)).fetchone()
    tasks = _decode_times(found)
    _settle(connection, tasks)
    if len(tasks) == BITE:
        connection.execute(SQL["reach"], (*pause, tasks[-1].id))
    elif count == LOOKED_AT:
        connection.execute(SQL["reach"], (*pause, last))
    else:
        connection.execute(SQL["forget_ended_pause"], pause)
        # A reader with the old controls is still right, since it adds nothing to settled tasks; but the new version
        # lets it stop checking.
        connection.execute(SQL["bump_version"])
        return is_owed(connection)
    return True


def settle(connection: Connection, ids: Iterable[int]) -> None:
    """Give these tasks the paused time they are owed, before anything else happens to them."""
    connection.be_alone()
    _settle(connection, _decode_times(one(connection, SQL["owed_to"], encoded(list(ids)))))


def settle_released(connection: Connection, commit: Commit) -> None:
    """Settle the tasks that were just released, and report their new positions in the queue."""
    if ids := [task.id for task in commit.released]:
        settle(connection, ids)
        commit.released = []
        note_queued(connection, ids, commit)


def _settle(connection: Connection, tasks: Sequence[Times]) -> None:
    rules = _rules(connection)
    found = zip(tasks, settled_all(tasks, rules), strict=True)
    rows = [(task.id, *new) for task, new in found if new is not None]
    if rows:
        connection.execute(SQL["give_back"], (encoded(rows),))
    if len(rows) < len(tasks):
        connection.execute(SQL["thaw"], (encoded([task.id for task in tasks]),))


def fronts(connection: Connection, lanes: Sequence[Lane], size: int, now: int) -> dict[Lane, list[Place]]:
    """Return the first positions of each lane as they will be when everything is settled.

    Tasks are skipped if their deadlines have passed even with the most time that they may be owed. Other tasks may have
    expired too; that is found when they are claimed.
    """
    rules = _rules(connection)
    most = sum(pause.until - pause.since for _, pause in rules.controls.ended_pauses if pause.until is not None)
    found = _decode_fronts(one(connection, SQL["fronts_owed"], encoded(lanes), size, now - most))
    return {
        Lane(group, urgency, type, renewed): sorted(_place(task, rules) for task in tasks)
        for group, urgency, type, renewed, tasks in found
    }


def _place(task: Times, rules: Rules) -> Place:
    new = settled(task, rules)
    if new is None:
        return Place(task.queued_at, task.place_id, task.id, task.renewed_at, task.io)
    return Place(new.queued_at, task.place_id, task.id, new.renewed_at, task.io)


def _rules(connection: Connection) -> Rules:
    return Rules(Declared(), controls.read(connection))
