"""Controls set by one process apply exactly in another that dispatches, and a kill leaves them intact."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from taskmill import Scheduler
from tests.crash.children import LONGEST, Child, was_killed
from tests.crash.controlled import GROUPS, opened, work
from tests.crash.evidence import SEED, rounds_or
from tests.crash.journal import boot_time

PAUSES = max(6, rounds_or(0) // 10)
KILLS = max(6, rounds_or(0) // 5)
TTL = 3600


class Dispatcher(Child):
    program = "tests.crash.controlled"


@pytest.fixture
def stack() -> Any:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, role: str, file: Path, number: int = 0) -> Child:
    order = {"file": str(file), "journal": "", "seed": SEED + number}
    child = stack.enter_context(Dispatcher(who=f"{role}{number}", folder=file.parent, role=role, **order))
    assert child.hear("open"), child.complaint()
    return child


def stopped(child: Child) -> None:
    child.tell("stop")
    assert child.wait() == 0, child.complaint()


async def soon(is_true: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the condition is true: changes of another process can only be seen by polling."""
    until = boot_time() + LONGEST
    while not await is_true():
        assert boot_time() < until, "it did not happen"
        await asyncio.sleep(0.005)


async def ever_started(scheduler: Scheduler, group: str) -> set[int]:
    """Return the tasks of a group that are running or have ended."""
    running = {record.id for record in await scheduler.tasks(group=group, status="running")}
    again = {record.id for record in await scheduler.tasks(group=group) if record.attempt}
    return running | again | {record.id for record in await scheduler.history(group=group)}


async def test_nothing_of_a_group_starts_after_pause_has_returned(tmp_path: Path, stack: ExitStack) -> None:
    file = tmp_path / "tasks.db"
    chance = random.Random(SEED)
    async with opened(str(file)) as scheduler:
        child = started(stack, "dispatch", file)
        for _ in range(PAUSES):
            await scheduler.submit_many(
                [work.options(group=group, ttl=TTL).prepare() for group in GROUPS for _ in range(100)]
            )
            before = len(await ever_started(scheduler, "g"))
            wanted = before + chance.randrange(1, 40)

            async def g_is_at_work(wanted: int = wanted) -> bool:
                return len(await ever_started(scheduler, "g")) >= wanted

            await soon(g_is_at_work)
            await scheduler.group("g").pause()
            at_pause = await ever_started(scheduler, "g")
            of_h = await scheduler.count(group="h", status="completed")

            async def h_goes_on(of_h: int = of_h) -> bool:
                return await scheduler.count(group="h", status="completed") >= of_h + 20

            await scheduler.submit_many([work.options(group="h").prepare() for _ in range(40)])
            await soon(h_goes_on)
            assert await ever_started(scheduler, "g") == at_pause
            waiting = await scheduler.tasks(group="g", status="paused")
            assert len(waiting) > 0
            explained = await scheduler.explain(waiting[0].id)
            assert [hold.reason for hold in explained.holds] == ["group_paused"]
            snapshot = await scheduler.snapshot()
            assert (snapshot.paused_groups, snapshot.max_concurrency) == (["g"], 8)
            assert (snapshot.groups["g"].running, snapshot.groups["g"].slots) == (0, 0)
            assert (snapshot.groups["h"].weight, snapshot.groups["h"].cap) == (2, 6)
            await scheduler.group("g").resume()

        async def all_done() -> bool:
            return await scheduler.count() == 0

        await soon(all_done)
        stopped(child)
        counts = (await scheduler.snapshot()).counts
    assert counts["completed"] == PAUSES * 240


async def test_caps_and_rates_of_another_process_hold_from_when_they_were_set(tmp_path: Path, stack: ExitStack) -> None:
    file = tmp_path / "tasks.db"
    async with opened(str(file)) as scheduler:
        child = started(stack, "dispatch", file)
        for cap in (1, 3, 2):
            await scheduler.group("g").set(cap=cap)
            handles = await scheduler.submit_many([work.options(group="g").prepare(0.05) for _ in range(12)])

            async def some_run(ids: frozenset[int] = frozenset(handle.id for handle in handles)) -> bool:
                return any(record.id in ids for record in await scheduler.tasks(group="g", status="running"))

            await soon(some_run)
            most = 0
            while await scheduler.count(group="g"):
                most = max(most, await scheduler.count(group="g", status="running"))
            assert most <= cap
        stopped(child)


# Most of its time goes to explanations: 2 to 9 s of CPU time, and many times that on a loaded machine.
@pytest.mark.timeout(300)
async def test_a_kill_amid_controls_leaves_them_intact(tmp_path: Path, stack: ExitStack) -> None:
    file = tmp_path / "tasks.db"
    chance = random.Random(SEED)
    async with opened(str(file)) as scheduler:
        await scheduler.submit_many(
            [work.options(group=group, ttl=TTL).prepare() for group in GROUPS for _ in range(200)]
        )
        child = started(stack, "dispatch", file)
        for number in range(KILLS):
            meddler = started(stack, "meddle", file, number)
            for _ in range(chance.randrange(4)):
                assert meddler.hear("more"), meddler.complaint()
            meddler.kill()
            assert was_killed(meddler.wait()), meddler.complaint()
            if number % 3 == 2:
                child.kill()
                assert was_killed(child.wait())
                child = started(stack, "dispatch", file, 100 + number)
            with closing(sqlite3.connect(file)) as looking:
                assert looking.execute("PRAGMA quick_check").fetchone() == ("ok",)
            snapshot = await scheduler.snapshot()
            pauses = {*snapshot.paused_groups, *snapshot.paused_domains, *(["all"] if snapshot.paused else [])}
            assert pauses <= {"g", "h", "controlled", "all"}
            for record in (await scheduler.tasks(limit=20))[:20]:
                left = record.expires_at
                assert left is not None
                assert 0 <= (left - record.created_at).total_seconds() - TTL <= 2 * LONGEST
                assert (await scheduler.explain(record.id)).summary
        await scheduler.resume()
        await scheduler.domain("controlled").resume()
        await scheduler.set_rate_limit("controlled::work", None)
        for group in GROUPS:
            await scheduler.group(group).resume()
            await scheduler.group(group).set(rate=None)

        async def all_done() -> bool:
            return await scheduler.count() == 0

        await soon(all_done)
        stopped(child)
        counts = (await scheduler.snapshot()).counts
    assert counts["completed"] == 400
