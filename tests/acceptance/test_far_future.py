"""Instants beyond the range of datetime are refused at the call, by the name of the argument."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from taskmill import Domain, Scheduler, SubmissionError, TtlFrom
from taskmill.testing import ManualClock

NEAR_THE_END = datetime(9999, 12, 30, tzinfo=UTC)
WEST, EAST = timezone(timedelta(hours=-12)), timezone(timedelta(hours=12))

far = Domain("far")


@far.task
async def work() -> None: ...


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"ttl": timedelta(days=3)}, "ttl"),
        ({"ttl": timedelta(days=3), "ttl_from": TtlFrom.FIRST_ATTEMPT}, "ttl"),
        ({"run_after": timedelta(days=3)}, "run_after"),
        ({"run_after": timedelta(days=1), "every": 60, "ttl": timedelta(days=1)}, "ttl"),
        ({"run_at": datetime(9999, 12, 31, 23, tzinfo=WEST)}, "run_at"),
        ({"run_at": datetime(1, 1, 1, tzinfo=EAST), "every": 60}, "run_at"),
    ],
)
async def test_a_duration_beyond_the_last_year_is_refused(options: dict[str, Any], name: str) -> None:
    async with Scheduler(domains=[far], clock=ManualClock(NEAR_THE_END)) as scheduler:
        with pytest.raises(SubmissionError, match=f"^{name} .*9999"):
            await work.options(**options).submit()
        assert await scheduler.count() == 0


async def test_the_last_moments_can_be_used() -> None:
    async with Scheduler(domains=[far], clock=ManualClock(NEAR_THE_END)) as scheduler:
        last = datetime.max.replace(tzinfo=UTC)
        handle = await work.options(run_at=last, ttl=timedelta(days=1)).submit()
        record = await handle.record()
        assert record.run_at == last.replace(microsecond=999000)
        assert record.expires_at == NEAR_THE_END + timedelta(days=1)
        assert [task.id for task in await scheduler.tasks()] == [handle.id]
