"""A scheduler belongs to the event loop on which it was opened; a coroutine on another loop would never be woken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from taskmill import Domain, InvalidState, Scheduler, blocking

domain = Domain("d")


@domain.task
async def double(number: int) -> int:
    return 2 * number


USES: dict[str, Callable[[Scheduler], Awaitable[object]]] = {
    "submit": lambda _: double.submit(1),
    "submit_many": lambda scheduler: scheduler.submit_many([double.prepare(1)]),
    "result": lambda _: double.handle(1).result(),
    "get": lambda scheduler: scheduler.get(1),
    "count": lambda scheduler: scheduler.count(),
    "pause": lambda scheduler: scheduler.pause(),
    "group": lambda scheduler: scheduler.group("g").pause(),
    "run": lambda scheduler: scheduler.run(),
    "events": lambda scheduler: anext(scheduler.events()),
}


@pytest.mark.parametrize("use", USES)
async def test_another_loop_is_refused_and_nothing_is_stored(tmp_path: Path, use: str) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:

        async def elsewhere() -> None:
            await USES[use](scheduler)

        with pytest.raises(InvalidState, match=r"another event loop.*submit_sync"):
            await asyncio.to_thread(asyncio.run, elsewhere())
        assert await scheduler.count() == 0


async def test_a_blocking_submission_is_accepted_from_a_thread_with_another_loop(tmp_path: Path) -> None:
    async def elsewhere() -> int:
        return double.submit_sync(2).result(timeout=20)

    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler, scheduler.running():
        assert await asyncio.to_thread(asyncio.run, elsewhere()) == 4


async def test_a_blocking_scheduler_refuses_coroutines_of_another_loop(tmp_path: Path) -> None:
    with blocking.Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:
        with pytest.raises(InvalidState, match="another event loop"):
            await double.submit(1)
        assert scheduler.count() == 0
        assert double.submit_sync(1).kind == "inserted"
