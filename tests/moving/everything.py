"""Random queues with tasks of every kind, and a read of all rows that does not use the code of moving."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from taskmill import (
    Context,
    Domain,
    GiveUp,
    Group,
    InvalidState,
    IoBudget,
    RateLimit,
    Retry,
    Scheduler,
    SubmissionError,
)

domain = Domain("all", tags={"made": "here"}, retry=Retry.constant(1, 0))
RELEASE = "held"
"""The group that stays paused: its tasks wait until the group is resumed."""
ODD = ["plain", "zwölf €", "日本語", "tab\tnew\nline", "back\\slash 'quote' \"double\"", "\x7f\x01", "🙂", "%s ? $1"]


class Book:
    """The record of handlers about what they did; each entry may occur only once."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, *words: object) -> None:
        with self._file.open("a") as book:
            book.write(" ".join(map(str, words)) + "\n")

    def lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []


@domain.task(io=IoBudget(disk_read=1000))
async def work(ctx: Context, text: str, fails: int = 0) -> str:
    ctx.state(Book).write("start", ctx.task.id, ctx.attempt)
    await ctx.save(seen=text)
    ctx.record_io(disk_read=len(text), net_tx=3)
    ctx.progress(0.5, text)
    if ctx.task.retries < fails:
        raise RuntimeError(text)
    if fails < 0:
        raise GiveUp(text)
    ctx.state(Book).write("end", ctx.task.id)
    return text


@domain.task(fail_fast=False, max_children=3)
async def parent(ctx: Context, text: str, children: int) -> None:
    ctx.state(Book).write("start", ctx.task.id, ctx.attempt)
    await ctx.spawn_many([work.options(group=RELEASE).prepare(f"{text} {n}") for n in range(children)])


@parent.finalize
async def parent_done(ctx: Context, text: str, children: int) -> int:
    ctx.state(Book).write("end", ctx.task.id)
    return len(ctx.children)


def scheduler_on(store: str | Path, book: Book) -> Scheduler:
    return Scheduler(
        store,
        domains=[domain],
        max_concurrency=4,
        groups={"a": Group(weight=2, rate=RateLimit.per_second(1000)), "b": Group(cap=2)},
        retention=None,
        durability="process",
        state=[book],
    )


async def fill(store: str | Path, book: Book, seed: int, size: int = 60) -> None:
    """Fill a store: some tasks have ended in every way, some wait for every reason, and many settings were changed."""
    chance = random.Random(seed)
    async with scheduler_on(store, book) as scheduler:
        await scheduler.group(RELEASE).pause()
        for _ in range(size):
            await _submit(scheduler, chance)
        await scheduler.run_until_idle(timeout=30)
        for _ in range(size):
            await _submit(scheduler, chance)
        await _control(scheduler, chance)


async def _submit(scheduler: Scheduler, chance: random.Random) -> None:
    text = chance.choice(ODD)
    options: dict[str, Any] = {"group": chance.choice(["a", "b", "", RELEASE])}
    for name, value in {
        "priority": chance.randrange(256),
        "label": text,
        "tags": {text: chance.choice(ODD), "n": str(chance.randrange(5))},
        "key": f"{text}{chance.randrange(6)}",
        "on_duplicate": chance.choice(["skip", "supersede", "requeue"]),
        "run_after": chance.choice([0, 3600]),
        "ttl": chance.choice([3600, 7200, 0.001]),
        "on_dependency_failure": chance.choice(["cancel", "ignore"]),
    }.items():
        if chance.random() < 0.4:
            options[name] = value
    active = await scheduler.tasks(limit=200)
    if active and chance.random() < 0.3:
        options["depends_on"] = [task.id for task in chance.sample(active, min(2, len(active)))]
    if chance.random() < 0.1 and "depends_on" not in options:
        options |= {"every": 3600, "max_runs": chance.choice([None, 5])}
        options.pop("on_duplicate", None)
    try:
        if chance.random() < 0.15:
            await parent.options(group=options["group"]).submit(text, chance.randrange(1, 6))
        else:
            await work.options(**options).submit(text, chance.choice([0, 0, 0, 1, 5, -1]))
    except SubmissionError:
        # At random, a dependency has failed already, or a cycle would close.
        return


