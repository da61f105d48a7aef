"""Small tasks that wait for each other, and their states."""

from __future__ import annotations

from typing import Any

from taskmill import (
    Domain,
    GiveUp,
    Retry,
    Scheduler,
)
from taskmill.model.records import HistoryRecord
from tests.runtime.records import active


class Works:
    """A domain of small tasks that record their names."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.domain = Domain("d", retry=Retry.none())

        @self.domain.task
        async def note(name: str) -> None:
            self.ran.append(name)
            if name.startswith("bad"):
                raise GiveUp(name)

        @self.domain.task(key=lambda name, version: name, on_duplicate="supersede")
        async def keyed(name: str, version: int) -> None:
            self.ran.append(f"{name}{version}")

        self.note = note
        self.keyed = keyed


async def state(scheduler: Scheduler, id: int) -> str:
    record = await scheduler.get(id)
    return str(record.ending if isinstance(record, HistoryRecord) else record.status)


async def states(scheduler: Scheduler, *handles: Any) -> list[str]:
    return [await state(scheduler, handle.id) for handle in handles]


async def urgency(scheduler: Scheduler, handle: Any) -> int:
    return (await active(scheduler, handle.id)).effective_priority
