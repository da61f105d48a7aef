"""Lists are read page by page, in both directions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from taskmill import ConfigError, Domain, Scheduler
from taskmill.testing import ManualClock


async def test_active_tasks_page_forward_and_back(manual_clock: ManualClock) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None: ...

    async with Scheduler(domains=[domain], clock=manual_clock) as scheduler:
        ids = [(await work.options(group="even" if n % 2 else "odd").submit(n)).id for n in range(10)]

        async def page(**filters: object) -> list[int]:
            return [ids.index(record.id) for record in await scheduler.tasks(**filters)]  # type: ignore[arg-type]

        assert await page(limit=3) == [0, 1, 2]
        assert await page(limit=3, after=ids[2]) == [3, 4, 5]
        assert await page(limit=3, before=ids[6]) == [3, 4, 5], "the previous page, oldest first"
        assert await page(limit=3, before=ids[2]) == [0, 1]
        assert await page(limit=3, after=ids[8]) == [9]
        assert await page(before=ids[3]) == [0, 1, 2]
        assert await page(after=ids[7]) == [8, 9]
        assert await page(after=ids[2], before=ids[6]) == [3, 4, 5]
        assert await page(after=ids[2], before=ids[6], limit=2) == [3, 4]
        assert await page(limit=2, before=ids[9], group="odd") == [6, 8]
        assert await page(limit=2, before=ids[9], status="pending") == [7, 8]
        assert await scheduler.count(after=ids[6]) == 3
        await scheduler.cancel(ids[4])
        assert await page(limit=2, after=ids[3]) == [5, 6]
        assert await page(limit=2, before=ids[4]) == [2, 3], "the task itself may be gone"
        for bad in (-1, 1.5, "x", True):
            with pytest.raises(ConfigError, match="after"):
                await scheduler.tasks(after=bad)  # type: ignore[arg-type]


async def test_history_pages_towards_the_past_and_back(manual_clock: ManualClock) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None: ...

    async with Scheduler(domains=[domain], clock=manual_clock) as scheduler:
        ids: list[int] = []
        for n in range(8):
            ids.append((await work.submit(n)).id)
            await scheduler.run_until_idle()
            await manual_clock.advance(1)

        async def page(**filters: object) -> list[int]:
            return [ids.index(record.id) for record in await scheduler.history(**filters)]  # type: ignore[arg-type]

        assert await page(limit=3) == [7, 6, 5]
        assert await page(limit=3, before=ids[5]) == [4, 3, 2]
        assert await page(limit=3, after=ids[1]) == [4, 3, 2], "the previous page, newest first"
        assert await page(limit=3, after=ids[1], type="d::work", status="completed") == [4, 3, 2]
        assert await page(after=ids[5]) == [7, 6]
        assert await page(limit=1, after=ids[2], before=ids[6]) == [5]


async def test_since_and_until_count_from_submission_while_active_and_from_the_end_afterwards(
    manual_clock: ManualClock,
) -> None:
    domain = Domain("d")

    @domain.task
    async def work(n: int) -> None: ...

    async with Scheduler(domains=[domain], clock=manual_clock) as scheduler:
        instants, ids = list[datetime](), list[int]()
        for n in range(3):
            instants.append(manual_clock.now())
            ids.append((await work.submit(n)).id)
            await manual_clock.advance(60)
        first, second, third = instants

        async def active(**filters: Any) -> list[int]:
            found = [record.id for record in await scheduler.tasks(**filters)]
            assert await scheduler.count(**filters) == len(found)
            return found

        assert await active(since=second) == ids[1:]
        assert await active(until=second) == ids[:1], "the instant itself is excluded"
        assert await active(since=second, until=third) == ids[1:2]
        assert await active(since=first, status="pending", limit=2) == ids[:2]
        await scheduler.run_until_idle()
        ended = manual_clock.now()
        assert await scheduler.history(until=ended) == []
        assert len(await scheduler.history(since=ended)) == 3
        assert len(await scheduler.history(since=ended, limit=2)) == 2
        assert await scheduler.count(status="completed", since=ended) == 3
        assert await scheduler.count(status="completed", until=ended) == 0
        for bad in (3, "2h", datetime(2030, 1, 1)):
            with pytest.raises(ConfigError, match="until"):
                await scheduler.history(until=bad)  # type: ignore[arg-type]
