"""Bounded reads: pages that continue, suggestions, activity, previews; the same without an event loop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taskmill import Aging, ConfigError, Domain, Group, Scheduler, TaskNotFound, blocking
from taskmill.model import browsing
from taskmill.testing import ManualClock


def _domain() -> tuple[Domain, Any]:
    work = Domain("work")

    @work.task(tags={"kind": "plain"})
    async def do(n: int) -> int:
        return n

    return work, do


async def test_a_search_stops_early_and_continues_where_it_stopped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskmill.model.browsing.MOST_SEARCHED", 20)
    work, do = _domain()
    async with Scheduler(path, domains=[work], durability="process") as scheduler:
        handles = await scheduler.submit_many(
            [do.options(group="rare" if n in (3, 77) else "many", run_after=60).prepare(n) for n in range(100)]
        )
        rare = [handles[77].id, handles[3].id]
        found: list[int] = []
        searches = 0
        page = await scheduler.page(group="rare", limit=5)
        while True:
            searches += 1
            found += [record.id for record in page.tasks]
            assert page.searched <= 20
            if page.next is None:
                break
            assert not page.is_complete
            page = await scheduler.page(group="rare", limit=5, before=page.next)
        assert found == rare
        assert searches >= 5
        oldest = await scheduler.page(group="rare", limit=5, sort="oldest")
        assert [record.id for record in oldest.tasks] == [handles[3].id]
        assert oldest.next is not None
        rest = await scheduler.page(group="rare", limit=5, sort="oldest", after=oldest.next)
        assert rest.tasks == []


async def test_expired_tasks_are_listed_as_ended_before_they_are_moved(path: Path) -> None:
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    work, do = _domain()
    async with Scheduler(path, domains=[work], clock=clock, durability="process") as scheduler:
        short = await do.options(ttl=10).submit(1)
        long = await do.options(ttl=1000).submit(2)
        await clock.advance(20)
        for state in ("ended", "expired"):
            assert [record.id for record in (await scheduler.page(state=state)).tasks] == [short.id]
        assert [record.id for record in (await scheduler.page(state="active")).tasks] == [long.id]
        everything = (await scheduler.page()).tasks
        assert [(record.id, record.state) for record in everything] == [(long.id, "pending"), (short.id, "expired")]


async def test_paused_tasks_are_listed_as_paused(path: Path) -> None:
    work, do = _domain()
    async with Scheduler(path, domains=[work], durability="process") as scheduler:
        held = await do.options(group="a").submit(1)
        free = await do.submit(2)
        await scheduler.group("a").pause()
        assert [record.id for record in (await scheduler.page(state="paused")).tasks] == [held.id]
        assert [record.id for record in (await scheduler.page(state="pending")).tasks] == [free.id]


async def test_activity_counts_by_step_and_knows_waits_and_runs(path: Path) -> None:
    clock = ManualClock(datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC))
    work, do = _domain()
    async with Scheduler(path, domains=[work], clock=clock, durability="process") as scheduler:
        await do.submit(1)
        await clock.advance(40)
        await scheduler.run_until_idle()
        hour = await scheduler.activity("1h", steps=60)
        assert hour.ended == {"completed": 1}
        assert [point.ended for point in hour.points if point.ended] == [{"completed": 1}]
        (point,) = [point for point in hour.points if point.ended]
        assert point.at == datetime(2030, 1, 1, 12, 1, tzinfo=UTC)
        assert hour.wait_p50 == point.wait_p95 == timedelta(seconds=40)
        await clock.advance(7200)
        assert (await scheduler.activity("1h")).ended == {}
        assert (await scheduler.activity("1d", steps=48)).ended == {"completed": 1}


async def test_details_show_how_the_priority_will_grow(path: Path) -> None:
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    work, do = _domain()
    aging = Aging(grace=100, interval=10, step=32, ceiling=64)
    async with Scheduler(path, domains=[work], clock=clock, aging=aging, durability="process") as scheduler:
        handle = await do.options(priority=128).submit(1)
        steps = (await scheduler.details(handle.id)).priorities
        start = datetime(2030, 1, 1, tzinfo=UTC)
        assert [((step.at - start).total_seconds(), step.priority) for step in steps] == [
            (0, 128),
            (110, 96),
            (120, 64),
        ]
        await clock.advance(115)
        assert (await scheduler.get(handle.id)).effective_priority == 96


async def test_a_preview_changes_nothing(path: Path) -> None:
    work, do = _domain()
    async with Scheduler(
        path, domains=[work], groups={"a": Group(weight=1), "b": Group(weight=1)}, durability="process"
    ) as scheduler:
        await scheduler.submit_many([do.options(group=name).prepare(n) for name in "ab" for n in range(20)])
        tried = await scheduler.preview({"a": {"weight": 3}, "b": Group(weight=1, cap=1)})
        assert (tried.groups["a"].slots, tried.groups["b"].slots) == (7, 1)
        now = (await scheduler.snapshot()).groups
        assert (now["a"].slots, now["b"].slots, now["b"].cap) == (4, 4, None)


async def test_wrong_arguments_are_refused_by_name(path: Path) -> None:
    async with Scheduler(path) as scheduler:
        for call, word in (
            (scheduler.page(state="done"), "state"),
            (scheduler.page(state="ended", status="failed"), "exclude"),
            (scheduler.page(sort="random"), "sort"),  # type: ignore[arg-type]
            (scheduler.page(limit=0), "limit"),
            (scheduler.page(limit=10_001), "limit"),
            (scheduler.page(limit=True), "limit"),
            (scheduler.page(color="red"), "color"),  # type: ignore[call-arg]
            (scheduler.suggest("color"), "field"),  # type: ignore[arg-type]
            (scheduler.suggest("key", limit=101), "limit"),
            (scheduler.activity("1h", steps=0), "steps"),
            (scheduler.activity("1ms", steps=60), "period"),
            (scheduler.activity("soon"), "period"),
            (scheduler.preview({"a": {"weight": -1}}), "weight"),
            (scheduler.preview({"a": {"color": 1}}), "color"),
            (scheduler.preview({"a": 3}), "groups"),  # type: ignore[dict-item]
        ):
            with pytest.raises(ConfigError, match=word):
                await call
        with pytest.raises(TaskNotFound):
            await scheduler.details(7)


def test_the_same_reads_work_without_an_event_loop(path: Path) -> None:
    work, do = _domain()
    with blocking.Scheduler(path, domains=[work], durability="process") as scheduler:
        handle = scheduler.submit(do.prepare(1))
        scheduler.run_until_idle()
        assert [record.id for record in scheduler.page(state="completed").tasks] == [handle.id]
        assert scheduler.suggest("tag", "kind=") == ["kind=plain"]
        assert scheduler.activity().ended == {"completed": 1}
        assert scheduler.details(handle.id).children == {}
        assert scheduler.preview({"a": {"weight": 2}}).is_shared
        assert scheduler.settings()["max_concurrency"] == 8
        assert scheduler.machines() == []
    assert browsing.MOST_SEARCHED == 10_000
