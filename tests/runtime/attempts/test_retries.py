"""Failures: retries by every policy, signals, dead letters and their revival, timeouts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from taskmill import Context, Domain, GiveUp, InvalidState, Retry, RetryLater, TaskFailed
from taskmill.events import TaskCompleted, TaskDeadLettered, TaskEvent
from taskmill.events import TaskFailed as AttemptFailed
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory


async def test_a_failing_task_is_retried_as_often_as_its_policy_says_and_then_is_a_dead_letter(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    attempts: list[int] = []

    @domain.task
    async def fail(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("boom")

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    listener = scheduler.events(AttemptFailed, TaskDeadLettered)
    handle = await fail.submit()
    await scheduler.run_until_idle()
    assert attempts == [1, 2, 3, 4], "the built-in default is three retries without delay"
    with pytest.raises(TaskFailed, match="ValueError: boom") as caught:
        await handle.result()
    record = caught.value.record
    assert (record.ending, record.retries, record.error) == ("dead_letter", 3, "ValueError: boom")
    assert [letter.id for letter in await scheduler.dead_letters()] == [handle.id]
    told = [await anext(listener) for _ in range(5)]
    assert [getattr(event, "will_retry", None) for event in told] == [True, True, True, False, None]


async def test_a_retry_waits_for_its_delay(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task(retry=Retry.exponential(4, initial=1, maximum=5))
    async def fail() -> None:
        starts.append(manual_clock.monotonic())
        raise OSError("no")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await fail.submit()
    async with scheduler.running():
        await manual_clock.advance(0)
        record = await handle.record()
        assert (record.status, record.last_error) == ("scheduled", "OSError: no")  # type: ignore[union-attr]
        assert record.run_at == manual_clock.now() + timedelta(seconds=1)
        await manual_clock.advance(60)
    assert starts == [0, 1, 3, 7, 12]


async def test_retry_later_names_its_own_delay(taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock) -> None:
    domain = Domain("d")
    starts: list[float] = []

    @domain.task(retry=Retry.constant(3, delay=100))
    async def later() -> str:
        starts.append(manual_clock.monotonic())
        if len(starts) < 3:
            raise RetryLater("quota", after=timedelta(seconds=7) if len(starts) == 1 else None)
        return "done"

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await later.submit()
    async with scheduler.running():
        await manual_clock.advance(200)
    assert await handle.result() == "done"
    assert starts == [0, 7, 107]


async def test_giving_up_fails_at_once(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task
    def hopeless() -> None:
        raise GiveUp("no such file")

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await hopeless.submit()
    await scheduler.run_until_idle()
    record = await handle.record()
    assert (record.ending, record.error, record.retries) == ("failed", "no such file", 0)  # type: ignore[union-attr]
    with pytest.raises(InvalidState, match="not a dead letter"):
        await scheduler.retry_dead(handle.id)


async def test_a_dead_letter_can_be_brought_back_with_its_saved_state(
    taskmill_scheduler: SchedulerFactory, any_store: str
) -> None:
    domain = Domain("d")
    broken = True

    @domain.task(retry=Retry.none(), key=lambda name: name, tags={"kind": "upload"})
    async def upload(ctx: Context, name: str) -> str:
        if broken:
            await ctx.save(part=7)
            raise ConnectionError("down")
        return f"{name} from part {ctx.saved['part']}"

    scheduler = await taskmill_scheduler(store=any_store, domains=[domain])
    handle = await upload.submit("a")
    await scheduler.run_until_idle()
    assert await scheduler.count(status="dead_letter", type="d::upload") == 1
    broken = False
    again = await scheduler.retry_dead(handle.id)
    assert again.id == handle.id
    assert await scheduler.dead_letters() == []
    assert await scheduler.tag_values("kind") == {"upload": 1}
    await scheduler.run_until_idle()
    assert await again.result() == "a from part 7"
    assert await scheduler.count(status="dead_letter") == 0
    assert (await scheduler.stats("d::upload")).failed == 0


async def test_an_attempt_that_exceeds_its_timeout_is_cancelled_and_counts_as_a_failure(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    ended: list[str] = []

    @domain.task(timeout=5, retry=Retry.constant(1, delay=10))
    async def slow(ctx: Context) -> str:
        if ctx.attempt == 2:
            return "fast enough"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(f"cancelled at {manual_clock.monotonic()}, asked: {ctx.cancelled}")
            raise
        return "unreachable"

    scheduler = await taskmill_scheduler(domains=[domain])
    listener = scheduler.events(AttemptFailed, TaskCompleted)
    handle = await slow.submit()
    async with scheduler.running():
        await manual_clock.advance(30)
    assert ended == ["cancelled at 5.0, asked: True"]
    assert await handle.result() == "fast enough"
    failure = await anext(listener)
    assert isinstance(failure, AttemptFailed)
    assert failure.error == "TimeoutError: exceeded its timeout of 5 s"
    assert failure.retry_after == timedelta(seconds=10)


async def test_a_timeout_per_call_and_none_for_no_timeout_win_over_the_types(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")

    @domain.task(timeout=5, retry=Retry.none())
    async def slow() -> None:
        await manual_clock.sleep(8)

    scheduler = await taskmill_scheduler(domains=[domain])
    by_type = await slow.submit()
    longer = await slow.options(timeout=10).submit()
    unbound = await slow.options(timeout=None).submit()
    async with scheduler.running():
        await manual_clock.advance(30)
    endings = [(await handle.wait()).ending for handle in (by_type, longer, unbound)]
    assert endings == ["dead_letter", "completed", "completed"]


async def test_a_retry_never_starts_before_a_thread_that_timed_out_has_ended(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    import threading

    domain = Domain("d")
    release = threading.Event()
    alive: list[int] = []
    most: list[int] = []

    @domain.task(timeout=5, retry=Retry.constant(1, delay=0))
    def deaf(ctx: Context) -> None:
        alive.append(ctx.attempt)
        most.append(len(alive))
        if ctx.attempt == 1:
            release.wait(30)
        alive.remove(ctx.attempt)

    scheduler = await taskmill_scheduler(domains=[domain], cancel_timeout=3)
    handle = await deaf.submit()
    async with scheduler.running():
        await manual_clock.advance(60)
        assert alive == [1], "the attempt still runs, its retry must wait"
        assert (await handle.record()).status == "running"  # type: ignore[union-attr]
        release.set()
        await handle.wait()
    assert most == [1, 1]


async def test_a_zero_delay_retry_stays_cancellable(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    domain = Domain("d")
    second = asyncio.Event()

    @domain.task
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("first")
        second.set()
        await asyncio.Event().wait()

    scheduler = await taskmill_scheduler(domains=[domain])
    handle = await flaky.submit()
    async with scheduler.running():
        await second.wait()
        assert await handle.cancel()
        assert (await handle.wait()).ending == "cancelled"


async def test_every_event_of_a_task_carries_its_description(taskmill_scheduler: SchedulerFactory) -> None:
    domain = Domain("d")

    @domain.task(key=lambda n: f"k{n}", group="g", label="nice", tags={"a": "b"}, priority=7)
    async def work(n: int) -> int:
        return n

    scheduler = await taskmill_scheduler(domains=[domain])
    listener = scheduler.events()
    await work.submit(5)
    await scheduler.run_until_idle()
    events = [await anext(listener) for _ in range(3)]
    assert [type(event).__name__ for event in events] == ["TaskSubmitted", "TaskDispatched", "TaskCompleted"]
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    for event in events:
        assert isinstance(event, TaskEvent)
        assert (event.type, event.domain, event.key, event.label) == ("d::work", "d", "k5", "nice")
        assert (event.group, event.tags, event.base_priority) == ("g", {"a": "b"}, 7)
    assert events[-1].result == 5  # type: ignore[attr-defined]
