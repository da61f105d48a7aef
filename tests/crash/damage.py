"""A store with tasks of every kind, ways to damage it, and a user that calls every verb."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import shutil
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from taskmill import Ending, Retention, Scheduler, Status, StoreCorrupt, StoreError, Submission, TaskmillError
from taskmill.errors import SchemaTooNew
from tests.acceptance.sqlite_library import sqlite3
from tests.moving.everything import RELEASE, Book, domain, fill, leave_running, scheduler_on

NOT_TEXT = b"\xff\xfe\x00"
JUNK: list[object] = [
    *(None, 0, -1, 2**62, -(2**63), 1.5, float("inf")),
    *("", "junk", "ééé", '{"a":', "[]", "{}", "[1,2,3]", "null"),
    *(b"\xff\xfe", b""),
    NOT_TEXT,
]
"""Values of each type; the last one is stored as text."""

SET_ASIDE = {"taskmill_task", "taskmill_series", "taskmill_cron", "taskmill_io"}
HARMLESS = {"taskmill_history", "taskmill_dependency", "taskmill_task_tag", "taskmill_history_tag", "taskmill_tally"}
"""Damage in these tables affects no other task."""
LONGEST = 30.0


async def nightly() -> None: ...


async def make_world(file: Path, book: Book) -> None:
    """Fill a file, with a cron task and with tasks that a killed dispatcher left running."""
    await fill(file, book, seed=1, size=40)
    at_three = [("nightly", "0 3 * * *", nightly, 60)]
    async with Scheduler(file, domains=[domain], cron=at_three, state=[book]) as scheduler, scheduler.running():
        pass
    leave_running(file)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


# Damage


def overwrite(file: Path, chance: random.Random) -> str:
    """Overwrite some bytes anywhere behind the header."""
    content = bytearray(file.read_bytes())
    count = chance.choice([1, 1, 4, 16, 200])
    start = chance.randrange(100, len(content) - count)
    content[start : start + count] = chance.randbytes(count)
    file.write_bytes(content)
    return f"{count} bytes at {start} of {file.name}"


def tables_of(file: Path) -> dict[str, list[str]]:
    """Return the columns of each of our tables that has rows."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'taskmill%'")
        return {
            name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            for (name,) in names.fetchall()
            if name != "taskmill_schema" and connection.execute(f"SELECT 1 FROM {name}").fetchone()
        }


