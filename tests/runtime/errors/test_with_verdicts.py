"""An error is stored with the verdict, or not at all; tasks without errors cost nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, Retry, Scheduler, StoreCorrupt, TaskRecord
from taskmill.store.postgres.session import Session as PostgresSession
from taskmill.store.sqlite.session import Session as SqliteSession
from taskmill.testing import ManualClock
from tests.raw_rows import raw, refusing
from tests.runtime.errors import failing
from tests.runtime.errors.failing import work

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@contextmanager
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the statements that are executed, by name."""
    counted: Counter[str] = Counter()

    def counting(whole: Callable[..., Any]) -> Callable[..., Any]:
        def execute(self: Any, statement: str, *given: Any) -> Any:
            counted[statement] += 1
            return whole(self, statement, *given)

        return execute

    with monkeypatch.context() as patch:
        for session in (SqliteSession, PostgresSession):
            for name in ("execute", "execute_if_all"):
                patch.setattr(session, name, counting(getattr(session, name)))
        yield counted


async def test_no_verdict_is_stored_without_its_error(path: Path, manual_clock: ManualClock) -> None:
    async with Scheduler(path, domains=[work], clock=manual_clock) as scheduler:
        handle = await failing.give_up.submit()
        async with scheduler.running():
            with refusing(path, "INSERT", "taskmill_error"):
                await manual_clock.advance(1)
                record = await handle.record()
                assert isinstance(record, TaskRecord)
                assert record.errors == ()
            await manual_clock.advance(10)
            record = await handle.record()
            assert record.state == "failed"
            assert [each.error for each in record.errors] == ["no use"]


async def test_no_error_is_stored_without_its_verdict(path: Path, manual_clock: ManualClock) -> None:
    async with Scheduler(path, domains=[work], clock=manual_clock) as scheduler:
        await failing.give_up.submit()
        async with scheduler.running():
            with refusing(path, "INSERT", "taskmill_history"):
                await manual_clock.advance(1)
                assert await scheduler.error_groups() == []
            await manual_clock.advance(10)
            (group,) = await scheduler.error_groups()
            assert group.count == 1


async def test_an_attempt_that_fails_after_it_was_cancelled_leaves_no_error(path: Path) -> None:
    domain = Domain("d", retry=Retry.none())
    running = asyncio.Event()

    @domain.task
    async def fail() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in cleaning up")

    async with Scheduler(path, domains=[domain]) as scheduler, scheduler.running():
        handle = await fail.submit()
        await running.wait()
        await scheduler.cancel(handle.id)
        record = await handle.wait()
        assert (record.state, record.errors) == ("cancelled", ())


async def test_a_drain_of_tasks_that_succeed_executes_no_statement_about_errors(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d", retry=Retry.none())

    @domain.task
    async def succeed() -> None: ...

    @domain.task
    async def fail() -> None:
        raise ValueError("no")

    async with Scheduler(path, domains=[domain]) as scheduler:
        await scheduler.submit_many([succeed.prepare() for _ in range(200)])
        with statements(monkeypatch) as counted:
            await scheduler.run_until_idle()
        assert counted["record_endings"] > 0
        assert [name for name in counted if "error" in name] == []
        await fail.submit()
        with statements(monkeypatch) as counted:
            await scheduler.run_until_idle()
        assert counted["note_errors"] == 1


async def test_a_page_of_records_costs_one_statement_with_errors_and_without(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    domain = Domain("d", retry=Retry.constant(1, 0))

    @domain.task
    async def either(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    async with Scheduler(path, domains=[domain]) as scheduler:
        for fails in (False, True):
            await scheduler.submit_many([either.prepare(fails) for _ in range(30)])
            await scheduler.run_until_idle()
            with statements(monkeypatch) as counted:
                found = await scheduler.history(limit=30)
            # Other statements may be the last ones of the dispatcher that has just stopped.
            of_records = [text for text in counted.elements() if "taskmill_history" in text or "error" in text]
            assert len(of_records) == 1
            assert {len(record.errors) for record in found} == {2 * fails}


@pytest.mark.parametrize(
    ("column", "value"), [("error", b"\xff\xfe"), ("traceback", b"\xff\xfe"), ("at", 2**62), ("duration_ms", 2**62)]
)
async def test_a_damaged_error_is_reported_with_its_task_and_others_are_read(
    path: Path, column: str, value: object
) -> None:
    async with Scheduler(path, domains=[work]) as scheduler:
        healthy, damaged = [await failing.give_up.submit() for _ in range(2)]
        await scheduler.run_until_idle()
        kind = "TEXT" if isinstance(value, bytes) else "BIGINT"
        with raw(path) as rows:
            changed = rows.execute(
                f"UPDATE taskmill_error SET {column} = CAST(? AS {kind}) WHERE task_id = ?", (value, damaged.id)
            )
            assert changed.rowcount == 1
        for read in (lambda: scheduler.get(damaged.id), scheduler.history):
            with pytest.raises(StoreCorrupt, match=rf"\b{damaged.id}\b.*column errors"):
                await read()
        assert len((await healthy.record()).errors) == 1
        await failing.give_up.submit()
        await scheduler.run_until_idle()
        assert await scheduler.count(status="failed") == 3


async def test_a_running_task_shows_the_errors_of_its_earlier_attempts(path: Path) -> None:
    domain = Domain("d", retry=Retry.constant(1, 0))
    seen: list[Any] = []

    @domain.task
    async def second_time(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("not yet")
        seen.extend([await scheduler.get(ctx.task.id), *await scheduler.tasks()])
        # As for a prefetched task: the store does not know yet that it has begun.
        assert scheduler._loop is not None
        task = scheduler._loop.attempts.open[ctx.task.id].task
        before, task.prefetched = task.prefetched, 1
        seen.append(await scheduler.get(ctx.task.id))
        task.prefetched = before

    async with Scheduler(path, domains=[domain]) as scheduler:
        await second_time.submit()
        await scheduler.run_until_idle()
    assert [record.state for record in seen] == ["running"] * 3
    assert [[each.error for each in record.errors] for record in seen] == [["ValueError: not yet"]] * 3
