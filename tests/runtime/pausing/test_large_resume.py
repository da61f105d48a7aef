"""The resume of a large group does not delay other groups: its paused time is given back while they continue."""

from __future__ import annotations

import asyncio
import itertools
import time
from datetime import timedelta
from pathlib import Path

from taskmill import Domain, Group, Scheduler
from tests.both_engines import Engine
from tests.raw_rows import raw

TTL = 3600
LONGEST_GAP = 0.1


async def test_other_groups_start_tasks_all_the_time_while_a_large_group_is_resumed(
    tmp_path: Path, engine: Engine
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task(group="large", ttl=TTL)
    async def wait(n: int) -> None:
        """Do nothing."""

    @domain.task(group="other")
    async def work(n: int) -> None:
        starts.append(time.perf_counter())
        await asyncio.sleep(0.005)

    file = tmp_path / "tasks.db"
    many = engine.fewer(50_000)
    groups = {"large": Group(cap=1), "other": Group(cap=4)}

    def longest_gap(since: float) -> float:
        seen = [since, *(at for at in starts if at >= since), time.perf_counter()]
        return max(later - earlier for earlier, later in itertools.pairwise(seen))

    async def second_of_starts() -> float:
        """Wait for the next start and one more second; return the time of that start."""
        before = len(starts)
        while len(starts) == before:
            await asyncio.sleep(0.01)
        began = starts[before]
        await asyncio.sleep(began + 1 - time.perf_counter())
        return began

    async with Scheduler(file, domains=[domain], groups=groups, durability="process", retention=None) as scheduler:
        await scheduler.group("large").pause()
        for start in range(0, many, 5_000):
            await scheduler.submit_many([wait.prepare(n) for n in range(start, start + 5_000)])
        await scheduler.submit_many([work.prepare(n) for n in range(20_000)])
        extra: list[float] = []
        async with scheduler.running():
            # A busy machine stalls everything now and then, with or without a resume, but not five times in a row.
            while len(extra) < 5 and min(extra, default=1.0) > LONGEST_GAP:
                await scheduler.group("large").pause()
                calm = longest_gap(await second_of_starts())
                began = time.perf_counter()
                await scheduler.group("large").resume()
                while await asyncio.to_thread(is_owed, file) and time.perf_counter() < began + 2:
                    await asyncio.sleep(0.1)
                extra.append(longest_gap(began) - calm)
        records = [await scheduler.get(id) for id in (1, many // 2, many)]
    assert min(extra) <= LONGEST_GAP
    for record in records:
        assert record.expires_at is not None
        assert record.expires_at >= record.created_at + timedelta(seconds=TTL + 1), "paused time is given back"


def is_owed(file: Path) -> bool:
    with raw(file) as connection:
        return bool(connection.execute("SELECT count(*) FROM taskmill_ended_pause").fetchall()[0][0])
