"""The beginnings of prefetched tasks in the lock file: the newest are kept, and only while the lock is held."""

from __future__ import annotations

import os
from pathlib import Path

from taskmill.dispatch.prefetch import HORIZON, LEAST_COST
from taskmill.store.sqlite.dispatch_lock import MOST_BEGINNINGS, acquire, beginnings_in


async def test_the_next_dispatcher_finds_the_last_beginnings_until_it_writes_its_own(tmp_path: Path) -> None:
    database, number = tmp_path / "tasks.db", MOST_BEGINNINGS + 3
    Path(f"{database}-wal").touch()
    first = await acquire(str(database))
    for id in range(1, number - 4):
        first.note_beginnings([(id, 1, id)])
    first.note_beginnings([(id, 1, id) for id in range(number - 4, number + 1)])
    first.release()
    second = await acquire(str(database))
    assert sorted(second.beginnings()) == [(id, 1, id) for id in range(4, number + 1)]
    second.note_beginnings([(7, 2, 9)])
    assert second.beginnings() == [(7, 2, 9)]
    second.release()


async def test_a_released_lock_writes_into_no_other_file(tmp_path: Path) -> None:
    database, other = tmp_path / "tasks.db", tmp_path / "other"
    Path(f"{database}-wal").touch()
    lock = await acquire(str(database))
    descriptor = lock.inheritable()[0]
    lock.release()
    opened = os.open(other, os.O_CREAT | os.O_RDWR)
    os.dup2(opened, descriptor)
    lock.note_beginnings([(1, 1, 1)])
    os.close(descriptor)
    if opened != descriptor:
        os.close(opened)
    assert other.read_bytes() == b""
    assert beginnings_in(Path(f"{database}-dispatch").read_bytes()) == []


def test_the_file_has_room_for_the_beginnings_of_three_turns() -> None:
    """While a turn is committed, the tasks of the one before it may have begun, and a failed turn is repeated."""
    assert 3 * HORIZON / LEAST_COST < MOST_BEGINNINGS
