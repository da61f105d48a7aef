"""Random damage to pages, columns and the log: every verb works or reports that the store is damaged, and where.

One damaged row does not keep other tasks from running.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
from pathlib import Path

import pytest

from taskmill import Scheduler
from tests.crash import damage
from tests.moving.everything import Book, fill

ROUNDS = int(os.environ.get("TASKMILL_CRASH_ROUNDS", "12"))
"""Number of files with each kind of damage."""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return Book(tmp_path_factory.mktemp("book") / "book")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, book: Book) -> Path:
    file = tmp_path_factory.mktemp("world") / "world.db"
    asyncio.run(damage.make_world(file, book))
    return file


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "taskmill")


@pytest.mark.timeout(60 + 5 * ROUNDS)
async def test_damaged_pages_raise_nothing_but_errors_of_the_store(world: Path, book: Book, tmp_path: Path) -> None:
    for seed in range(ROUNDS):
        file = tmp_path / f"{seed}.db"
        shutil.copy(world, file)
        what = damage.overwrite(file, random.Random(seed))
        damage.promises_kept(f"seed {seed}: {what}", await damage.used(file, book), must_run=False)


@pytest.mark.timeout(60 + 5 * ROUNDS)
async def test_a_damaged_value_is_named_and_keeps_no_other_task_from_running(
    world: Path, book: Book, tmp_path: Path
) -> None:
    tables = damage.tables_of(world)
    for seed in range(2 * ROUNDS):
        chance = random.Random(seed)
        file = tmp_path / f"{seed}.db"
        shutil.copy(world, file)
        table, column, value = damage.junk_of(chance, tables)
        if damage.put_junk(file, table, column, value, chance):
            what = f"seed {seed}: {table}.{column} = {value!r}"
            user = await damage.used(file, book)
            damage.promises_kept(what, user, must_run=table in damage.SET_ASIDE | damage.HARMLESS)


@pytest.mark.timeout(60 + 5 * ROUNDS)
async def test_a_damaged_log_raises_nothing_but_errors_of_the_store(book: Book, tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    await fill(source, book, seed=2, size=10)
    async with Scheduler(source) as scheduler:
        # While the file is open, the following writes stay in the log.
        await fill(source, book, seed=3, size=20)
        await scheduler.count()
        for seed in range(ROUNDS):
            file = tmp_path / f"{seed}.db"
            damage.copy_with_log(source, file)
            what = damage.overwrite(Path(f"{file}-wal"), random.Random(seed))
            damage.promises_kept(f"seed {seed}: {what}", await damage.used(file, book), must_run=False)
