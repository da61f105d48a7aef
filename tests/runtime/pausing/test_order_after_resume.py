"""Tasks start in the order of their urgency after groups are resumed one after the other."""

from __future__ import annotations

from taskmill import Domain, Priority
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def test_the_most_urgent_task_starts_first_though_its_claim_met_changed_controls(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    started: list[str] = []

    @domain.task
    async def note(name: str) -> None:
        started.append(name)

    scheduler = await taskmill_scheduler(domains=[domain], max_concurrency=1)
    for group in ("a", "b"):
        await scheduler.group(group).pause()
    await note.options(group="b").submit("normal")
    await note.options(group="a", priority=Priority.HIGH).submit("high")
    async with scheduler.running():
        await manual_clock.advance(1)
        # The turn that claims from "a" is planned before "b" is resumed, and refused because of that change.
        await scheduler.group("a").resume()
        await scheduler.group("b").resume()
        await manual_clock.advance(0)
    assert started == ["high", "normal"]