async def _control(scheduler: Scheduler, chance: random.Random) -> None:
    await scheduler.group("b").set(weight=chance.randrange(1, 9), cap=3)
    await scheduler.group("a").pause(duration=chance.randrange(100, 1000))
    await scheduler.set_rate_limit("all::parent", RateLimit.per_minute(chance.randrange(10, 99)))
    active = await scheduler.tasks(limit=500)
    for task in chance.sample(active, min(5, len(active))):
        try:
            await scheduler.set_priority(task.id, chance.randrange(256))
            await (scheduler.cancel(task.id) if chance.random() < 0.5 else scheduler.pause_recurring(task.id))
        except (InvalidState, LookupError):
            continue


def leave_running(file: Path) -> list[int]:
    """Make it look as if the dispatcher was killed: mark some pending tasks as running."""
    with closing(sqlite3.connect(file)) as connection, connection:
        rows = connection.execute(
            "UPDATE taskmill_task SET status = 'running', attempt = attempt + 1, started_at = created_at"
            " WHERE id IN (SELECT id FROM taskmill_task WHERE status = 'pending' AND stop IS NULL LIMIT 3) RETURNING id"
        ).fetchall()
    return [id for (id,) in rows]


async def run_to_the_end(store: str | Path, book: Book) -> None:
    """Remove what holds tasks back, and run until only scheduled tasks are left."""
    async with scheduler_on(store, book) as scheduler:
        for group in (RELEASE, "a"):
            await scheduler.group(group).resume()
        await scheduler.set_rate_limit("all::parent", None)
        await scheduler.run_until_idle(timeout=60)
        left = {str(task.status) for task in await scheduler.tasks(limit=10_000)}
        assert left <= {"scheduled", "blocked", "paused", "waiting"}


def nothing_ran_twice(book: Book) -> None:
    lines = book.lines()
    assert lines
    assert sorted(set(lines)) == sorted(lines)


# All rows, as they are

OF_ONE_STORE = {"node_id", "shard"}
LEFT_OUT = {"taskmill_schema", "taskmill_node", "taskmill_writing", "taskmill_commit"}
MARKS = {"departure", "arrival", "arrived"}

Rows = dict[str, list[dict[str, Any]]]


def rows_of(store: str | Path) -> Rows:
    found = _rows_of_postgres(str(store)) if "://" in str(store) else _rows_of_sqlite(Path(store))
    return {name: _in_order(name, rows) for name, rows in found.items() if name not in LEFT_OUT}


def _rows_of_sqlite(file: Path) -> Rows:
    connection = sqlite3.connect(file)
    connection.row_factory = sqlite3.Row
    try:
        names = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'task%'")
        ]
        return {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in names}
    finally:
        connection.close()


def _rows_of_postgres(address: str) -> Rows:
    with psycopg.connect(address, row_factory=psycopg.rows.dict_row) as connection:
        names = [
            row["table_name"]
            for row in connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
            )
        ]
        return {name: list(connection.execute(f"SELECT * FROM {name}".encode())) for name in names}


def _in_order(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    plain = [
        {k: int(v) if isinstance(v, bool) else v for k, v in row.items() if k not in OF_ONE_STORE}
        for row in rows
        if not (name == "taskmill_setting" and row["name"] in MARKS)
    ]
    if name == "taskmill_tally":
        plain = _added_up(plain)
    if name == "taskmill_load":
        plain = _summed(plain)
    return sorted(plain, key=lambda row: [str(value) for value in row.values()])


def _added_up(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        one = sums.setdefault((row["type"], row["group_name"], row["ending"]), {**row, "ended": 0, "kept": 0})
        first = one["ended"] == 0 and one["kept"] == 0
        one["ended"] += row["ended"]
        one["kept"] += row["kept"]
        one["duration_ms"] = row["duration_ms"] if first else one["duration_ms"] + row["duration_ms"]
    return list(sums.values())


def _summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each number: a server keeps the changes, and the number is their sum."""
    sums = Counter[tuple[str, str, str]]()
    for row in rows:
        sums[row["group_name"], row["type"], row["status"]] += row["tasks"]
    return [
        {"group_name": group, "type": type, "status": status, "tasks": n}
        for (group, type, status), n in sums.items()
        if n
    ]


def filled(store: str | Path, book: Book, seed: int, size: int = 60) -> None:
    asyncio.run(fill(store, book, seed, size))
