"""Tasks without a handler on any node are marked: in snapshots, in ``taskmill status`` and in ``taskmill ls``."""

from __future__ import annotations

from pathlib import Path

from taskmill import Context, Domain, Scheduler, Submission, blocking
from taskmill.testing import ManualClock
from taskmill.testing.plugin import SchedulerFactory
from tests.acceptance.command_line import Here


def _do_nothing() -> None: ...


def photos(*names: str) -> Domain:
    domain = Domain("photos")
    for name in names:
        domain.task(name=name)(_do_nothing)
    return domain


async def test_a_snapshot_counts_the_waiting_tasks_of_types_without_a_handler(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[photos("resize")]) as scheduler:
        old = [Submission("photos::old", {}, check=False) for _ in range(3)]
        *_, resized = await scheduler.submit_many([*old, Submission("photos::resize", {})])
        assert (await scheduler.snapshot()).unhandled == {"photos::old": 3}
        async with scheduler.running():
            await resized.wait(timeout=20)
            assert (await scheduler.snapshot()).unhandled == {"photos::old": 3}


async def test_tasks_of_every_status_that_waits_to_run_are_counted(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db", domains=[photos("resize")]) as scheduler:
        pending, *_ = await scheduler.submit_many(
            [
                Submission("photos::pending", {}, check=False),
                Submission("photos::scheduled", {}, check=False, run_after=3600),
                Submission("photos::paused", {}, check=False, group="g"),
                Submission("photos::several", {}, check=False),
                Submission("photos::several", {}, check=False, run_after=3600),
            ]
        )
        await scheduler.submit(Submission("photos::blocked", {}, check=False, depends_on=[pending]))
        await scheduler.group("g").pause()
        expected = {
            "photos::blocked": 1,
            "photos::paused": 1,
            "photos::pending": 1,
            "photos::scheduled": 1,
            "photos::several": 2,
        }
        assert (await scheduler.snapshot()).unhandled == expected
        async with scheduler.running():
            assert (await scheduler.snapshot()).unhandled == expected


async def test_tasks_that_have_ended_or_wait_for_children_are_not_counted(tmp_path: Path) -> None:
    store, domain = tmp_path / "tasks.db", Domain("photos")
    domain.task(name="child")(_do_nothing)

    @domain.task
    async def parent(ctx: Context) -> None:
        await ctx.spawn(Submission("photos::child", {}, run_after=3600))

    async with Scheduler(store, domains=[domain]) as scheduler:
        waiting = await parent.submit()
        cancelled = await parent.options(run_after=3600).submit()
        await cancelled.cancel()
        await scheduler.run_until_idle()
        assert (await scheduler.get(waiting.id)).state == "waiting"
    async with Scheduler(store) as other, other.running():
        assert (await other.snapshot()).unhandled == {"photos::child": 1}


async def test_a_task_that_has_expired_is_not_counted(
    taskmill_scheduler: SchedulerFactory, manual_clock: ManualClock
) -> None:
    scheduler = await taskmill_scheduler()
    await scheduler.submit(Submission("photos::old", {}, check=False, run_after=100, ttl=10))
    assert (await scheduler.snapshot()).unhandled == {"photos::old": 1}
    await manual_clock.advance(11)
    assert (await scheduler.snapshot()).unhandled == {}


async def test_the_types_of_the_present_dispatcher_count_and_not_those_of_earlier_ones(tmp_path: Path) -> None:
    store = tmp_path / "tasks.db"
    async with Scheduler(store, domains=[photos("resize", "crop")]) as first:
        await first.run_until_idle()
        await first.submit(Submission("photos::crop", {}))
    async with Scheduler(store) as onlooker:
        # The next dispatcher may have a handler again.
        assert (await onlooker.snapshot()).unhandled == {}
        async with Scheduler(store, domains=[photos("resize")]) as second, second.running():
            assert (await second.snapshot()).unhandled == {"photos::crop": 1}
            assert (await onlooker.snapshot()).unhandled == {"photos::crop": 1}
            (hold,) = (await onlooker.explain(1)).holds
            assert hold.reason == "no_handler"


def test_status_and_ls_mark_them(tmp_path: Path, here: Here) -> None:
    store = tmp_path / "tasks.db"
    with blocking.Scheduler(store, domains=[photos("resize")]) as scheduler:
        old = [Submission("photos::old", {}, check=False), Submission("photos::old", {}, check=False, run_after=3600)]
        scheduler.submit_many([*old, Submission("photos::resize", {})])
    assert "photos::old (2 waiting)" in here("status", store)
    assert here.answer("status", store)["unhandled"] == {"photos::old": 2}
    listed = here("ls", store)
    marked = {line.split()[2] for line in listed.splitlines() if "(no handler)" in line}
    assert marked == {"photos::old"}
    assert {task["type"]: task["no_handler"] for task in here.answer("ls", store)} == {
        "photos::old": True,
        "photos::resize": False,
    }


def test_ls_marks_no_ended_task(tmp_path: Path, here: Here) -> None:
    store = tmp_path / "tasks.db"
    with blocking.Scheduler(store, domains=[photos("resize")]) as scheduler:
        scheduler.submit(Submission("photos::old", {}, check=False)).cancel()
    (ended,) = here.answer("ls", store, "--history")
    assert (ended["type"], "no_handler" in ended) == ("photos::old", False)
