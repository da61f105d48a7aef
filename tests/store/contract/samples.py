"""Sample tasks and helpers for the store contract."""

from __future__ import annotations

from typing import Any

import msgspec

from taskmill.core.ports import Store
from taskmill.model.attempt import Verdict
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.status import OnDuplicate, Status
from taskmill.model.task import Claimed, NewTask
from taskmill.model.turn import Judged, Starts, Turn, TurnResult

TYPE = "d::t"
NOW = 1_900_000_000_000


def new_task(payload: str = "{}", **changes: Any) -> NewTask:
    task = NewTask(
        type=TYPE,
        key=None,
        label=None,
        group="",
        priority=128,
        status=Status.PENDING,
        payload=payload,
        tags=None,
        overrides=None,
        created_at=NOW,
        queued_at=NOW,
        due_at=None,
        due_is_relative=False,
        expires_at=None,
        ttl_ms=None,
        gate_id=None,
        stop=None,
        on_duplicate=OnDuplicate.SKIP,
    )
    return msgspec.structs.replace(task, **changes)


async def claim(store: Store, *ids: int, now: int = NOW) -> list[Claimed]:
    return (await store.turn(Turn(now=now, starts=Starts(claims=list(ids))))).claimed


async def commit(store: Store, task: Claimed, verdict: Verdict, *, stopped: bool = False) -> TurnResult:
    return await store.turn(Turn(now=NOW + 500, judged=[Judged(task, verdict, 500, stopped=stopped)]))


async def add(store: Store, *tasks: NewTask) -> list[int]:
    return [stored.id for stored in await store.add(tasks)]


async def active(store: Store, id: int) -> TaskRecord:
    record = await store.get(id)
    assert isinstance(record, TaskRecord)
    return record


async def ended(store: Store, id: int) -> HistoryRecord:
    record = await store.get(id)
    assert isinstance(record, HistoryRecord)
    return record
