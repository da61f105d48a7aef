"""Rows that cannot be read: they are named, they end, and the other tasks continue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from taskmill import Retry, Scheduler, StoreCorrupt
from taskmill.testing import ManualClock
from tests.acceptance.box import box, explode, put
from tests.raw_rows import raw


def damage(path: Path, column: str, value: object, id: int) -> None:
    with raw(path) as connection:
        changed = connection.execute(f"UPDATE taskmill_task SET {column} = CAST(? AS TEXT) WHERE id = ?", (value, id))
        assert changed.rowcount == 1


READABLE_DAMAGE = [
    ("payload", "not JSON"),
    ("payload", '{"path":'),
    ("tags", "not JSON"),
    ("tags", '["a"]'),
    ("tags", '{"a":1}'),
    ("progress", "not JSON"),
    ("progress", '{"fraction":"half"}'),
    ("payload", b"\xff\xfe"),
    ("tags", b"\xff\xfe"),
    ("label", b"\xff\xfe"),
]


@pytest.mark.parametrize(("column", "value"), READABLE_DAMAGE)
async def test_reading_a_corrupt_row_says_which_task_it_is(path: Path, column: str, value: object) -> None:
    async with Scheduler(path, domains=[box]) as scheduler:
        healthy = await put.submit("a")
        ids = [(await put.options(key="k").submit("a")).id for _ in range(1)]
        damage(path, column, value, ids[0])
        reads: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: scheduler.get(ids[0]),
            lambda: scheduler.find("box::put", "k"),
            scheduler.tasks,
        ]
        for read in reads:
            with pytest.raises(StoreCorrupt, match=rf"\b{ids[0]}\b"):
                await read()
        assert (await scheduler.get(healthy.id)).payload == {"path": "a"}


RUNNABLE_DAMAGE = [
    ("payload", "not JSON"),
    ("payload", '{"path":7}'),
    ("payload", "[]"),
    ("payload", b"\xff\xfe"),
    ("overrides", "not JSON"),
    ("overrides", '{"timeout_ms":"long"}'),
    ("overrides", '{"retry":{"retries":-5}}'),
    ("overrides", b"\xff\xfe"),
]
HARMLESS_DAMAGE = [("tags", "not JSON"), ("tags", b"\xff\xfe"), ("progress", "not JSON"), ("saved", "not JSON")]


def _history(path: Path, id: int) -> tuple[str, str | None] | None:
    """Return the ending and the error of a row that taskmill may be unable to read."""
    with raw(path) as connection:
        row: tuple[str, str | None] | None = connection.execute(
            "SELECT ending, error FROM taskmill_history WHERE id = ?", (id,)
        ).fetchone()
        return row


def _impatient(path: Path, clock: ManualClock | None = None) -> Scheduler:
    return Scheduler(path, domains=[box], shutdown_grace=0, cancel_timeout=0.1, clock=clock)


@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "heard"])
@pytest.mark.parametrize(("column", "value"), [*RUNNABLE_DAMAGE, *HARMLESS_DAMAGE])
async def test_a_corrupt_row_ends_with_an_error_and_the_others_run(
    path: Path, column: str, value: object, heard: bool
) -> None:
    async with _impatient(path) as scheduler:
        before, corrupt, after = [await put.options(retry=Retry.none()).submit("a") for _ in range(3)]
        damage(path, column, value, corrupt.id)
        listener = scheduler.events() if heard else None
        await scheduler.run_until_idle(timeout=1)
        assert await before.result(timeout=1) == 1
        assert await after.result(timeout=1) == 1
        ended = _history(path, corrupt.id)
        assert ended is not None
        ending, error = ended
        if (column, value) in RUNNABLE_DAMAGE:
            assert ending in ("failed", "dead_letter")
        if ending != "completed":
            assert error
        if listener is not None:
            await listener.aclose()


@pytest.mark.parametrize(("column", "value"), HARMLESS_DAMAGE)
async def test_a_corrupt_row_whose_handler_raises_still_ends(path: Path, column: str, value: object) -> None:
    async with _impatient(path) as scheduler:
        corrupt = await explode.options(retry=Retry.none()).submit("bang")
        damage(path, column, value, corrupt.id)
        await scheduler.run_until_idle(timeout=1)
        ended = _history(path, corrupt.id)
        assert ended is not None
        assert ended[0] in ("failed", "dead_letter")


@pytest.mark.parametrize(("column", "value"), [*RUNNABLE_DAMAGE, *HARMLESS_DAMAGE])
async def test_a_corrupt_task_can_be_cancelled(path: Path, column: str, value: object) -> None:
    async with _impatient(path) as scheduler:
        corrupt = await put.submit("a")
        damage(path, column, value, corrupt.id)
        listener = scheduler.events()
        assert await corrupt.cancel() is True
        assert _history(path, corrupt.id) == ("cancelled", None)
        await listener.aclose()


@pytest.mark.parametrize(("column", "value"), [*RUNNABLE_DAMAGE, *HARMLESS_DAMAGE])
async def test_a_corrupt_task_can_expire(path: Path, column: str, value: object) -> None:
    clock = ManualClock()
    async with _impatient(path, clock) as scheduler:
        corrupt = await put.options(ttl=10, run_after=60).submit("a")
        healthy = await put.options(run_after=30).submit("a")
        damage(path, column, value, corrupt.id)
        listener = scheduler.events()
        async with scheduler.running():
            await clock.advance(40)
            ended = _history(path, corrupt.id), _history(path, healthy.id)
            stopping = asyncio.create_task(scheduler.stop())
            await clock.advance(10)
            await stopping
        await listener.aclose()
        assert ended == (("expired", None), ("completed", None))
