"""``prune`` deletes from history at once, by a ``Retention``, by its fields, or by the scheduler's own."""

from __future__ import annotations

from typing import Any

import pytest

from taskmill import ConfigError, Domain, Retention, Scheduler, blocking
from taskmill.testing import ManualClock

domain = Domain("pruned")


@domain.task
async def work() -> None: ...


async def _ended(scheduler: Scheduler, clock: ManualClock) -> None:
    """Let six tasks end, an hour apart."""
    for _ in range(6):
        await work.submit()
        await scheduler.run_until_idle()
        await clock.advance("1h")


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({}, 6),
        ({"retention": Retention(max_count=4)}, 4),
        ({"max_count": 3}, 3),
        ({"max_age": "2h30m"}, 2),
        ({"max_age": "2h30m", "max_count": 1}, 1),
        ({"per_status": {"completed": 0}}, 0),
        ({"per_status": {"failed": 0}}, 6),
    ],
)
async def test_pruning_takes_a_retention_or_its_fields(limits: dict[str, Any], left: int) -> None:
    clock = ManualClock()
    async with Scheduler(domains=[domain], clock=clock, retention=Retention(max_count=None)) as scheduler:
        await _ended(scheduler, clock)
        assert await scheduler.prune(**limits) == 6 - left
        assert await scheduler.count(status="completed") == left


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("retention", {"retention": 5}),
        ("retention", {"retention": "30d"}),
        ("retention", {"retention": Retention(max_count=1), "max_count": 1}),
        ("max_age", {"max_age": -1}),
        ("max_count", {"max_count": "all"}),
        ("colour", {"colour": "red"}),
    ],
)
async def test_a_wrong_limit_is_refused_by_name_and_nothing_is_pruned(name: str, wrong: dict[str, Any]) -> None:
    clock = ManualClock()
    async with Scheduler(domains=[domain], clock=clock) as scheduler:
        await _ended(scheduler, clock)
        with pytest.raises(ConfigError, match=rf"\b{name}\b"):
            await scheduler.prune(**wrong)
        assert await scheduler.count(status="completed") == 6


def test_a_blocking_scheduler_prunes_by_fields_too() -> None:
    with blocking.Scheduler(domains=[domain]) as scheduler:
        for _ in range(3):
            scheduler.submit(work.prepare())
        scheduler.run_until_idle()
        assert scheduler.prune(max_count=1) == 2
        assert scheduler.count(status="completed") == 1
