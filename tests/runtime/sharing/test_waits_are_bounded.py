"""A busy day's backlog is run to its end: no task waits longer than the urgent level and the slots allow."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from datetime import timedelta
from typing import NamedTuple

from taskmill import Aging, Context, Domain, Group, Priority
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory

SLOTS = 3
BACKLOG = 2_800
"""So many tasks that most of them become urgent before they start."""
SECOND = 1000


class Wait(NamedTuple):
    """When a task was queued, when it became urgent or would have, and when it started; in milliseconds."""

    queued_at: int
    id: int
    urgent_at: int
    started_at: int

    @property
    def is_late(self) -> bool:
        return self.started_at > self.urgent_at


def overdue(waits: list[Wait]) -> list[Wait]:
    """Return the tasks that waited, once urgent, longer than it took until a slot was free for them.

    Tasks take one second each, so all slots become free within a second; and before an urgent task only tasks start
    that were queued before it.
    """
    found: list[Wait] = []
    starts: list[int] = []
    for wait in sorted(waits):
        ahead = len(starts) - bisect_left(starts, wait.urgent_at)
        if wait.started_at > wait.urgent_at + (ahead // SLOTS + 1) * SECOND:
            found.append(wait)
        insort(starts, wait.started_at)
    return found


def queue_jumpers(waits: list[Wait]) -> list[Wait]:
    """Return the tasks that started before they were urgent while urgent ones waited."""
    passed = sorted(wait.urgent_at for wait in waits if wait.is_late)
    relieved = sorted(wait.started_at for wait in waits if wait.is_late)
    return [
        wait
        for wait in waits
        if wait.started_at < wait.urgent_at
        and bisect_left(passed, wait.started_at) > bisect_right(relieved, wait.started_at)
    ]


async def test_every_task_of_a_huge_backlog_starts_by_max_wait_and_the_next_slot_that_is_free_for_it(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("sync")
    waits: list[Wait] = []

    @domain.task
    async def transfer(ctx: Context) -> None:
        task = ctx.task
        queued_at = round(task.created_at.timestamp() * SECOND)
        urgent_at = queued_at + lines[task.priority]
        waits.append(Wait(queued_at, task.id, urgent_at, manual_clock.now_ms()))
        await manual_clock.sleep(1)

    scheduler = await taskmill_scheduler(
        domains=[domain],
        max_concurrency=SLOTS,
        groups={"s3://prod": Group(weight=3), "s3://b2-backup": Group(weight=1, min_slots=1)},
        aging=Aging(grace=90, interval=20, step=16, ceiling=32, urgent=32),
        durability="process",
    )
    lines = {int(priority): _ms(scheduler.max_wait(priority)) for priority in (Priority.HIGH, Priority.LOW)}
    submitted = 0

    async def submit(group: str, count: int, priority: int) -> None:
        nonlocal submitted
        task = transfer.options(group=group, priority=priority)
        await scheduler.submit_many([task.prepare() for _ in range(count)])
        submitted += count

    await submit("s3://prod", BACKLOG, Priority.LOW)
    for place in range(5):
        await submit(f"maintenance {place}", 1, Priority.LOW)
    async with scheduler.running():
        for second in itertools.count(step=20):
            # The user keeps synchronizing, and the other profile keeps finding changes.
            if second <= 400:
                await submit("s3://prod", 10, Priority.HIGH)
            if second % 140 == 0 and second <= 700:
                await submit("s3://b2-backup", 38, Priority.LOW)
            await manual_clock.advance(20)
            if len(waits) == submitted:
                break
    assert lines == {Priority.HIGH: 130 * SECOND, Priority.LOW: 290 * SECOND}
    assert sum(wait.is_late for wait in waits) > BACKLOG // 2, "most tasks became urgent"
    assert overdue(waits) == []
    assert queue_jumpers(waits) == []


def _ms(wait: timedelta | None) -> int:
    assert wait is not None
    return wait // timedelta(milliseconds=1)
