"""The move that is recorded (``python -m tests.power.mover '["SOURCE", "TARGET"]'``), and the judge of its cuts."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from taskmill import InvalidState, TaskmillError
from taskmill.moving import move, undo
from taskmill.store.moving import journey
from taskmill.store.sqlite import log
from tests.moving.everything import Book, Rows, nothing_ran_twice, rows_of, run_to_the_end
from tests.moving.test_killed import is_open
from tests.power.promises import Promises
from tests.power.recorder import Notes
from tests.power.trial import Judge

BATCH_ROWS = 25
MOVED = "moved"


def one_queue(source: Path, target: Path, before: Rows) -> Judge:
    """Return the judge of a move: there is one queue, it is complete, and the move can be finished or given up."""
    number = 0

    def judged(_file: Path, promises: Promises) -> list[str]:
        nonlocal number
        number += 1
        promises.checked += 3
        book = Book(source.parent.with_name(f"book{number}"))
        try:
            arrived = _has_arrived(target)
            assert rows_of(target if arrived else source) == before, f"broken: {arrived=}, and the queue is not whole"
            assert not arrived or not asyncio.run(is_open(source)), "broken: both stores can be used"
            assert arrived or not promises.was_granted(MOVED), "lost: the queue was moved"
            queue = _settled(source, target, give_up=number % 2 == 0)
            assert rows_of(queue) == before, "broken: the queue has changed"
            asyncio.run(run_to_the_end(queue, book))
            nothing_ran_twice(book)
        except (AssertionError, TaskmillError) as wrong:
            return [f"{type(wrong).__name__}: {wrong}"]
        return []

    return judged


def _has_arrived(target: Path) -> bool:
    """True if the target is the queue, and not merely a new file."""
    return target.exists() and asyncio.run(is_open(target)) and bool(rows_of(target)["taskmill_history"])


def _settled(source: Path, target: Path, *, give_up: bool) -> Path:
    """Finish the move, or give it up if that is still possible; return the store that has the queue."""
    if give_up:
        if asyncio.run(is_open(source)):
            return source  # the move had not begun
        try:
            undo(str(source), str(target))
        except InvalidState:
            return target  # the move had ended
        return source
    move(str(source), str(target))
    assert not asyncio.run(is_open(source)), "broken: the source opens after the move"
    return target


def main() -> None:
    source, target = json.loads(sys.argv[1])
    journey.BATCH_ROWS = BATCH_ROWS
    log.CHECKPOINT_BYTES = 128 * 1024
    log.LOOK_EVERY = 2
    notes = Notes()
    notes.write("asking", register=MOVED, value=True)
    move(source, target)
    notes.write("granted", register=MOVED, value=True)


if __name__ == "__main__":
    main()
