"""Recurring work: a grid without drift, one occurrence at a time, through failures, pauses, restarts, clock steps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from taskmill import Context, Domain, GiveUp, InvalidState, Retry, Scheduler, SubmissionError
from taskmill.events import RecurringSkipped, TaskPaused, TaskResumed, TaskSubmitted
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def active(scheduler: Scheduler) -> TaskRecord:
    """The only active task."""
    (record,) = await scheduler.tasks()
    return record


async def endings(scheduler: Scheduler) -> list[tuple[int, str]]:
    """Id and ending of all that ended, by id."""
    return sorted((record.id, str(record.ending)) for record in await scheduler.history())


async def test_occurrences_keep_to_the_grid_and_each_is_a_task_of_its_own(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[tuple[int, float, int]] = []

    @domain.task(tags={"a": "b"}, priority=7)
    async def tick(ctx: Context, word: str) -> None:
        assert (word, ctx.task.tags, ctx.task.priority) == ("x", {"a": "b"}, 7)
        starts.append((ctx.task.id, manual_clock.monotonic(), ctx.attempt))
        await manual_clock.sleep(3)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskSubmitted)
    await tick.options(every=10).submit("x")
    async with scheduler.running():
        await manual_clock.advance(34)
    assert [(at, attempt) for _, at, attempt in starts] == [(0, 1), (10, 1), (20, 1), (30, 1)]
    assert len({id for id, _, _ in starts}) == 4
    assert [(await anext(listener)).task_id for _ in range(4)] == [id for id, _, _ in starts]  # type: ignore[attr-defined]
    record = await active(scheduler)
    assert (record.status, record.run_at) == ("scheduled", manual_clock.now() + timedelta(seconds=6))


@pytest.mark.parametrize("option", ["run_at", "run_after"])
async def test_the_first_occurrence_is_due_when_the_submission_says_so(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, option: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(domains=[domain])
    begins = 7 if option == "run_after" else manual_clock.now() + timedelta(seconds=7)
    await tick.options(every=timedelta(seconds=10), **{option: begins}).submit()  # type: ignore[arg-type]
    async with scheduler.running():
        await manual_clock.advance(30)
    assert starts == [7, 17, 27]


async def test_max_runs_is_the_number_of_occurrences_whatever_becomes_of_them(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")

    @domain.task(retry=Retry.none())
    async def tick(ctx: Context) -> None:
        if ctx.task.id == 1:
            raise ValueError("dead")
        if ctx.task.id == 2:
            raise GiveUp("no")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10, max_runs=4).submit()
    async with scheduler.running():
        await manual_clock.advance(25)
        await scheduler.cancel((await active(scheduler)).id)
        await manual_clock.advance(1000)
    assert [ending for _, ending in await endings(scheduler)] == ["dead_letter", "failed", "completed", "cancelled"]
    assert await scheduler.count(status="scheduled") == 0
    assert (await scheduler.snapshot()).schedules == []


async def test_what_passes_while_the_last_is_active_is_skipped_and_told(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 1:
            await manual_clock.sleep(35)

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(RecurringSkipped)
    await tick.options(every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(20)
        assert (await active(scheduler)).status == "running", "one at a time"
        await manual_clock.advance(40)
    assert starts == [0, 40, 50, 60]
    event = await anext(listener)
    assert isinstance(event, RecurringSkipped)
    assert (event.count, event.task_id) == (3, 2)


async def test_each_occurrence_has_fresh_retries_and_a_dead_one_does_not_end_the_series(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[tuple[float, int]] = []

    @domain.task(retry=Retry.constant(1, 2))
    async def tick(ctx: Context) -> None:
        starts.append((manual_clock.monotonic(), ctx.task.retries))
        raise ValueError

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(15)
    assert starts == [(0, 0), (2, 1), (10, 0), (12, 1)]
    assert await endings(scheduler) == [(1, "dead_letter"), (2, "dead_letter")]


async def test_a_time_to_live_counts_from_when_an_occurrence_is_due(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []
    may_end = asyncio.Event()

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        await manual_clock.sleep(5)

    @domain.task(priority=0)
    async def block() -> None:
        await may_end.wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain], max_concurrency=1)
    await tick.options(every=100, run_after=100, ttl=3).submit()
    async with scheduler.running():
        await manual_clock.advance(110)
        assert starts == [100]
        await block.submit()
        await manual_clock.advance(92.999)
        assert await endings(scheduler) == [(1, "completed")]
        await manual_clock.advance(0.001)
        assert (await endings(scheduler))[-1][1] == "expired", "at its moment, though the slot is taken"
        may_end.set()
        await manual_clock.advance(150)
    assert starts == [100, 300]


async def test_cancelling_one_occurrence_leaves_the_series(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 1:
            await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    first = await tick.options(every=10).submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        assert await first.cancel(), "while it runs"
        await manual_clock.advance(1)
        assert await scheduler.cancel((await active(scheduler)).id), "while it waits"
        await manual_clock.advance(30)
    assert starts == [0, 20, 30]
    assert [ending for _, ending in await endings(scheduler)] == ["cancelled", "cancelled", "completed", "completed"]


async def test_a_late_occurrence_runs_once_after_the_process_was_down(
    manual_clock: ManualClock, tmp_path: Path
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler:
        await tick.options(every=10).submit()
        await scheduler.run_until_idle()
    await manual_clock.advance(45)
    async with Scheduler(tmp_path / "tasks.db", domains=[domain], clock=manual_clock) as scheduler:
        listener = scheduler.events(RecurringSkipped)
        async with scheduler.running():
            await manual_clock.advance(20)
        event = await anext(listener)
        assert isinstance(event, RecurringSkipped)
        assert event.count == 3
    assert starts == [0, 45, 50, 60]


async def test_a_paused_series_starts_nothing_and_makes_up_for_nothing(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(TaskPaused, TaskResumed, RecurringSkipped)
    first = await tick.options(every=10, ttl=1).submit()
    async with scheduler.running():
        await manual_clock.advance(15)
        await scheduler.pause_recurring(first.id)
        assert (await active(scheduler)).status == "paused"
        assert (await scheduler.snapshot()).schedules[0].paused
        await manual_clock.advance(100)
        assert starts == [0, 10]
        await scheduler.resume_recurring(first.id)
        await manual_clock.advance(10)
    assert starts == [0, 10, 120]
    seen = [await anext(listener) for _ in range(3)]
    assert {type(event) for event in seen} == {TaskPaused, TaskResumed, RecurringSkipped}
    assert [event.count for event in seen if isinstance(event, RecurringSkipped)] == [10]


async def test_pausing_lets_the_running_attempt_end_and_holds_its_retry(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []
    may_fail = asyncio.Event()

    @domain.task(retry=Retry.constant(3, 5))
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 1:
            await may_fail.wait()
            raise ValueError

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    first = await tick.options(every=100).submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await scheduler.pause_recurring(first.id)
        may_fail.set()
        await manual_clock.advance(1)
        record = await active(scheduler)
        assert (record.id, record.status) == (first.id, "paused")
        await scheduler.resume_recurring(first.id)
        await manual_clock.advance(3.999)
        assert starts == [0]
        await manual_clock.advance(0.001)
        assert starts == [0, 6], "its delay is kept"
        await manual_clock.advance(94)
    assert starts == [0, 6, 100]


async def test_any_id_of_a_series_names_it_until_it_is_over(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[float] = []
    cancelled = 0

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.monotonic())
        if len(starts) == 3:
            await asyncio.Event().wait()

    @tick.on_cancel
    async def undo() -> None:
        nonlocal cancelled
        cancelled += 1

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    first = await tick.options(every=10).submit()
    plain = await tick.options(run_after=10_000).submit()
    async with scheduler.running():
        await manual_clock.advance(11)
        waiting = (await scheduler.snapshot()).schedules[0].task_id
        for id in (first.id, waiting):
            await scheduler.pause_recurring(id)
            assert (await scheduler.snapshot()).schedules[0].paused
            await scheduler.resume_recurring(id)
            assert not (await scheduler.snapshot()).schedules[0].paused
        await manual_clock.advance(10)
        await scheduler.cancel_recurring(first.id)
        await manual_clock.advance(100)
        assert (starts, cancelled) == ([0, 10, 20], 1)
        for change in (scheduler.pause_recurring, scheduler.resume_recurring, scheduler.cancel_recurring):
            for id in (first.id, plain.id):
                with pytest.raises(InvalidState, match="series"):
                    await change(id)
    assert (await scheduler.snapshot()).schedules == []


async def test_a_duplicate_that_is_skipped_keeps_the_series(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[tuple[int, float]] = []

    @domain.task(key="k")
    async def tick(version: int) -> None:
        starts.append((version, manual_clock.monotonic()))

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10).submit(1)
    async with scheduler.running():
        await manual_clock.advance(5)
        again = await tick.options(every=3).submit(2)
        assert again.kind == "duplicate"
        await manual_clock.advance(20)
    assert starts == [(1, 0), (1, 10), (1, 20)]


@pytest.mark.parametrize("at_work", [False, True])
async def test_superseding_with_every_replaces_the_series(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, at_work: bool
) -> None:
    domain = Domain("d")
    starts: list[tuple[int, float]] = []

    @domain.task(key="k", on_duplicate="supersede")
    async def tick(version: int) -> None:
        starts.append((version, manual_clock.monotonic()))
        if version == 1 and at_work:
            await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    old = await tick.options(every=10).submit(1)
    async with scheduler.running():
        await manual_clock.advance(5)
        new = await tick.options(every=4, max_runs=2).submit(2)
        assert new.kind == "superseded"
        await manual_clock.advance(30)
        with pytest.raises(InvalidState):
            await scheduler.pause_recurring(old.id)
    assert starts == [(1, 0), (2, 5), (2, 9)]
    assert await scheduler.tasks() == []


@pytest.mark.parametrize("at_work", [False, True])
async def test_superseding_without_every_replaces_one_occurrence(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, at_work: bool
) -> None:
    domain = Domain("d")
    starts: list[tuple[int, float]] = []

    @domain.task(key="k", on_duplicate="supersede")
    async def tick(version: int) -> None:
        starts.append((version, manual_clock.monotonic()))
        if len(starts) == 1 and at_work:
            await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10, max_runs=3).submit(1)
    async with scheduler.running():
        await manual_clock.advance(5)
        new = await tick.submit(2)
        await manual_clock.advance(0)
        assert starts == [(1, 0), (2, 5)]
        assert len((await scheduler.snapshot()).schedules) == 1
        await scheduler.pause_recurring(new.id)
        await scheduler.resume_recurring(new.id)
        await manual_clock.advance(100)
    # While it waits, the one due at 10 is replaced; while it runs, the one due at 0.
    assert starts == [(1, 0), (2, 5), *([(1, 10), (1, 20)] if at_work else [(1, 20)])]


async def test_pausing_and_resuming_a_replacement_does_not_open_its_gate(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    may_abort = asyncio.Event()

    @domain.task(key="k", on_duplicate="supersede")
    async def tick(version: int) -> None:
        happened.append(f"start {version}")
        if version == 1:
            await asyncio.Event().wait()

    @tick.on_cancel
    async def abort(version: int) -> None:
        await may_abort.wait()
        happened.append(f"abort {version}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=100).submit(1)
    async with scheduler.running():
        await manual_clock.advance(1)
        new = await tick.options(every=100).submit(2)
        await manual_clock.advance(0)
        await scheduler.pause_recurring(new.id)
        await scheduler.resume_recurring(new.id)
        await manual_clock.advance(1)
        assert happened == ["start 1"]
        may_abort.set()
        await manual_clock.advance(1)
    assert happened == ["start 1", "abort 1", "start 2"]


async def test_the_next_occurrence_waits_until_the_last_has_really_stopped(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    may_abort = asyncio.Event()

    @domain.task(key="k", on_duplicate="supersede")
    async def tick(version: int) -> None:
        happened.append(f"start {version}")
        if len(happened) == 1:
            await asyncio.Event().wait()

    @tick.on_cancel
    async def abort(version: int) -> None:
        await may_abort.wait()
        happened.append(f"abort {version}")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=10).submit(1)
    async with scheduler.running():
        await manual_clock.advance(1)
        replacement = await tick.submit(2)
        await manual_clock.advance(1)
        await replacement.cancel()
        await manual_clock.advance(20)
        assert happened == ["start 1"]
        may_abort.set()
        await manual_clock.advance(10)
    assert happened == ["start 1", "abort 1", "start 1"]


@pytest.mark.parametrize("ttl", [None, 60])
async def test_after_a_step_back_of_the_wall_clock_nothing_comes_again(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str, ttl: int | None
) -> None:
    domain = Domain("d")
    starts: list[datetime] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.now())

    begin = manual_clock.now()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=3600, ttl=ttl).submit()
    async with scheduler.running():
        await manual_clock.advance(3700)
        await manual_clock.jump(timedelta(hours=-5))
        await manual_clock.advance(timedelta(hours=5, minutes=58))
        assert len(starts) == 2
        await manual_clock.advance(timedelta(hours=2))
    assert starts == [begin + timedelta(hours=n) for n in range(4)]
    assert {ending for _, ending in await endings(scheduler)} == {"completed"}


async def test_a_step_forward_brings_one_late_occurrence_and_then_the_grid(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock, any_store: str
) -> None:
    domain = Domain("d")
    starts: list[datetime] = []

    @domain.task
    async def tick() -> None:
        starts.append(manual_clock.now())

    begin = manual_clock.now()
    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    await tick.options(every=3600, run_after=60).submit()
    async with scheduler.running():
        await manual_clock.advance(1)
        await manual_clock.jump(timedelta(hours=3))
        await manual_clock.advance(3600)
    assert [at - begin for at in starts] == [timedelta(hours=3, seconds=1), timedelta(hours=3, minutes=1)]


async def test_recurring_dependents_and_children_are_refused(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    refusals: list[str] = []

    @domain.task
    async def tick() -> None: ...

    @domain.task
    async def parent(ctx: Context) -> None:
        try:
            await ctx.spawn(tick.options(every=10).prepare())
        except SubmissionError as refusal:
            refusals.append(str(refusal))

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    blocker = await parent.submit()
    with pytest.raises(SubmissionError, match="every and depends_on"):
        await tick.options(every=10, depends_on=blocker).submit()
    with pytest.raises(SubmissionError, match="max_runs"):
        await tick.options(max_runs=10).submit()
    with pytest.raises(SubmissionError, match="every"):
        await tick.options(every=0).submit()
    await scheduler.run_until_idle()
    assert [refusal for refusal in refusals if "every" in refusal]
    assert await endings(scheduler) == [(blocker.id, "completed")]


# Restarts between any two steps

Step = Callable[[Scheduler], Awaitable[object]]


async def _tell_story(file: Path, *, reopening: bool) -> tuple[list[str], list[tuple[int, str]], list[TaskRecord]]:
    """The same steps, in one process or in one for each."""
    clock = ManualClock()
    domain = Domain("d")
    story: list[str] = []

    @domain.task(key="k", retry=Retry.constant(2, 3))
    async def tick(ctx: Context, version: int) -> None:
        story.append(f"{clock.monotonic():g}: task {ctx.task.id} attempt {ctx.attempt} version {version}")
        if ctx.task.id % 3 == 0 and ctx.task.retries < 2:
            raise ValueError
        if ctx.task.id == 4:
            raise GiveUp("no")

    async def cancel_active(scheduler: Scheduler) -> None:
        await scheduler.cancel((await active(scheduler)).id)

    steps: list[Step] = [
        lambda _: tick.options(every=10, run_after=5, max_runs=50).submit(1),
        lambda _: clock.advance(7),
        lambda _: clock.advance(18),
        lambda scheduler: scheduler.pause_recurring(1),
        lambda _: clock.advance(21),
        lambda scheduler: scheduler.resume_recurring(1),
        lambda _: clock.advance(17),
        cancel_active,
        lambda _: clock.jump(-50),
        lambda _: clock.advance(70),
        lambda _: tick.options(on_duplicate="supersede").submit(2),
        lambda _: clock.advance(9),
        lambda _: clock.jump(33),
        lambda _: clock.advance(40),
        lambda scheduler: scheduler.cancel_recurring(1),
        lambda _: clock.advance(40),
    ]

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scheduler]:
        async with Scheduler(file, domains=[domain], clock=clock) as scheduler, scheduler.running():
            await clock.advance(0)
            yield scheduler
            await clock.advance(0)

    if reopening:
        for step in steps:
            async with opened() as scheduler:
                await step(scheduler)
    else:
        async with opened() as scheduler:
            for step in steps:
                await step(scheduler)
                await clock.advance(0)
    async with Scheduler(file, domains=[domain], clock=clock) as scheduler:
        return story, await endings(scheduler), await scheduler.tasks()


async def test_opening_and_closing_between_any_two_steps_changes_nothing(tmp_path: Path) -> None:
    straight = await _tell_story(tmp_path / "straight.db", reopening=False)
    reopened = await _tell_story(tmp_path / "reopened.db", reopening=True)
    assert straight == reopened
    assert len(straight[0]) > 10
    assert straight[2] == [], "the series was cancelled"


# A year


class Year:
    """A recurring task through a year of everything that goes wrong."""

    EVERY = timedelta(hours=6)
    MAX_RUNS = 500

    def __init__(self, file: Path, seed: int) -> None:
        self.file = file
        self.random = random.Random(seed)
        self.ttl = timedelta(hours=30) if seed % 2 else None
        self.clock = ManualClock()
        self.first_at = self.clock.now()
        self.domain = Domain("year")
        self.starts: dict[int, datetime] = {}
        """When each occurrence first started; one may be interrupted before its handler says so."""
        self.due: dict[int, datetime] = {}
        self.attempts: list[tuple[int, int]] = []
        self.running = 0
        self.skipped = 0
        self.is_paused = False
        self.faults: list[str] = []

        @self.domain.task(retry=Retry.constant(2, 600))
        async def tick(ctx: Context) -> None:
            await self.attempt(ctx)

        self.tick = tick

    async def attempt(self, ctx: Context) -> None:
        self.running += 1
        try:
            id, due = ctx.task.id, ctx.task.run_at or self.first_at
            # What a handler raises is only a failure of its task, so faults are noted here and judged later.
            if self.running != 1:
                self.faults.append(f"task {id} started beside another")
            if self.is_paused:
                self.faults.append(f"task {id} started while its series was paused")
            # One that was interrupted goes on as soon as it can, whatever the clock says by then.
            if ctx.attempt == 1 and self.clock.now() < due:
                self.faults.append(f"task {id} started early")
            self.attempts.append((id, ctx.attempt))
            if id not in self.due and ctx.task.retries == 0:
                self.starts[id] = self.clock.now()
                self.due[id] = due
            chance = self.random.random()
            if chance < 0.1:
                await self.clock.sleep(self.random.choice([60, 3600, 20 * 3600, 50 * 3600]))
            elif chance < 0.3:
                raise ValueError("bad luck")
            elif chance < 0.35:
                raise GiveUp("no luck")
        finally:
            self.running -= 1

    async def live(self) -> None:
        submitted = False
        while self.clock.monotonic() < 365 * 86_400:
            settings = {"shutdown_grace": 0, "retention": None, "durability": "process", "clock": self.clock}
            async with Scheduler(self.file, domains=[self.domain], **settings) as scheduler:  # type: ignore[arg-type]
                counting = asyncio.create_task(self.count_skipped(scheduler))
                await self.clock.advance(0)
                if not submitted:
                    await self.tick.options(every=self.EVERY, max_runs=self.MAX_RUNS, ttl=self.ttl).submit()
                    submitted = True
                async with scheduler.running():
                    for _ in range(self.random.randint(1, 8)):
                        await self.step(scheduler)
                await self.clock.advance(0)
                counting.cancel()
            await self.stop_for_a_while()

    async def count_skipped(self, scheduler: Scheduler) -> None:
        async for event in scheduler.events(RecurringSkipped):
            assert isinstance(event, RecurringSkipped)
            self.skipped += event.count

    async def step(self, scheduler: Scheduler) -> None:
        # What is due has started before the clock is touched.
        await self.clock.advance(0)
        hours = self.random.choice([1, 5, 6, 7, 24, 60])
        match self.random.choice(["work"] * 6 + ["pause", "resume", "resume", "sleep", "back", "forth", "cancel"]):
            case "pause" if await self.is_alive(scheduler):
                await scheduler.pause_recurring(1)
                # An attempt that runs may end; the next one must wait.
                self.is_paused = True
            case "resume" if await self.is_alive(scheduler):
                self.is_paused = False
                await scheduler.resume_recurring(1)
            case "sleep" | "forth":
                await self.clock.jump(timedelta(hours=hours))
            case "back":
                await self.clock.jump(timedelta(hours=-hours))
            case "cancel":
                for record in await scheduler.tasks():
                    await scheduler.cancel(record.id)
            case _:
                pass
        await self.clock.advance(timedelta(hours=hours))
        assert len(await scheduler.tasks()) <= 1

    async def is_alive(self, scheduler: Scheduler) -> bool:
        return bool((await scheduler.snapshot()).schedules)

    async def stop_for_a_while(self) -> None:
        if self.random.random() < 0.3:
            await self.clock.jump(timedelta(hours=self.random.choice([-30, -1, 13, 100])))
        if self.random.random() < 0.5:
            await self.clock.advance(timedelta(hours=self.random.choice([1, 6, 50])))

    async def judge(self) -> None:
        async with Scheduler(self.file, domains=[self.domain], clock=self.clock) as scheduler:
            assert await scheduler.tasks() == [], "the series was over long ago"
            assert (await scheduler.snapshot()).schedules == []
            made = sorted(await scheduler.history(limit=10_000), key=lambda record: record.id)
        assert self.faults == []
        assert len(made) == self.MAX_RUNS
        dues = [self.planned(record) for record in made]
        assert all((due - self.first_at) % self.EVERY == timedelta() for due in dues), "off the grid"
        assert dues == sorted(set(dues)), "twice, or out of order"
        assert (dues[-1] - self.first_at) // self.EVERY + 1 == len(made) + self.skipped, "a place was lost"
        assert len(set(self.attempts)) == len(self.attempts), "an attempt ran twice"
        assert len(self.starts) > self.MAX_RUNS / 2

    def planned(self, record: HistoryRecord) -> datetime:
        return self.due.get(record.id, record.run_at or self.first_at)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_year_of_failures_pauses_suspends_and_clock_steps(tmp_path: Path, seed: int) -> None:
    year = Year(tmp_path / "tasks.db", seed)
    try:
        await year.live()
        await year.judge()
    except BaseException:
        print(f"seed {seed}, day {year.clock.monotonic() / 86_400:.1f}, {len(year.starts)} occurrences started")
        raise


async def test_the_next_occurrence_waits_for_whoever_is_still_being_stopped_with_its_key(
    taskmill_scheduler: SchedulerFactory, any_store: str, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    happened: list[str] = []
    started, may_end = asyncio.Event(), asyncio.Event()

    @domain.task(key="k", on_duplicate="supersede")
    async def work(n: int) -> None:
        happened.append(f"start {n}")
        if n == 1:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await may_end.wait()
                happened.append("end 1")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    async with scheduler.running():
        await work.submit(1)
        await started.wait()
        first = await work.options(every=10).submit(2)
        await first.cancel()
        await manual_clock.advance(25)
        assert happened == ["start 1"]
        may_end.set()
        await manual_clock.advance(10)
    assert happened[:3] == ["start 1", "end 1", "start 2"]
