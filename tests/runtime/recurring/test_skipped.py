"""A beat during an active occurrence is skipped and announced at that moment, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from taskmill import Context, Domain, Retry, Scheduler
from taskmill.events import RecurringSkipped
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.both_engines import Engine


class Heard:
    """Records when skipped beats were announced: ``(seconds, task id, count)``."""

    def __init__(self, scheduler: Scheduler, clock: ManualClock) -> None:
        self.skips: list[tuple[float, int, int]] = []
        self._events = scheduler.events(RecurringSkipped)
        self._clock = clock
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self._events:
            assert isinstance(event, RecurringSkipped)
            self.skips.append((self._clock.monotonic(), event.task_id, event.count))

    def end(self) -> None:
        self._listening.cancel()


async def test_a_beat_is_skipped_and_announced_at_its_instant_while_the_last_occurrence_runs(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d", tags={"a": "b"})
    starts: list[float] = []

    @domain.task(key="k", label="l")
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 1:
            await manual_clock.sleep(35)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], shutdown_grace=0)
    events = scheduler.events(RecurringSkipped)
    heard = Heard(scheduler, manual_clock)
    await tick.options(every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(9.999)
        assert heard.skips == []
        await manual_clock.advance(0.001)
        assert heard.skips == [(10, 1, 1)], "at once, while the run continues"
        await manual_clock.advance(50)
    assert heard.skips == [(10, 1, 1), (20, 1, 1), (30, 1, 1)]
    assert starts == [0, 40, 50, 60]
    event = await anext(events)
    assert isinstance(event, RecurringSkipped)
    assert (event.type, event.key, event.label, event.tags) == ("d::tick", "k", "l", {"a": "b"})
    heard.end()


async def test_an_occurrence_that_ends_at_the_very_instant_of_the_next_beat_leaves_it_free(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        await manual_clock.sleep(10)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], shutdown_grace=0)
    heard = Heard(scheduler, manual_clock)
    await tick.options(every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(30)
    assert starts == [0, 10, 20, 30]
    assert heard.skips == []
    heard.end()


async def test_beats_are_skipped_while_the_last_occurrence_waits_for_a_retry_a_slot_or_its_children(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")

    @domain.task(retry=Retry.constant(1, 15))
    async def fails(ctx: Context) -> None:
        if not ctx.task.retries:
            raise ValueError

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(child.prepare())

    @domain.task
    async def child() -> None:
        await manual_clock.sleep(15)

    @domain.task
    async def held() -> None: ...

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], shutdown_grace=0)
    heard = Heard(scheduler, manual_clock)
    failing = await fails.options(every=10).submit()
    family = await parent.options(every=10).submit()
    waiting = await held.options(every=10, group="g").submit()
    await scheduler.group("g").pause()
    async with scheduler.running():
        await manual_clock.advance(10)
        assert sorted(heard.skips) == [(10, failing.id, 1), (10, family.id, 1), (10, waiting.id, 1)]
        await manual_clock.advance(8)
        await scheduler.group("g").resume()
        await manual_clock.advance(2)
        assert len(heard.skips) == 3
    heard.end()


async def test_nothing_is_skipped_after_the_last_run_or_while_the_series_is_paused(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")

    @domain.task
    async def tick() -> None:
        await manual_clock.sleep(35)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], shutdown_grace=0)
    heard = Heard(scheduler, manual_clock)
    await tick.options(every=10, max_runs=1).submit()
    paused = await tick.options(every=10).submit()
    await scheduler.pause_recurring(paused.id)
    async with scheduler.running():
        await manual_clock.advance(32)
        assert heard.skips == []
        await scheduler.resume_recurring(paused.id)
        await manual_clock.advance(0)
        assert [(at, count) for at, _, count in heard.skips] == [(32, 4)], "the beats during the pause"
        await manual_clock.advance(18)
    assert [(at, count) for at, _, count in heard.skips[1:]] == [(50, 1)]
    heard.end()


async def test_a_restart_repeats_no_announcement_and_loses_none(
    manual_clock: ManualClock, tmp_path: Path, engine: Engine
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        await manual_clock.sleep(1000 if len(starts) == 1 else 0)

    skips: list[tuple[float, int, int]] = []
    settings = {"domains": [domain], "clock": manual_clock, "shutdown_grace": 0}
    async with Scheduler(tmp_path / "tasks.db", **settings) as scheduler:  # type: ignore[arg-type]
        heard = Heard(scheduler, manual_clock)
        await tick.options(every=10).submit()
        async with scheduler.running():
            await manual_clock.advance(25)
        skips += heard.skips
        heard.end()
    await manual_clock.advance(20)
    async with Scheduler(tmp_path / "tasks.db", **settings) as scheduler:  # type: ignore[arg-type]
        heard = Heard(scheduler, manual_clock)
        async with scheduler.running():
            await manual_clock.advance(10)
        skips += heard.skips
        heard.end()
    assert [(at, count) for at, _, count in skips] == [(10, 1), (20, 1), (45, 2)]
    assert starts == [0, 45, 50]
