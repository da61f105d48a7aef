"""A store that is moving or has moved refuses all changes, also from connections that were open before."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import psycopg
import pytest

from taskmill import Domain, Scheduler, StoreMoved
from taskmill.moving import move
from taskmill.store.opening import open_endpoint
from tests.moving.everything import Book, rows_of, scheduler_on, work
from tests.moving.everything import filled as fill_it
from tests.runtime.cron.bench import Bench


@pytest.fixture(params=["file", "postgres"])
def ends(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A source on each engine, and a target on the other."""
    file, address = str(tmp_path / "tasks.db"), str(request.getfixturevalue("postgres_store"))
    return (file, address) if request.param == "file" else (address, file)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "book")


async def test_a_scheduler_that_had_it_open_can_read_but_change_nothing(ends: tuple[str, str], book: Book) -> None:
    source, target = ends
    async with scheduler_on(source, book) as scheduler:
        handle = await work.options(key="a").submit("a")
        await asyncio.to_thread(move, source, target)
        before = rows_of(source)
        assert (await scheduler.get(handle.id)).key == "a"
        for change in (
            work.submit("b"),
            work.options(key="a", on_duplicate="supersede").submit("b"),
            scheduler.cancel(handle.id),
            scheduler.set_priority(handle.id, 1),
            scheduler.pause(),
            scheduler.group("x").set(weight=3),
            scheduler.run_until_idle(timeout=5),
        ):
            with pytest.raises(StoreMoved, match="was moved to"):
                await change
        assert rows_of(source) == before


async def test_a_standby_finds_that_the_queue_has_gone(ends: tuple[str, str], book: Book) -> None:
    source, target = ends
    async with scheduler_on(source, book) as standby:
        await work.submit("a")
        await asyncio.to_thread(move, source, target)
        with pytest.raises(StoreMoved):
            await standby.run(standby=True)


async def test_a_target_cannot_be_used_until_it_is_complete(ends: tuple[str, str], book: Book) -> None:
    source, target = ends
    await asyncio.to_thread(fill_it, source, book, 1, 20)
    async with scheduler_on(target, book) as early:
        loop = asyncio.get_running_loop()
        seen: list[object] = []

        async def attempts() -> None:
            for attempt in (work.submit("b"), early.run_until_idle(timeout=5)):
                try:
                    await attempt
                except StoreMoved as wrong:
                    seen.append(str(wrong))
            try:
                async with Scheduler(target, domains=[]):
                    pass
            except StoreMoved as wrong:
                seen.append(str(wrong))

        def watch(_step: object) -> None:
            if not seen:
                asyncio.run_coroutine_threadsafe(attempts(), loop).result(20)

        await asyncio.to_thread(move, source, target, watch=watch)
        assert len(seen) == 3
        assert all("is being filled from" in str(words) for words in seen)
        # After the move it is a queue like any other, also for processes that had it open.
        assert (await work.submit("b")).kind == "inserted"


async def test_a_transaction_of_the_callers_own_is_refused_as_well(
    postgres_store: str, tmp_path: Path, book: Book
) -> None:
    async with scheduler_on(postgres_store, book) as scheduler:
        await asyncio.to_thread(move, postgres_store, tmp_path / "tasks.db")
        with psycopg.connect(postgres_store) as connection, pytest.raises(StoreMoved):
            await scheduler.submit(work.prepare("b"), connection=connection)


async def test_a_submission_that_was_not_committed_yet_is_waited_for(
    postgres_store: str, tmp_path: Path, book: Book
) -> None:
    async with scheduler_on(postgres_store, book) as scheduler:
        with psycopg.connect(postgres_store) as connection:
            handle = await scheduler.submit(work.prepare("late"), connection=connection)
            moving = asyncio.create_task(asyncio.to_thread(move, postgres_store, tmp_path / "tasks.db"))
            await _until_a_session_waits(postgres_store)
            connection.commit()
        await moving
    assert [row["id"] for row in rows_of(tmp_path / "tasks.db")["taskmill_task"]] == [handle.id]


async def _until_a_session_waits(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        while not connection.execute(
            "SELECT 1 FROM pg_locks WHERE NOT granted"
            " AND relation IN ('taskmill_load'::regclass, 'taskmill_task'::regclass)"
        ).fetchone():
            await asyncio.sleep(0.01)


# A node that still dispatches, though it was declared dead


async def _seal(store: str) -> None:
    def seal() -> None:
        with (
            contextlib.closing(open_endpoint(store, must_exist=True)) as endpoint,
            endpoint.writing("it is on the moon"),
        ):
            pass

    await asyncio.to_thread(seal)


async def _end_of(running: asyncio.Task[None]) -> str:
    await asyncio.wait([running], timeout=20)
    try:
        running.cancel()
        await running
    except (StoreMoved, asyncio.CancelledError) as wrong:
        return repr(wrong)
    return "it has ended"


async def test_a_scheduler_under_which_the_queue_is_moved_stops_what_it_runs_and_says_so(ends: tuple[str, str]) -> None:
    domain = Domain("d")
    seen: list[str] = []

    @domain.task
    async def work(seconds: float) -> None:
        seen.append("begun")
        try:
            await asyncio.sleep(seconds)
        finally:
            seen.append("over")

    async with Scheduler(ends[0], domains=[domain], shutdown_grace=0) as scheduler:
        await scheduler.submit_many([work.prepare(0.5), work.prepare(60)])
        running = asyncio.create_task(scheduler.run())
        async with asyncio.timeout(20):
            while len(seen) < 2:
                await asyncio.sleep(0.01)
        await _seal(ends[0])
        end = await _end_of(running)
    assert end == "StoreMoved('it is on the moon')"
    assert seen == ["begun", "begun", "over", "over"]


async def test_a_scheduler_that_is_idle_on_a_cluster_finds_that_the_queue_was_moved(postgres_store: str) -> None:
    async with Scheduler(postgres_store) as scheduler:
        running = asyncio.create_task(scheduler.run())
        await asyncio.sleep(1)
        await _seal(postgres_store)
        end = await _end_of(running)
    assert end == "StoreMoved('it is on the moon')"


async def test_cron_tasks_that_are_due_find_that_the_queue_was_moved(ends: tuple[str, str]) -> None:
    bench = Bench()
    tasks = [("tick", "* * * * *", bench.handler(), 1)]
    async with Scheduler(ends[0], cron=tasks, clock=bench.clock) as scheduler:
        running = asyncio.create_task(scheduler.run())
        await bench.clock.advance(1)
        await _seal(ends[0])
        await bench.clock.advance(60)
        end = await _end_of(running)
    assert end == "StoreMoved('it is on the moon')"
    assert bench.starts == ["10:00:00"]
