"""A move that is killed at any moment can be resumed; at no moment are there two usable queues, or none."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from taskmill import Scheduler, StoreMoved
from taskmill.moving import move, undo
from tests.acceptance.command_line import ENVIRONMENT
from tests.moving import mover
from tests.moving.everything import Book, Rows, filled, nothing_ran_twice, rows_of, run_to_the_end
from tests.repetition import seeds
from tests.warm_python import run as warm_run

ROOT = Path(__file__).parents[2]
KILLED = -9
LAST_MOMENTS = 6
"""The moments of the three transactions of the handover: source marked, target opened, source marked again."""


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "book")


def moving(source: str | Path, target: str | Path, moments: int) -> subprocess.CompletedProcess[str]:
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{ROOT}"}
    return warm_run(
        [sys.executable, "-m", "tests.moving.mover", str(source), str(target), str(moments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


async def is_open(store: str | Path) -> bool:
    try:
        async with Scheduler(store, retention=None):
            return True
    except StoreMoved:
        return False


def check_one_queue(source: str | Path, target: str | Path, before: Rows) -> None:
    """Check that at most one store can be used, and that it has everything."""
    opened = [store for store in (source, target) if asyncio.run(is_open(store))]
    if opened == [source, target]:
        # The source was not sealed yet, and nothing was copied.
        assert not rows_of(target)["taskmill_task"]
        assert rows_of(source) == before
    elif opened:
        assert rows_of(opened[0]) == before
    else:
        assert rows_of(source) == before


def first_copied(said: str) -> int:
    return next((int(line.split()[2]) for line in said.splitlines() if line.startswith("copying")), 0)


def last_copied(said: str) -> int:
    return max((int(line.split()[2]) for line in said.splitlines() if line.startswith("copying")), default=0)


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("direction", ["there", "back"])
def test_a_move_that_is_killed_again_and_again_comes_to_its_end(
    tmp_path: Path, postgres_store: str, book: Book, seed: int, direction: str
) -> None:
    file = str(tmp_path / "tasks.db")
    source, target = (file, postgres_store) if direction == "there" else (postgres_store, file)
    filled(source, book, seed, size=50)
    before = rows_of(source)
    chance = random.Random(seed)
    copied, deaths = 0, 0
    while (run := moving(source, target, chance.randrange(2, 16))).returncode == KILLED:
        deaths += 1
        check_one_queue(source, target, before)
        # Committed rows are not copied again.
        assert first_copied(run.stdout) >= copied
        copied = max(copied, last_copied(run.stdout))
    assert run.returncode == 0, run.stderr
    assert deaths > 2
    assert rows_of(target) == before
    assert not asyncio.run(is_open(source))
    asyncio.run(run_to_the_end(target, book))
    nothing_ran_twice(book)


@pytest.mark.parametrize("moment", range(1, LAST_MOMENTS + 1))
def test_a_kill_during_the_handover_leaves_one_queue(
    tmp_path: Path, postgres_store: str, book: Book, moment: int
) -> None:
    file = tmp_path / "tasks.db"
    filled(file, book, 3, size=2)
    before = rows_of(file)
    moments = _moments(file, tmp_path / "trial.db")
    run = moving(file, postgres_store, moments - LAST_MOMENTS + moment)
    assert run.returncode == KILLED, run.stderr
    check_one_queue(file, postgres_store, before)
    # From two moments before the source is marked, only the target knows whether it was opened.
    assert asyncio.run(is_open(postgres_store)) == (moment >= 4)
    assert not asyncio.run(is_open(file))
    moved = move(file, postgres_store)
    assert moved.before == (moment >= 4)
    assert rows_of(postgres_store) == before
    with pytest.raises(StoreMoved, match="was moved to"):
        asyncio.run(run_to_the_end(file, book))


def _moments(file: Path, elsewhere: Path) -> int:
    """Return the number of moments of a move of this file; it depends only on the rows."""
    copy = file.with_name("copy.db")
    copy.write_bytes(file.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        fate = mover.decide(mover.NEVER, patch.setattr)
        move(copy, elsewhere)
    return fate.passed


@pytest.mark.parametrize("moment", [2, 3, 6, 25])
def test_a_move_that_is_given_up_leaves_the_source_as_it_was_and_the_target_empty(
    tmp_path: Path, postgres_store: str, book: Book, moment: int
) -> None:
    file = tmp_path / "tasks.db"
    filled(file, book, 4, size=30)
    before = rows_of(file)
    asyncio.run(is_open(postgres_store))
    new = rows_of(postgres_store)
    assert moving(file, postgres_store, moment).returncode == KILLED
    undo(file, postgres_store)
    assert rows_of(file) == before
    assert rows_of(postgres_store) == new
    assert asyncio.run(is_open(postgres_store))
    asyncio.run(run_to_the_end(file, book))
    nothing_ran_twice(book)


def test_a_target_that_was_lost_on_the_way_is_filled_anew(tmp_path: Path, book: Book) -> None:
    file, target = tmp_path / "tasks.db", tmp_path / "other.db"
    filled(file, book, 5, size=30)
    before = rows_of(file)
    assert moving(file, target, 25).returncode == KILLED
    for lost in tmp_path.glob("other.db*"):
        lost.unlink()
    move(file, target)
    assert rows_of(target) == before
