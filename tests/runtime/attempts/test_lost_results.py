"""A result is the handler's value, or the task fails: JSON has neither NaN nor infinity and would store null."""

from __future__ import annotations

import math
from typing import Any

import pytest

from taskmill import Domain, Scheduler, Task, TaskFailed

numbers = Domain("numbers")


@numbers.task
async def on_the_loop(count: int) -> dict[str, list[float | None]]:
    return {"mean": [None, math.nan]} if not count else {"mean": [None, 1.5]}


@numbers.task
def in_a_thread(count: int) -> float:
    return math.inf if not count else 1.5


@numbers.task(run_in="process")
def in_a_process(count: int) -> float:
    return -math.inf if not count else 1.5


@pytest.mark.parametrize("task", [on_the_loop, in_a_thread, in_a_process], ids=lambda task: task.name)
async def test_a_result_with_nan_or_infinity_fails_and_is_not_replaced_by_none(task: Task[[int], Any]) -> None:
    async with Scheduler(domains=[numbers]) as scheduler:
        lost, kept = await task.submit(0), await task.submit(1)
        await scheduler.run_until_idle()
        with pytest.raises(TaskFailed, match="neither NaN nor infinity") as failure:
            await lost.result()
        assert failure.value.record is not None
        assert failure.value.record.ending == "failed"
        assert await kept.result() in ({"mean": [None, 1.5]}, 1.5)
