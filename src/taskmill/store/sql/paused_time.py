"""Pausing a scope, and giving its time back: in bites, from the newest task to the oldest, while other work goes on.

Ending a pause writes one row, and its tasks may start. Their times are rewritten afterwards, a few hundred in each
transaction; the row says how far that has come, so that it continues after a kill. Until a task is visited, every
reader adds what it is owed, and a task that starts is settled first (docs/decisions/0022). What was added is noted in
the task itself, so nothing is added twice, in whatever order that happens.

From the newest to the oldest: so those that are not visited yet, and whose places are still too early, are in front of
those that are, and the order inside a lane stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from taskmill.model.controls import Declared, Scope, ScopeKind
from taskmill.model.effects import Effects
from taskmill.model.stages import Lane, Place
from taskmill.model.status import Status
from taskmill.policy.rules import Rules
from taskmill.policy.standstill import settled
from taskmill.store.sql import controls
from taskmill.store.sql.connection import Connection
from taskmill.store.sql.describing import describe
from taskmill.store.sql.json_sql import encoded, one
from taskmill.store.sql.releasing import note_queued
from taskmill.store.sql.statements import SQL

BITE = 100
"""How many tasks are settled in one transaction, so that no other waits long behind it."""
LOOKED_AT = 20 * BITE
"""How many tasks are looked at for that; others may be between them."""
FROZEN = 2_000
"""How many tasks are kept from expiring in one transaction."""


class Times(msgspec.Struct, array_like=True):
    """What is stored about a waiting task whose times move."""

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
    """Whether the time of any ended pause is still to be given back."""
    return controls.version(connection)[1]


def pause(connection: Connection, scope: Scope, now: int, until: int | None, *, relative: bool) -> bool:
    end_pauses(connection, now)
    was_paused = _paused_at(connection, scope) is not None
    connection.execute(SQL["pause"], (*scope, now, until, relative))
    connection.execute(SQL["bump_version"])
    return not was_paused


def resume(connection: Connection, scope: Scope, now: int) -> bool:
    # What should have ended earlier has ended then, and may cover what this pause would give back.
    return scope in end_pauses(connection, now) or _resume(connection, scope, now)


def end_pauses(connection: Connection, now: int) -> list[Scope]:
    """End the pauses whose time has come, each as of that time; returns which."""
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
    """Keep what is paused, or is still owed paused time, from expiring; says whether nothing else is to be kept."""
    if not one(connection, SQL["is_anything_paused"]):
        return True
    return connection.execute(SQL["freeze"], (now, FROZEN)).rowcount < FROZEN


def bring_back(connection: Connection, why: Collection[int], now: int, effects: Effects) -> None:
    """Let tasks return that made way for one of these."""
    ids = [id for id, cause in controls.away(connection) if cause in why]
    if ids:
        effects.pauses_ended += end_pauses(connection, now)
        connection.execute(SQL["resume_preempted"], (encoded(ids), now))
        note_queued(connection, ids, effects)
        effects.resumed += describe(connection, [task.id for task in effects.released if task.id in set(ids)])


def bite(connection: Connection) -> bool:
    """Give the time of an ended pause back to some of its tasks; says whether there is more to do."""
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
        # A reader that has the controls of before adds nothing to what is settled; but it may know that all is.
        connection.execute(SQL["bump_version"])
        return is_owed(connection)
    return True


def settle(connection: Connection, ids: Iterable[int]) -> None:
    """Give these tasks what they are owed, before anything else happens to them."""
    connection.be_alone()
    _settle(connection, _decode_times(one(connection, SQL["owed_to"], encoded(list(ids)))))


def settle_released(connection: Connection, effects: Effects) -> None:
    """Give the tasks that were just let into the queue what they are owed, and name their places anew."""
    if ids := [task.id for task in effects.released]:
        settle(connection, ids)
        effects.released = []
        note_queued(connection, ids, effects)


def _settle(connection: Connection, tasks: Sequence[Times]) -> None:
    rules = _rules(connection)
    rows = [(task.id, *new) for task in tasks if (new := settled(task, rules)) is not None]
    if rows:
        connection.execute(SQL["give_back"], (encoded(rows),))
    if len(rows) < len(tasks):
        connection.execute(SQL["thaw"], (encoded([task.id for task in tasks]),))


def fronts(connection: Connection, lanes: Sequence[Lane], size: int, now: int) -> dict[Lane, list[Place]]:
    """The first places of each lane as they will be when everything is settled.

    What is past its deadline even with all that may be owed is passed over. Of the others, some may be; that is found
    when they are claimed.
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
