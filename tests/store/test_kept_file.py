"""A file from an earlier taskmill, with tasks of every kind, opens and runs to its end.

``kept/queue.json`` has the records as that version returned them at one moment.
"""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from taskmill import HistoryRecord, Retry, Scheduler, TaskRecord
from taskmill.testing import ManualClock
from tests.moving.everything import Book, domain, nothing_ran_twice, run_to_the_end, work

KEPT = Path(__file__).parent / "kept"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queue.db"
    path.write_bytes(gzip.decompress((KEPT / "queue.db.gz").read_bytes()))
    return path


def as_kept(record: TaskRecord | HistoryRecord, names: list[str]) -> dict[str, Any]:
    """Return the fields of a record in their JSON form."""
    values = ((name, getattr(record, name)) for name in names)
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values}


async def test_an_earlier_file_has_the_records_that_it_had(file: Path) -> None:
    kept = json.loads((KEPT / "queue.json").read_text(encoding="utf-8"))
    clock = ManualClock(datetime.fromisoformat(kept["at"]))
    async with Scheduler(file, domains=[domain], clock=clock) as scheduler:
        records: list[TaskRecord | HistoryRecord] = [
            *await scheduler.tasks(limit=10_000),
            *await scheduler.history(limit=10_000),
        ]
    names = {each["id"]: list(each) for each in kept["records"]}
    assert [as_kept(record, names[record.id]) for record in records] == kept["records"]


async def test_an_earlier_file_runs_to_its_end(file: Path, tmp_path: Path) -> None:
    book = Book(tmp_path / "book")
    await run_to_the_end(file, book)
    nothing_ran_twice(book)


async def test_an_earlier_file_has_no_errors_and_keeps_new_ones(file: Path, tmp_path: Path) -> None:
    async with Scheduler(file, domains=[domain], state=[Book(tmp_path / "book")]) as scheduler:
        assert await scheduler.error_groups() == []
        assert {record.errors for record in await scheduler.history()} == {()}
        handle = await work.options(retry=Retry.none()).submit("text", fails=1)
        await scheduler.run_until_idle()
        assert [error.error for error in (await handle.record()).errors] == ["RuntimeError: text"]
