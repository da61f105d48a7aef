"""Snapshots show which schedulers dispatch and what each of them runs, on every store."""

from __future__ import annotations

import asyncio
import os
import socket
from datetime import UTC, datetime, timedelta

from taskmill import Domain, Scheduler, Snapshot

LONG = 20

domain = Domain("d")


@domain.task
async def work() -> None:
    """Run until stopped."""
    await asyncio.Event().wait()


async def _when_running(scheduler: Scheduler, count: int) -> Snapshot:
    async with asyncio.timeout(LONG):
        while len((picture := await scheduler.snapshot()).running) < count:
            await asyncio.sleep(0.02)
        return picture


async def test_a_store_that_is_only_open_has_no_dispatcher(any_store: str) -> None:
    async with Scheduler(any_store, domains=[domain]) as scheduler:
        await work.submit()
        assert (await scheduler.snapshot()).nodes == []


async def test_a_scheduler_that_dispatches_is_a_node_with_its_tasks(any_store: str) -> None:
    began = datetime.now(UTC)
    async with Scheduler(any_store, domains=[domain], max_concurrency=3, shutdown_grace=0) as scheduler:
        ids = [(await work.submit()).id for _ in range(4)]
        async with scheduler.running():
            picture = await _when_running(scheduler, 3)
    (node,) = picture.nodes
    assert (node.is_here, node.is_alive) == (True, True)
    assert node.name == f"{socket.gethostname()}:{os.getpid()}"
    assert list(node.running) == ids[:3] == [task.id for task in picture.running]
    assert node.slots == 3
    assert began - timedelta(seconds=1) <= node.since <= node.seen_at + timedelta(seconds=1)
    assert node.seen_at <= datetime.now(UTC) + timedelta(seconds=1)


async def test_a_scheduler_that_has_stopped_is_no_node(any_store: str) -> None:
    async with Scheduler(any_store, domains=[domain], shutdown_grace=0) as scheduler:
        async with scheduler.running():
            assert len((await scheduler.snapshot()).nodes) == 1
        async with asyncio.timeout(LONG):
            while (await scheduler.snapshot()).nodes:
                await asyncio.sleep(0.02)


async def test_a_reader_sees_the_node_that_is_elsewhere(any_store: str) -> None:
    if any_store == ":memory:":
        return
    async with (
        Scheduler(any_store, domains=[domain], max_concurrency=2, shutdown_grace=0) as scheduler,
        Scheduler(any_store) as looking,
        scheduler.running(),
    ):
        handle = await scheduler.submit(work.prepare())
        picture = await _when_running(looking, 1)
    (node,) = picture.nodes
    assert (node.is_here, node.is_alive, node.slots) == (False, True, 2)
    assert list(node.running) == [handle.id]
    assert abs(node.since - datetime.now(UTC)) < timedelta(seconds=LONG)
