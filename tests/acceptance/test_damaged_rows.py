"""A row with an impossible value: the dispatcher starts, sets it aside, and runs everything else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from pathlib import Path

import pytest

from taskmill import Ending, HistoryRecord, Scheduler, StoreCorrupt
from taskmill.store.opening import is_postgres
from taskmill.store.sql import damage
from taskmill.store.sqlite.connection import connect
from taskmill.store.sqlite.session import Session
from tests.acceptance.box import box, put
from tests.acceptance.command_line import Here
from tests.both_engines import name_of
from tests.crash.damage import put_junk
from tests.raw_rows import raw


def write(path: Path, id: int, **values: str) -> None:
    """Write values into a row that its table would refuse."""
    with raw(path) as connection:
        if is_postgres(name_of(path)):
            for column in values:
                connection.execute(f"ALTER TABLE taskmill_task DROP CONSTRAINT IF EXISTS taskmill_task_{column}_check")
        else:
            connection.execute("PRAGMA ignore_check_constraints = 1")
        changes = ", ".join(f"{column} = '{value}'" for column, value in values.items())
        assert connection.execute(f"UPDATE taskmill_task SET {changes} WHERE id = {id}").rowcount == 1


async def _three_tasks(path: Path) -> list[int]:
    async with Scheduler(path, domains=[box]) as scheduler:
        handles = await scheduler.submit_many([put.options(key=f"k{n}").prepare("a", n) for n in range(3)])
        return [handle.id for handle in handles]


DAMAGE = [{"stop": "junk"}, {"status": "junk"}, {"status": "running", "stop": "junk"}]


@pytest.mark.parametrize("words", DAMAGE, ids=str)
async def test_a_word_that_cannot_be_keeps_no_other_task_from_running(path: Path, words: dict[str, str]) -> None:
    before, damaged, after = await _three_tasks(path)
    write(path, damaged, **words)
    async with Scheduler(path, domains=[box], shutdown_grace=0) as scheduler:
        await scheduler.run_until_idle(timeout=20)
        for id in (before, after):
            assert (await scheduler.wait(id, timeout=1)).ending == Ending.COMPLETED
        fresh = await put.submit("b")
        await scheduler.run_until_idle(timeout=20)
        assert await fresh.result(timeout=1) == 1


@pytest.mark.one_engine("on PostgreSQL the node that runs a task decides about it")
async def test_a_damaged_task_of_a_dead_dispatcher_is_a_dead_letter_that_names_the_column(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, damaged, _ = await _three_tasks(path)
    write(path, damaged, status="running", stop="junk")
    caplog.set_level(logging.ERROR, "taskmill")
    for _ in range(2):
        async with Scheduler(path, domains=[box], shutdown_grace=0) as scheduler:
            await scheduler.run_until_idle(timeout=20)
            record = await scheduler.get(damaged)
    assert isinstance(record, HistoryRecord)
    assert record.ending == Ending.DEAD_LETTER
    assert record.error == "the stored row is unreadable: column stop holds 'junk'"
    told = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    assert told == [f"{path}: row {damaged} of taskmill_task is damaged: column stop holds 'junk'; it is set aside"]


@pytest.mark.one_engine("a server checks the words of its columns")
async def test_a_submission_that_meets_a_damaged_row_names_it_and_others_are_stored(path: Path) -> None:
    _, damaged, _ = await _three_tasks(path)
    write(path, damaged, status="junk")
    async with Scheduler(path, domains=[box]) as scheduler:
        submissions = [put.options(key=key).submit("a") for key in ("k1", "new", "other")]
        first, *others = await asyncio.gather(*submissions, return_exceptions=True)
        assert isinstance(first, StoreCorrupt)
        for words in (str(path), f"row {damaged} ", "column status", "'junk'", "taskmill doctor"):
            assert words in str(first)
        assert not [other for other in others if isinstance(other, BaseException)]
        for verb in (lambda: scheduler.get(damaged), scheduler.tasks):
            with pytest.raises(StoreCorrupt, match=rf"{damaged}.* column status"):
                await verb()


async def test_an_instant_that_no_calendar_has_is_said_to_be_damaged(path: Path) -> None:
    _, damaged, _ = await _three_tasks(path)
    write(path, damaged, expires_at=str(2**62))
    async with Scheduler(path, domains=[box]) as scheduler:
        for verb in (scheduler.explain, scheduler.get):
            with pytest.raises(StoreCorrupt, match=rf"{damaged}.* column expires_at"):
                await verb(damaged)


@pytest.mark.one_engine("a server checks the words of its columns")
async def test_doctor_names_every_damaged_row(path: Path, here: Here) -> None:
    ids = await _three_tasks(path)
    write(path, ids[0], status="junk")
    write(path, ids[2], stop="junk")
    answer = await asyncio.to_thread(here.answer, "doctor", path, code=1)
    (said,) = [finding["text"] for finding in answer["findings"] if finding["subject"] == "rows"]
    assert f"row {ids[0]} of taskmill_task is damaged: column status holds 'junk'" in said
    assert f"row {ids[2]} of taskmill_task is damaged: column stop holds 'junk'" in said


def write_behind_the_indexes(path: Path, id: int, value: bytes) -> None:
    """Change the group of a task in its table alone, as damage to a page does."""
    hide = "DELETE FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'taskmill_task' AND sql IS NOT NULL"
    with raw(path) as connection:
        connection.execute("PRAGMA writable_schema = 1")
        hidden = connection.execute(hide.replace("DELETE", "SELECT *")).fetchall()
        connection.execute(hide)
    with raw(path) as connection:
        changed = connection.execute(f"UPDATE taskmill_task SET group_name = CAST(? AS TEXT) WHERE id = {id}", (value,))
        assert changed.rowcount == 1
    with raw(path) as connection:
        connection.execute("PRAGMA writable_schema = 1")
        for row in hidden:
            connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)


async def _groups(path: Path, *names: str) -> list[int]:
    async with Scheduler(path, domains=[box]):
        return [(await put.options(group=name).submit(name)).id for name in names]


@pytest.mark.one_engine("damage to pages of a file")
async def test_a_name_that_is_damaged_in_the_table_alone_is_set_aside(path: Path) -> None:
    before, damaged, after = await _groups(path, "before", "middle", "rest")
    write_behind_the_indexes(path, damaged, b"a\xff")
    async with Scheduler(path, domains=[box], shutdown_grace=0) as scheduler:
        await scheduler.run_until_idle(timeout=20)
        for id in (before, after):
            assert (await scheduler.wait(id, timeout=1)).ending == Ending.COMPLETED
        record = await scheduler.wait(damaged, timeout=1)
        assert record.ending == Ending.DEAD_LETTER
        assert "column group_name" in str(record.error)
        assert (await scheduler.facts(integrity=True))["integrity"] == "ok"


@pytest.mark.one_engine("damage to pages of a file")
async def test_an_index_that_leads_back_to_an_earlier_group_is_rebuilt(path: Path) -> None:
    ids = await _groups(path, "before", "middle", "rest")
    write_behind_the_indexes(path, ids[1], b"a")
    async with Scheduler(path, domains=[box], shutdown_grace=0) as scheduler:
        await scheduler.snapshot()
        await scheduler.run_until_idle(timeout=20)
        for id in ids:
            assert (await scheduler.wait(id, timeout=1)).ending == Ending.COMPLETED
        assert (await scheduler.facts(integrity=True))["integrity"] == "ok"


@pytest.mark.one_engine("a server stores no bytes as a text")
async def test_a_damaged_tag_keeps_no_task_from_ending(path: Path) -> None:
    async with Scheduler(path, domains=[box]) as scheduler:
        tagged = await put.options(tags={"colour": "red", "size": "m"}).submit("a", 0)
    assert put_junk(path, "taskmill_task_tag", "value", b"\xff\xfe", random.Random(0))
    async with Scheduler(path, domains=[box], shutdown_grace=0) as scheduler:
        other = await put.submit("b", 1)
        await scheduler.run_until_idle(timeout=20)
        assert (await other.wait(timeout=1)).ending == Ending.COMPLETED
        record = await scheduler.wait(tagged.id, timeout=1)
        assert (record.ending, record.tags) == (Ending.COMPLETED, {"colour": "red", "size": "m"})


@pytest.mark.one_engine("a server stores no bytes as a text")
async def test_every_damaged_tag_is_found_however_many_tags_there_are(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "BATCH", 2)
    async with Scheduler(path, domains=[box]) as scheduler:
        tasks = [put.options(tags={"a": "1", "b": "2", "c": "3"}).prepare(str(number), 0) for number in range(4)]
        ids = [handle.id for handle in await scheduler.submit_many(tasks)]
    for id in ids:
        assert put_junk(path, "taskmill_task_tag", "value", b"\xff\xfe", random.Random(0), f"task_id = {id}")
    with contextlib.closing(connect(str(path), read_only=True)) as connection:
        assert [found.id for found in damage.find(Session(connection))] == ids
