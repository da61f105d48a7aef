"""A remedy that ``explain`` suggests starts the task, once it is applied."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from taskmill import Explanation, Group, RateLimit, Remedy, Scheduler
from taskmill.reading import Reader
from taskmill.verbs import reading
from tests.both_engines import Engine
from tests.repetition import often, seeds
from tests.runtime.ahead.test_same_starts import SETTINGS, Bench


async def with_remedy(scheduler: Scheduler, chance: random.Random, starts: str) -> tuple[int, Remedy] | None:
    """Return a waiting task with one of its remedies."""
    waiting = [record for record in await scheduler.tasks() if record.status != "running"]
    if starts == "in_time":
        waiting = [record for record in waiting if record.expires_at is not None]
    chance.shuffle(waiting)
    for id in (record.id for record in waiting[:5]):
        if found := [remedy for remedy in (await scheduler.explain(id)).remedies if remedy.starts == starts]:
            return id, chance.choice(found)
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
                found = await with_remedy(scheduler, chance, "now")
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
    assert found == ["cap of group 'photos' from 1 to 3 and 1 more slot"]


async def test_another_process_that_only_reads_is_told_the_same(tmp_path: Path, engine: Engine) -> None:
    store = engine.named(tmp_path / "tasks.db")
    bench = Bench(store=store, max_concurrency=1)
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            handles = await scheduler.submit_many([bench.tasks["long"].prepare()] * 3)
            await bench.clock.advance(1)
            async with Reader(store, clock=bench.clock) as reader:
                assert [remedy.text for remedy in (await reader.explain(handles[-1].id)).remedies] == ["2 more slots"]


async def test_more_slots_are_suggested() -> None:
    assert await explained({"max_concurrency": 1}, {}) == ["2 more slots"]


async def test_resuming_a_group_is_suggested() -> None:
    assert await explained({}, {"group": "beta"}, pause="beta") == ["resume group 'beta'"]


async def test_lifting_a_rate_is_suggested() -> None:
    settings = {"groups": {"api": Group(rate=RateLimit.per_minute(1))}}
    assert await explained(settings, {"group": "api"}) == ["no rate limit for group 'api'"]


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
            assert "Expected to start in 6 s." in explanation.summary


async def late(
    settings: dict[str, Any], options: dict[str, Any], count: int = 7, *, before: int = 0
) -> tuple[Bench, Explanation]:
    """Explain the last of many tasks; it would miss its deadline."""
    bench = Bench(**settings)
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            task = bench.tasks["long"].options(**{name: value for name, value in options.items() if name != "ttl"})
            await scheduler.submit_many([bench.tasks["long"].prepare()] * before + [task.prepare()] * (count - 1))
            last = await scheduler.submit(task.options(ttl=options["ttl"]).prepare())
            await bench.clock.advance(1)
            return bench, await last.explain()


async def test_a_task_that_would_miss_its_deadline_is_told_what_would_start_it_in_time() -> None:
    _, explanation = await late({"max_concurrency": 1}, {"ttl": 35})
    assert explanation.misses_deadline
    assert explanation.estimated_start is None
    found = [(remedy.text, remedy.starts) for remedy in explanation.remedies]
    assert found == [("6 more slots", "now"), ("1 more slot", "in_time")]
    assert str(explanation).endswith(
        "Expected to expire before it starts. It would start now with: 6 more slots. "
        "It would start in time with: 1 more slot."
    )


async def test_the_same_change_is_not_suggested_twice() -> None:
    _, explanation = await late({"max_concurrency": 1}, {"ttl": 5}, 2)
    assert [(remedy.text, remedy.starts) for remedy in explanation.remedies] == [("1 more slot", "now")]
    assert explanation.misses_deadline


async def test_a_task_that_starts_in_time_needs_no_other_remedy() -> None:
    _, explanation = await late({"max_concurrency": 1}, {"ttl": 500})
    assert not explanation.misses_deadline
    assert [remedy.starts for remedy in explanation.remedies] == ["now"]


async def in_time(settings: dict[str, Any], options: dict[str, Any], count: int = 7, *, before: int = 0) -> list[str]:
    _, explanation = await late(settings, options, count, before=before)
    return [remedy.text for remedy in explanation.remedies if remedy.starts == "in_time"]


async def test_a_larger_cap_is_enough_for_a_deadline() -> None:
    found = await in_time({"groups": {"photos": Group(cap=1)}}, {"group": "photos", "ttl": 35})
    assert found == ["cap of group 'photos' from 1 to 2"]


async def test_a_weight_is_enough_for_a_deadline() -> None:
    settings = {"max_concurrency": 4, "groups": {"photos": Group(weight=2), "": Group(weight=6)}}
    found = await in_time(settings, {"group": "photos", "ttl": 45}, 6, before=60)
    assert "weight of group 'photos' from 2 to 4" in found


async def test_a_faster_rate_is_enough_for_a_deadline() -> None:
    settings = {"groups": {"api": Group(rate=RateLimit(1, 10))}}
    found = await in_time(settings, {"group": "api", "ttl": 35})
    assert found == ["rate limit of group 'api' from 1 per 10 s to 2 per 10 s"]


async def test_a_blocked_task_starts_in_time_if_the_group_that_it_waits_for_runs_more() -> None:
    bench = Bench(groups={"first": Group(cap=1)})
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            first = bench.tasks["long"].options(group="first")
            waits = [*(first.prepare() for _ in range(3)), first.options(ref="on").prepare()]
            batch = [*waits, bench.tasks["short"].options(depends_on=["on"], ttl=35).prepare()]
            last = (await scheduler.submit_many(batch))[-1]
            await bench.clock.advance(1)
            (remedy,) = (await last.explain()).remedies
            assert (remedy.text, remedy.starts) == ("cap of group 'first' from 1 to 2", "in_time")
            await scheduler.apply(remedy.changes)
            await bench.clock.advance(60)
            assert last.id in bench.started


async def test_a_task_that_is_not_due_but_would_expire_is_told_what_would_help() -> None:
    bench = Bench(max_concurrency=1)
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            await scheduler.submit_many([bench.tasks["long"].prepare()] * 6)
            later = await bench.tasks["short"].options(run_after=5, ttl=35).submit()
            await bench.clock.advance(1)
            explanation = await later.explain()
            assert [hold.reason for hold in explanation.holds] == ["not_due"]
            assert explanation.misses_deadline
            assert [remedy.text for remedy in explanation.remedies] == ["1 more slot"]


@pytest.mark.parametrize("name", SETTINGS)
async def test_every_remedy_in_time_starts_the_task_before_its_deadline(name: str, engine: Engine) -> None:
    applied = 0
    for seed in seeds(8):
        if applied >= engine.fewer(often(2)):
            break
        bench, chance = Bench(**SETTINGS[name]), random.Random(f"{name} {seed} in time")
        async with bench.scheduler as scheduler:
            await bench.learn()
            async with scheduler.running():
                await scheduler.submit_many(bench.batch(chance, 40, deadlines=True))
                await bench.clock.advance(chance.choice([0, 3, 5.5]))
                found = await with_remedy(scheduler, chance, "in_time")
                if found is None:
                    continue
                id, remedy = found
                await scheduler.apply(remedy.changes)
                for _ in range(60):
                    await bench.clock.advance(0.5)
                assert id in bench.started, f"seed {seed}: {remedy}"
                applied += 1
    assert applied


@pytest.mark.one_engine("the queue is what is large")
async def test_a_long_queue_is_simulated_if_the_task_is_near_its_front() -> None:
    bench = Bench(max_concurrency=1, groups={"photos": Group(cap=1)})
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            handles = await scheduler.submit_many([bench.tasks["long"].prepare()] * 2000)
            await bench.clock.advance(1)
            near, far = await handles[2].explain(), await handles[-1].explain()
            assert [remedy.text for remedy in near.remedies] == ["2 more slots"]
            assert near.earliest_start is not None
            assert far.earliest_start is None
            assert far.remedies == ()
            assert far.all_remedies, "64 more slots do not start it now, and it has no deadline"


@pytest.mark.one_engine("the queue is what is large")
async def test_an_explanation_says_that_remedies_were_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(max_concurrency=1)
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            handles = await scheduler.submit_many([bench.tasks["long"].options(ttl="1h").prepare()] * 2000)
            await bench.clock.advance(1)
            far = await handles[-1].explain()
            assert not far.all_remedies
            assert str(far).endswith("The search for changes that would help ended early, because the queue is long.")
            monkeypatch.setattr(reading, "MOST_EXPLAINED", 1000)
            unread = await handles[1].explain()
            assert unread.remedies == ()
            assert not unread.all_remedies
            assert str(unread).endswith("No change of settings was tried, because more than 1,000 tasks are active.")