def put_junk(file: Path, table: str, column: str, value: object, chance: random.Random, where: str = "true") -> bool:
    """Store a value that its table would refuse, in a random row; return False if no row can have it."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        keys = [row[1] for row in columns if row[5]]
        rows = connection.execute(f"SELECT {', '.join(keys)} FROM {table} WHERE {where}").fetchall()
        (strict,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        loose = re.sub(r"\b(INTEGER|TEXT)\b(?! PRIMARY)|NOT NULL|STRICT,? ?", "", strict).strip().rstrip(",")
    _replace_schema(file, table, loose)
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        found = " AND ".join(f"{key} = ?" for key in keys)
        holder = "CAST(? AS TEXT)" if value is NOT_TEXT else "?"
        try:
            connection.execute(f"UPDATE {table} SET {column} = {holder} WHERE {found}", (value, *chance.choice(rows)))
        except sqlite3.Error:
            return False
    _replace_schema(file, table, strict)
    return True


def _replace_schema(file: Path, table: str, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = 1")
        (version,) = connection.execute("PRAGMA schema_version").fetchone()
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (sql, table))
        connection.execute(f"PRAGMA schema_version = {version + 1}")


def copy_with_log(file: Path, copy: Path) -> None:
    """Copy an open file, so that part of it is only in the log."""
    for entry in (file, Path(f"{file}-wal")):
        shutil.copy(entry, str(copy) + entry.name.removeprefix(file.name))


# Use


class User:
    """Calls every verb of a scheduler, and records violations of the guarantee about damage."""

    def __init__(self, file: Path, book: Book) -> None:
        self._file = file
        self._scheduler = scheduler_on(file, book)
        self.broken: list[str] = []
        self.corrupt: list[str] = []
        self.ran = False
        """True if a task that is unrelated to the damage has run."""

    async def use_everything(self) -> None:
        if not await self._call(self._scheduler.open):
            return
        try:
            await self._look()
            await self._change()
            await self._run()
            await self._call(lambda: self._scheduler.prune(Retention(max_count=5)))
            await self._call(lambda: self._scheduler.cancel_where(type="all::work"))
        finally:
            await self._call(self._scheduler.close)

    async def _look(self) -> None:
        scheduler = self._scheduler
        verbs: list[Callable[[], Awaitable[object]]] = [
            *(scheduler.tasks, scheduler.history, scheduler.dead_letters, scheduler.count, scheduler.snapshot),
            lambda: scheduler.facts(integrity=True),
            lambda: scheduler.stats("all::work"),
            lambda: scheduler.tag_values("made"),
            lambda: scheduler.tasks(tags={"made": "here"}),
            lambda: scheduler.find("all::work", "plain1"),
        ]
        for verb in verbs:
            await self._call(verb)
        for word in (*Status, *Ending):
            await self._call(lambda: scheduler.count(status=word))  # noqa: B023 - called at once
        for id in range(1, 100):
            await self._call(lambda: scheduler.get(id))  # noqa: B023
            if id % 7 == 0:
                await self._call(lambda: scheduler.explain(id))  # noqa: B023
                await self._call(lambda: scheduler.graph(id))  # noqa: B023

    async def _change(self) -> None:
        scheduler = self._scheduler
        for number in range(6):
            for on_duplicate in ("skip", "supersede", "requeue"):
                submission: Submission = Submission(
                    "all::work", {"text": "x"}, key=f"plain{number}", on_duplicate=on_duplicate, group=RELEASE
                )
                await self._call(lambda: scheduler.submit(submission))  # noqa: B023
        for id in range(3, 100, 9):
            for verb in (
                scheduler.cancel,
                scheduler.retry_dead,
                scheduler.pause_recurring,
                scheduler.resume_recurring,
                lambda task_id: scheduler.set_priority(task_id, 3),
            ):
                await self._call(lambda: verb(id))  # noqa: B023
        group = scheduler.group("b")
        for change in (lambda: group.set(cap=4), group.pause, group.resume):
            await self._call(change)

    async def _run(self) -> None:
        """Dispatch until a healthy task has run."""
        healthy: Submission = Submission("all::work", {"text": "healthy"}, priority=0, group="fresh")
        running = asyncio.create_task(self._scheduler.run())
        await self._call(lambda: self._until_run(healthy, running))
        await self._call(lambda: self._scheduler.stop(grace=0))
        await self._call(lambda: running)

    async def _until_run(self, healthy: Submission, running: asyncio.Task[None]) -> None:
        handle = await self._scheduler.submit(healthy)
        ended = asyncio.create_task(handle.wait(timeout=5))
        await asyncio.wait([ended, running], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            with contextlib.suppress(TimeoutError):
                self.ran = (await ended).ending == "completed"
        else:
            ended.cancel()

    async def _call(self, verb: Callable[[], Awaitable[object]]) -> bool:
        """Call a verb; return True if it did not raise."""
        try:
            async with asyncio.timeout(LONGEST):
                await verb()
        except (StoreCorrupt, SchemaTooNew) as wrong:
            # A damaged schema number may look like that of a newer version.
            self.corrupt.append(str(wrong))
            if str(self._file) not in str(wrong):
                self.broken.append(f"the file is not named: {wrong}")
        except StoreError as wrong:
            self.broken.append(f"not said to be damage: {wrong}")
        except TaskmillError:
            return False
        except Exception:
            self.broken.append(traceback.format_exc())
        else:
            return True
        return False


def promises_kept(what: str, user: User, *, must_run: bool, must_name: Sequence[str] = ()) -> None:
    assert not user.broken, f"{what}: {user.broken[0]}"
    if must_run:
        assert user.ran, f"{what}: a healthy task has not run; {user.corrupt[-1:]}"
    for words in user.corrupt:
        for name in must_name:
            assert name in words, f"{what}: {words}"


async def used(file: Path, book: Book) -> User:
    user = User(file, book)
    await user.use_everything()
    return user


def junk_of(chance: random.Random, tables: dict[str, list[str]]) -> tuple[str, str, Any]:
    table = chance.choice(["taskmill_task"] * 8 + list(tables))
    return table, chance.choice(tables[table]), chance.choice(JUNK)
