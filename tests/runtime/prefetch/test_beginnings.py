"""A prefetched task is known to have begun before its code runs, so that a crash in it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmill import Context, Domain, Scheduler
from taskmill.store.sqlite.dispatch_lock import FileLock, beginnings_in

MANY = 200
pytestmark = pytest.mark.one_engine("only the dispatcher of a file writes beginnings outside of the database")


def begun(file: Path) -> set[int]:
    return {id for id, _, _ in beginnings_in(Path(f"{file}-dispatch").read_bytes())}


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_beginning_of_a_prefetched_task_is_written_before_its_code_runs(tmp_path: Path, kind: str) -> None:
    domain, file, unknown = Domain("d"), tmp_path / "tasks.db", []

    def run(ctx: Context, n: int) -> None:
        link = ctx._link  # The record of a task does not say whether it was prefetched.
        if link.task.prefetched and ctx.task.id not in begun(file):  # type: ignore[attr-defined]
            unknown.append(n)

    async def run_on_loop(ctx: Context, n: int) -> None:
        run(ctx, n)

    task = domain.task(name="step")(run if kind == "thread" else run_on_loop)
    async with Scheduler(file, domains=[domain]) as scheduler:
        await scheduler.submit_many([task.prepare(n) for n in range(MANY)])
        await scheduler.run_until_idle()
        assert begun(file), "some tasks were prefetched"
    assert unknown == []


async def test_one_write_serves_the_tasks_that_begin_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain, sizes = Domain("d"), []
    note = FileLock.note_beginnings

    def counted(lock: FileLock, beginnings: list[tuple[int, int, int]]) -> None:
        sizes.append(len(beginnings))
        note(lock, beginnings)

    monkeypatch.setattr(FileLock, "note_beginnings", counted)

    @domain.task
    async def step(n: int) -> None:
        """Do nothing."""

    async with Scheduler(tmp_path / "tasks.db", domains=[domain], max_concurrency=8) as scheduler:
        await scheduler.submit_many([step.prepare(n) for n in range(MANY)])
        await scheduler.run_until_idle()
    assert max(sizes) > 1
    assert max(sizes) <= 8, "no more tasks begin at once than there are slots"
