"""The retry delay of a cron task counts from the failure, even if the store learns of it later."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskmill import Scheduler
from taskmill.cron import Cron
from taskmill.events import TaskFailed
from tests.raw_rows import refusing
from tests.runtime.cron.bench import Bench


@pytest.mark.parametrize(
    ("retry_delay", "outage", "retried"),
    [
        pytest.param(40, 30, "10:00:45", id="the store is back before the retry is due"),
        pytest.param(40, 60, "10:01:06", id="the store is back later, and asked again within a second"),
        pytest.param(0, 0.5, "10:00:06", id="never before a second has passed"),
    ],
)
async def test_an_outage_of_the_store_does_not_lengthen_the_delay_of_a_cron_retry(
    tmp_path: Path, retry_delay: int, outage: float, retried: str
) -> None:
    bench = Bench()
    runs = 0

    async def handle() -> None:
        nonlocal runs
        runs += 1
        bench.starts.append(bench.time)
        if runs == 1:
            await bench.clock.sleep(5)
            raise ValueError("no")

    path = tmp_path / "tasks.db"
    cron = [Cron("report", "0 * * * *", handle, retry_delay)]
    async with Scheduler(path, cron=cron, clock=bench.clock) as scheduler, scheduler.running():
        failures = scheduler.events(TaskFailed)
        await bench.clock.advance(4)
        assert bench.starts == ["10:00:00"]
        with refusing(path, "UPDATE", "taskmill_cron"):
            await bench.clock.advance(1 + outage)
        await bench.clock.advance(120)
        failure = await anext(failures)
        assert isinstance(failure, TaskFailed)
        assert failure.will_retry
        assert failure.retry_after is not None
        assert failure.retry_after.total_seconds() >= 0
    assert bench.starts == ["10:00:00", retried]
