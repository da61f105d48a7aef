"""Letting tasks into the queue: a task is released when nothing holds it back any longer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from taskmill.model.commit import Commit
from taskmill.model.task import DueTask, Lane, Place, Waiting, waiting
from taskmill.store.sql.connection import Connection, decode_ids, decode_pairs, encoded, one
from taskmill.store.sql.statements import SQL


class _Row(msgspec.Struct, array_like=True):
    """A task that is ready to enter the queue, at ``due_at`` if that is in the future."""

    id: int
    group: str
    urgency: int
    type: str
    queued_at: int
    renewed_at: int | None
    due_at: int | None
    expires_at: int | None
    place_id: int
    io: str | None = None

    def waiting(self) -> Waiting:
        return waiting(self._lane, self._place)

    def delayed(self, due_at: int) -> DueTask:
        return DueTask(due_at, self._lane, self._place)

    @property
    def _lane(self) -> Lane:
        return Lane(self.group, self.urgency, self.type, self.renewed_at is not None)

    @property
    def _place(self) -> Place:
        return Place(self.queued_at, self.place_id, self.id, self.renewed_at, self.io)


_decode_rows = msgspec.json.Decoder(list[_Row]).decode
_decode_queued = msgspec.json.Decoder(tuple[list[_Row], bool]).decode


def release(connection: Connection, ids: Sequence[int], now: int, commit: Commit) -> list[int]:
    """Release the given blocked tasks that nothing blocks any longer; return their ids."""
    if not ids:
        return []
    let_in_now = set(let_siblings_in(connection, ids, now, commit))
    return [*let_in_now.intersection(ids), *_release(connection, ids, now, commit)]


def _release(connection: Connection, ids: Sequence[int], now: int, commit: Commit) -> list[int]:
    found = _decode_rows(one(connection, SQL["releasable"], encoded(ids)))
    released = [row.id for row in found]
    if released:
        connection.execute(SQL["release"], (encoded(released), now))
        for row in found:
            if row.due_at is None or row.due_at <= now:
                commit.released.append(row.waiting())
            else:
                commit.due.append(row.delayed(row.due_at))
        commit.expiries += [row.expires_at for row in found if row.expires_at is not None]
    return released


def let_siblings_in(connection: Connection, ids: Sequence[int], now: int, commit: Commit) -> list[int]:
    """Let siblings of changed tasks into the queue, up to the limit of each parent; return the released ids."""
    parents = decode_pairs(one(connection, SQL["capped_parents"], encoded(list(ids))))
    return [id for parent in parents for id in let_in(connection, *parent, now, commit)]


def let_in(connection: Connection, parent_id: int, max_children: int, now: int, commit: Commit) -> list[int]:
    """Let children of a parent into the queue, up to ``max_children``; return the released ids."""
    ids = decode_ids(one(connection, SQL["let_in"], parent_id, max_children))
    return unhold(connection, ids, now, commit)


def unhold(connection: Connection, ids: Sequence[int], now: int, commit: Commit) -> list[int]:
    """Stop holding these children back because of their siblings; return the released ids."""
    if not ids:
        return []
    connection.execute(SQL["unhold"], (encoded(ids),))
    return _release(connection, ids, now, commit)


def promote(connection: Connection, now: int, most: int, commit: Commit) -> None:
    """Let tasks that are due into the queue, at most ``most``.

    The commit contains their places, so that no lane has to be read again.
    """
    if ids := decode_ids(one(connection, SQL["due"], now, most)):
        connection.execute(SQL["promote"], (encoded(ids),))
        note_queued(connection, ids, commit)


def note_new(connection: Connection, since_id: int, most: int, commit: Commit) -> bool:
    """Note the places and times of new tasks with ids above ``since_id``; return False if there are too many."""
    found = _decode_rows(one(connection, SQL["newer"], since_id, most + 1))
    if len(found) > most:
        return False
    _note_rows(found, commit)
    return True


def note_queued_elsewhere(connection: Connection, ids: Collection[int], commit: Commit) -> bool:
    """Note the places and times of tasks that other nodes have put into the queue.

    Return False if only a survey shows what became of them.
    """
    found, is_stopping = _decode_queued(one(connection, SQL["queued_elsewhere"], encoded(sorted(ids))))
    _note_rows(found, commit)
    return not is_stopping


def _note_rows(found: Iterable[_Row], commit: Commit) -> None:
    for row in found:
        if row.due_at is None:
            commit.released.append(row.waiting())
        else:
            commit.due.append(row.delayed(row.due_at))
        if row.expires_at is not None:
            commit.expiries.append(row.expires_at)


def note_queued(connection: Connection, ids: Sequence[int], commit: Commit) -> None:
    """Note the places of tasks that entered the queue."""
    if ids:
        found = _decode_rows(one(connection, SQL["in_queue"], encoded(ids)))
        commit.released += [row.waiting() for row in found]
        commit.expiries += [row.expires_at for row in found if row.expires_at is not None]
