"""Helpers that read the records of tasks."""

from __future__ import annotations

import asyncio

from taskmill import Scheduler
from taskmill.model.records import HistoryRecord, TaskRecord


async def ended(scheduler: Scheduler, id: int) -> HistoryRecord:
    record = await scheduler.get(id)
    assert isinstance(record, HistoryRecord)
    return record


async def active(scheduler: Scheduler, id: int) -> TaskRecord:
    record = await scheduler.get(id)
    assert isinstance(record, TaskRecord)
    return record


async def only_active(scheduler: Scheduler) -> TaskRecord:
    """Return the only active task."""
    (record,) = await scheduler.tasks()
    return record


async def endings(scheduler: Scheduler) -> list[tuple[int, str]]:
    """Return the id and the ending of all ended tasks, by id."""
    return sorted((record.id, str(record.ending)) for record in await scheduler.history())


async def sees_a_dispatcher(scheduler: Scheduler) -> None:
    """Wait until this scheduler knows of a dispatcher: news of a node takes a moment."""
    while not (await scheduler.snapshot()).has_dispatcher:
        await asyncio.sleep(0.01)
