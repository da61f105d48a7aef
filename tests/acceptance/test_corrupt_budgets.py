"""A budget that cannot be read holds no other task back, and unreadable learned capacities are learned again."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmill import Context, Domain, IoBudget, Reading, Resources, Retry, Scheduler, StoreCorrupt, Submission
from taskmill.model.machine import UNSEEN
from tests.acceptance.box import box, put
from tests.raw_rows import raw

DAMAGE: list[object] = ["not JSON", "", "[]", "5", '{"disk_write":-1}', '{"disk_write":"much"}', b"\xff\xfe", 7, 1.5]
MB = 1_000_000
CAPACITY = IoBudget(disk_write=100 * MB)


class Idle:
    def sample(self) -> Reading:
        return Reading()


def execute(path: Path, statement: str, *values: object) -> None:
    with raw(path) as connection:
        assert connection.execute(statement, values).rowcount == 1


def damage(path: Path, table: str, column: str, value: object, where: str, key: object) -> None:
    cast = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
    execute(path, f"UPDATE {table} SET {column} = {cast} WHERE {where} = ?", value, key)


def _domain(ran: list[int]) -> Domain:
    domain = Domain("work")

    @domain.task(retry=Retry.none(), io=IoBudget(disk_write=10 * MB))
    async def write(ctx: Context, i: int) -> None:
        assert ctx.task.io is None or ctx.task.io == IoBudget(disk_write=10 * MB)
        ctx.record_io(disk_write=5 * MB)
        ran.append(i)

    @domain.task(retry=Retry.none(), io="learn")
    async def blind(i: int) -> None:
        ran.append(i)

    return domain


@pytest.mark.parametrize("watched", [False, True], ids=["unwatched", "watched"])
@pytest.mark.parametrize("name", ["work::write", "work::blind"])
@pytest.mark.parametrize("value", DAMAGE)
async def test_a_budget_that_cannot_be_read_stops_no_other_task(
    path: Path, value: object, name: str, watched: bool
) -> None:
    ran: list[int] = []
    resources = Resources(Idle(), capacity=CAPACITY) if watched else None
    domain = _domain(ran)
    async with Scheduler(path, domains=[domain], resources=resources, shutdown_grace=0) as scheduler:
        handles = [await scheduler.submit(Submission(name, {"i": i})) for i in range(3)]
        damage(path, "taskmill_task", "io", value, "id", handles[1].id)
        await scheduler.run_until_idle(timeout=20)
        endings = _endings(path)
    assert {0, 2} <= set(ran)
    assert len(endings) == 3, "every task has ended, including the one that cannot be read"
    assert endings[0] == endings[2] == "completed"


def _endings(path: Path) -> list[str]:
    with raw(path) as connection:
        return [row[0] for row in connection.execute("SELECT ending FROM taskmill_history ORDER BY id").fetchall()]


@pytest.mark.parametrize("column", ["io", "actual_io"])
@pytest.mark.parametrize("value", ["not JSON", "[]", '{"disk_write":-1}', b"\xff\xfe"])
async def test_reading_a_budget_that_cannot_be_read_says_which_task_it_is(
    path: Path, column: str, value: object
) -> None:
    async with Scheduler(path, domains=[box], durability="process") as scheduler:
        healthy, damaged = await put.submit("a"), await put.submit("b")
        await scheduler.run_until_idle()
        damage(path, "taskmill_history", column, value, "id", damaged.id)
        for read in (lambda: scheduler.get(damaged.id), scheduler.history):
            with pytest.raises(StoreCorrupt, match=rf"\b{damaged.id}\b"):
                await read()
        assert (await scheduler.get(healthy.id)).io is None


@pytest.mark.parametrize("value", DAMAGE)
async def test_an_unreadable_reading_of_the_machine_is_measured_again(path: Path, value: object) -> None:
    ran: list[int] = []
    domain = _domain(ran)
    for _ in range(2):
        async with Scheduler(path, domains=[domain], resources=Resources(Idle(), capacity=CAPACITY)) as scheduler:
            handle = await scheduler.submit(Submission("work::write", {"i": 1}))
            explained = await scheduler.explain(handle.id)
            await scheduler.run_until_idle(timeout=20)
            noted = await scheduler._store.machine()
            name = scheduler._store.machine_name  # type: ignore[attr-defined]
        damage(path, "taskmill_setting", "value", value, "name", name)
    assert ran == [1, 1]
    assert explained.status == "pending"
    assert noted is not None
    assert noted != UNSEEN


@pytest.mark.parametrize("column", ["runs", "disk_write"])
@pytest.mark.parametrize("value", [-3, 0, 2**62, 2**63 - 1, -(2**63)])
async def test_unreadable_io_of_tasks_stops_nothing(path: Path, column: str, value: object) -> None:
    ran: list[int] = []
    domain = _domain(ran)
    resources = Resources(Idle(), capacity=CAPACITY)
    async with Scheduler(path, domains=[domain], resources=resources) as scheduler:
        await scheduler.submit(Submission("work::write", {"i": 1}))
        await scheduler.run_until_idle(timeout=20)
        damage(path, "taskmill_io", column, value, "type", "work::write")
        for i in (2, 3):
            await scheduler.submit(Submission("work::write", {"i": i}))
            await scheduler.run_until_idle(timeout=20)
        waiting = await scheduler.submit(Submission("work::write", {"i": 4}))
        explained = await scheduler.explain(waiting.id)
        stats = await scheduler.stats("work::write")
    assert ran == [1, 2, 3]
    assert explained.status == "pending"
    assert stats.completed == 3
