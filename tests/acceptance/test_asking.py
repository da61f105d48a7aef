"""``taskmill.reading.ask``: commands read a store without an event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from taskmill import Domain, InvalidState, Snapshot, blocking
from taskmill.reading import Reader, ask

domain = Domain("d")


@domain.task
async def work(n: int) -> None:
    """Nothing."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    file = tmp_path / "tasks.db"
    with blocking.Scheduler(file, domains=[domain]) as scheduler:
        scheduler.submit_many([work.prepare(n) for n in range(3)])
    return file


def test_a_question_is_answered_where_no_event_loop_runs(store: Path) -> None:
    async def look(reader: Reader) -> tuple[Snapshot, int]:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return await reader.snapshot(), await reader.count()

    snapshot, number = ask(store, look)
    assert (snapshot.counts["pending"], number) == (3, 3)


def test_an_error_reaches_the_program_that_asked(store: Path) -> None:
    async def fail(reader: Reader) -> None:
        raise ValueError(await reader.count())

    with pytest.raises(ValueError, match="3"):
        ask(store, fail)


def test_a_question_that_waits_for_an_event_loop_is_refused_and_the_store_is_closed(store: Path) -> None:
    asked: list[Reader] = []

    async def wait(reader: Reader) -> None:
        asked.append(reader)
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits for an event loop"):
        ask(store, wait)
    with pytest.raises(InvalidState, match="not open"):
        asyncio.run(asked[0].count())
