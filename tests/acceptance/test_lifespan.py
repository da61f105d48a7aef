"""The lifespan of an ASGI application: which process dispatches, and the order of the shutdown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from taskmill import AlreadyRunning, Domain, Scheduler
from taskmill.asgi import lifespan
from taskmill.events import TaskDispatched

APPLICATION = object()


@pytest.mark.one_engine("a file has one dispatcher, a database has many")
async def test_without_standby_a_second_application_on_one_file_does_not_start(tmp_path: Path) -> None:
    first, second = (Scheduler(tmp_path / "tasks.db") for _ in range(2))
    async with lifespan(first, standby=False)(APPLICATION):
        assert first.is_dispatching
        with pytest.raises(AlreadyRunning, match="standby"):
            async with lifespan(second, standby=False)(APPLICATION):
                raise AssertionError("two applications dispatch")
        async with lifespan(second)(APPLICATION):
            assert not second.is_dispatching


async def test_a_shutdown_ends_event_streams_first_and_then_lets_running_tasks_finish(tmp_path: Path) -> None:
    domain = Domain("work")
    streams_ended = asyncio.Event()

    @domain.task
    async def until_streams_have_ended() -> str:
        await streams_ended.wait()
        return "finished"

    scheduler = Scheduler(tmp_path / "tasks.db", domains=[domain], shutdown_grace="1min")
    async with lifespan(scheduler)(APPLICATION):
        events = scheduler.events(TaskDispatched)
        handle = await until_streams_have_ended.submit()
        await anext(events)

        async def follow() -> None:
            async for _ in events:
                pass
            streams_ended.set()

        following = asyncio.get_running_loop().create_task(follow())
    await following
    async with scheduler:
        # It kept running in the grace period, in its first attempt. Drained first, it would have waited for streams.
        record = await scheduler.get(handle.id)
        assert (record.state, record.attempt) == ("completed", 1)
