"""A remedy that ``explain`` suggests starts the task, once it is applied."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from taskmill import Group, RateLimit, Scheduler
from taskmill.reading import Reader
from taskmill.testing import ManualClock
from tests.both_engines import Engine
from tests.repetition import often
from tests.runtime.ahead.test_same_starts import SETTINGS, Bench


async def with_remedy(bench: Bench, scheduler: Scheduler, chance: random.Random) -> tuple[int, Any] | None:
    """Return a waiting task with one of its remedies."""
    waiting = [record.id for record in await scheduler.tasks(status="pending")]
    waiting += [record.id for record in await scheduler.tasks(status="paused")]
    chance.shuffle(waiting)
    for id in waiting[:5]:
        if remedies := (await scheduler.explain(id)).remedies:
            return id, chance.choice(list(remedies))
    return None


@pytest.mark.parametrize("name", SETTINGS)
async def test_every_remedy_starts_the_task_when_it_is_applied(name: str, engine: Engine) -> None:
    applied = 0
    for seed in range(engine.fewer(often(2))):
        bench, chance = Bench(**SETTINGS[name]), random.Random(f"{name} {seed}")
        async with bench.scheduler as scheduler:
            await bench.learn()
            async with scheduler.running():
                await scheduler.submit_many(bench.batch(chance, 25))
                await bench.clock.advance(chance.choice([0, 3, 12.5]))
                if chance.random() < 0.4:
                    await scheduler.group(chance.choice(["a", "b"])).pause()
                await bench.clock.advance(0)
                found = await with_remedy(bench, scheduler, chance)
                if found is None:
                    continue
                id, remedy = found
                await scheduler.apply(remedy.changes)
                await bench.clock.advance(0)
                assert id in bench.started, str(remedy)
                applied += 1
    assert applied


async def explained(settings: dict[str, Any], options: dict[str, Any], pause: str | None = None) -> list[str]:
    bench = Bench(**settings)
    async with bench.scheduler as scheduler:
        await bench.learn()
        if pause is not None:
            await scheduler.group(pause).pause()
        async with scheduler.running():
            handles = await scheduler.submit_many([bench.tasks["long"].options(**options).prepare()] * 3)
            await bench.clock.advance(1)
            explanation = await handles[-1].explain()
            assert all(remedy.text in explanation.summary for remedy in explanation.remedies)
            return [remedy.text for remedy in explanation.remedies]


async def test_a_larger_cap_is_suggested() -> None:
    settings = {"groups": {"photos": Group(cap=2)}}
    assert await explained(settings, {"group": "photos"}) == ["cap of group 'photos' from 2 to 3"]


async def test_a_cap_and_slots_grow_no_more_than_needed() -> None:
    settings = {"max_concurrency": 2, "groups": {"photos": Group(cap=1)}}
    found = await explained(settings, {"group": "photos"})
    assert found == ["cap of group 'photos' from 1 to 3 and 1 slot more"]


async def test_another_process_that_only_reads_is_told_the_same(tmp_path: Path, engine: Engine) -> None:
    store = engine.named(tmp_path / "tasks.db")
    bench = Bench(store=store, max_concurrency=1)
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            handles = await scheduler.submit_many([bench.tasks["long"].prepare()] * 3)
            await bench.clock.advance(1)
            async with Reader(store, clock=bench.clock) as reader:
                assert [remedy.text for remedy in (await reader.explain(handles[-1].id)).remedies] == ["2 slots more"]


async def test_more_slots_are_suggested() -> None:
    assert await explained({"max_concurrency": 1}, {}) == ["2 slots more"]


async def test_resuming_a_group_is_suggested() -> None:
    assert await explained({}, {"group": "beta"}, pause="beta") == ["resume group 'beta'"]


async def test_lifting_a_rate_is_suggested() -> None:
    settings = {"groups": {"api": Group(rate=RateLimit.per_minute(1))}}
    assert await explained(settings, {"group": "api"}) == ["no rate limit of group 'api'"]


async def test_a_task_that_depends_on_others_has_no_remedy_but_a_forecast() -> None:
    bench = Bench(max_concurrency=1)
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            task = bench.tasks["long"]
            batch = [task.options(ref="a").prepare(), task.options(depends_on=["a"]).prepare()]
            handles = await scheduler.submit_many(batch)
            await bench.clock.advance(4)
            explanation = await handles[1].explain()
            assert explanation.remedies == ()
            assert explanation.estimated_start is not None
            assert (explanation.estimated_start - bench.clock.now()).total_seconds() == 6
            assert explanation.earliest_start == explanation.latest_start == explanation.estimated_start
            assert "Expected to start in 6 s (" in explanation.summary


@pytest.mark.one_engine("the queue is what is large")
async def test_a_large_queue_is_not_simulated_for_one_explanation() -> None:
    bench = Bench(max_concurrency=1)
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            handles = await scheduler.submit_many([bench.tasks["short"].prepare()] * 300)
            await bench.clock.advance(1)
            explanation = await handles[-1].explain()
            assert explanation.earliest_start is None
            assert explanation.remedies == ()
            assert isinstance(bench.clock, ManualClock)
