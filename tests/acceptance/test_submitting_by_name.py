"""Submitting by name from a process that does not have the handler."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from taskmill import Context, Domain, Retry, Scheduler, Submission, SubmissionError, TaskFailed, UnknownTaskType
from taskmill.events import TaskWaiting
from taskmill.testing import ManualClock


def _owner() -> Domain:
    domain = Domain("far", group="of domain", tags={"a": "domain"})

    @domain.task(priority=7, ttl=60, label="l", tags={"b": "type"}, on_duplicate="reject", retry=Retry.none())
    async def work(n: int, factor: int = 2) -> int:
        return n * factor

    @domain.task(key=True)
    async def unique(n: int) -> int:
        return n

    return domain


async def test_a_process_without_the_handler_submits_as_its_owner_would(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    clock = ManualClock()
    async with (
        Scheduler(path, domains=[_owner()], clock=clock) as owner,
        Scheduler(path, clock=clock) as stranger,
    ):
        submission = Submission("far::work", {"n": 3}, key="k")
        handle = await stranger.submit(submission)
        record = await stranger.get(handle.id)
        assert (record.priority, record.group, record.label) == (7, "of domain", "l")
        assert record.tags == {"a": "domain", "b": "type"}
        assert record.expires_at == clock.now() + timedelta(seconds=60)
        with pytest.raises(SubmissionError, match="'k'"):
            await stranger.submit(submission)
        overriding = Submission("far::work", {"n": 4}, priority=9, group=None, ttl=None, tags={"b": "call"})
        record = await (await stranger.submit(overriding)).record()
        assert (record.priority, record.group, record.expires_at) == (9, "", None)
        assert record.tags == {"a": "domain", "b": "call"}
        await owner.run_until_idle()
        assert await handle.result() == 6


async def test_key_true_of_a_type_counts_for_submissions_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with Scheduler(path, domains=[_owner()]) as owner, Scheduler(path) as stranger:
        first = await owner.submit(Submission("far::unique", {"n": 1}))
        again = await stranger.submit(Submission("far::unique", {"n": 1}))
        assert (again.kind, again.id) == ("duplicate", first.id)


async def test_a_type_published_after_this_scheduler_opened_is_found(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with Scheduler(path) as stranger:
        with pytest.raises(UnknownTaskType, match="far::work"):
            await stranger.submit(Submission("far::work", {"n": 1}))
        async with Scheduler(path, domains=[_owner()]):
            handle = await stranger.submit(Submission("far::work", {"n": 1}))
        assert (await stranger.get(handle.id)).priority == 7


async def test_an_unchecked_submission_waits_for_the_first_scheduler_that_has_the_type(path: Path) -> None:
    clock = ManualClock()
    async with Scheduler(path, default_ttl=90, clock=clock) as stranger:
        handle = await stranger.submit(Submission("far::work", {"n": 3}, check=False, tags={"by": "stranger"}))
        batch = await stranger.submit_many([Submission("far::work", {"n": n}, check=False) for n in (4, 5)])
        record = await handle.record()
        assert (record.domain, record.priority, record.group) == ("far", 128, "")
        assert (record.tags, record.expires_at) == ({"by": "stranger"}, clock.now() + timedelta(seconds=90))
        async with Scheduler(path, domains=[_owner()], clock=clock) as owner:
            await owner.run_until_idle()
        assert [await each.result() for each in (handle, *batch)] == [6, 8, 10]


async def test_an_unchecked_submission_has_the_published_defaults_where_there_are_any(path: Path) -> None:
    async with Scheduler(path) as stranger, Scheduler(path, domains=[_owner()]) as owner:
        for scheduler in (stranger, owner):
            handle = await scheduler.submit(Submission("far::work", {"n": 3}, check=False))
            assert (await handle.record()).priority == 7
        first = await owner.submit(Submission("far::unique", {"n": 1}))
        again = await stranger.submit(Submission("far::unique", {"n": 1}, check=False))
        assert (again.kind, again.id) == ("duplicate", first.id)


async def test_an_unchecked_submission_with_key_true_derives_the_key_from_the_payload(path: Path) -> None:
    async with Scheduler(path) as stranger:
        one, again, other = await stranger.submit_many(
            [Submission("far::work", {"n": n}, check=False, key=True) for n in (1, 1, 2)]
        )
        assert one.id == again.id != other.id


async def test_the_refusal_of_an_unknown_type_says_what_to_do(path: Path) -> None:
    async with Scheduler(path) as stranger:
        with pytest.raises(UnknownTaskType, match="far::work") as refusal:
            await stranger.submit(Submission("far::work", {"n": 1}))
        assert "check=False" in str(refusal.value)
        assert "start a scheduler with its domain once" in str(refusal.value)
        assert await stranger.count() == 0


async def test_a_handler_in_a_process_may_spawn_an_unchecked_submission(path: Path) -> None:
    domain = Domain("here")
    domain.task(name="spawning", run_in="process")(spawns_unchecked)
    async with Scheduler(path, domains=[domain]) as scheduler:
        handle = await scheduler.submit(Submission("here::spawning"))
        async with scheduler.running():
            async for _ in scheduler.events(TaskWaiting):
                break
        (child,) = await scheduler.tasks(parent=handle.id)
        assert (child.type, child.payload) == ("far::work", {"n": 1})


def spawns_unchecked(ctx: Context) -> None:
    ctx.spawn(Submission("far::work", {"n": 1}, check=False))


@pytest.mark.one_engine("refused before a store is asked")
@pytest.mark.parametrize("type", ["work", "::work", "far::", "far::work::more"])
def test_an_unchecked_name_must_still_be_a_full_name(type: str) -> None:
    with pytest.raises(SubmissionError, match="'domain::task'"):
        Submission(type, check=False)


@pytest.mark.one_engine("refused before a store is asked")
def test_check_must_be_true_or_false() -> None:
    with pytest.raises(SubmissionError, match="check must be True or False, got 0"):
        Submission("far::work", check=0)  # type: ignore[arg-type]


async def test_changed_defaults_reach_submissions_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"

    def owner(priority: int) -> Domain:
        domain = Domain("far")
        domain.task(name="work", priority=priority)(_plain)
        return domain

    async with Scheduler(path, domains=[owner(1)]):
        pass
    async with Scheduler(path) as stranger:
        assert (await (await stranger.submit(Submission("far::work"))).record()).priority == 1
        async with Scheduler(path, domains=[owner(2)]):
            pass
        async with Scheduler(path) as another:
            assert (await (await another.submit(Submission("far::work"))).record()).priority == 2


async def _plain() -> None: ...


async def test_a_payload_by_name_that_the_owner_cannot_read_fails_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with Scheduler(path, domains=[_owner()]) as owner, Scheduler(path) as stranger:
        wrong = await stranger.submit(Submission("far::work", {"n": "three"}))
        right = await stranger.submit(Submission("far::work", {"n": 3}))
        await owner.run_until_idle(timeout=10)
        assert await right.result(timeout=1) == 6
        with pytest.raises(TaskFailed, match=r"argument 'n': Expected `int`"):
            await wrong.result(timeout=1)


async def test_a_submission_that_says_nothing_has_no_payload() -> None:
    domain = Domain("empty")
    domain.task(name="work")(_plain)
    async with Scheduler(domains=[domain]) as scheduler:
        for submission in (Submission("empty::work"), Submission("empty::work", None), Submission("empty::work", {})):
            assert (await (await scheduler.submit(submission)).record()).payload == {}
