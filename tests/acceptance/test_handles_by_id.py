"""``task.handle(id)``: a typed handle of a task whose id is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taskmill import ConfigError, Domain, Scheduler, TaskFailed, TaskNotFound


@dataclass
class Point:
    x: int


domain = Domain("handles")


@domain.task
async def point(x: int) -> Point:
    return Point(x)


async def test_a_handle_by_id_returns_the_result_in_its_type(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:
        id = (await point.submit(5)).id
        await scheduler.run_until_idle(timeout=10)
    async with Scheduler(tmp_path / "tasks.db", domains=[domain]):
        handle = point.handle(id)
        assert (handle.id, handle.kind) == (id, "duplicate")
        assert await handle.result() == Point(5)


async def test_a_handle_by_id_can_do_what_any_handle_can() -> None:
    async with Scheduler(domains=[domain]):
        id = (await point.submit(5)).id
        handle = point.handle(id)
        assert (await handle.record()).state == "pending"
        assert (await handle.explain()).task_id == id
        assert await handle.cancel()
        with pytest.raises(TaskFailed, match="cancelled"):
            await handle.result()
        with pytest.raises(TaskNotFound):
            await point.handle(id + 1000).record()


@pytest.mark.parametrize("id", ["5", 5.0, None, True])
async def test_an_id_is_a_whole_number(id: Any) -> None:
    async with Scheduler(domains=[domain]):
        with pytest.raises(ConfigError, match="id must be an int"):
            point.handle(id)


@pytest.mark.one_engine("no store is opened")
def test_a_handle_needs_an_open_scheduler() -> None:
    with pytest.raises(ConfigError, match="no open scheduler"):
        point.handle(1)
