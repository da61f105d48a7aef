"""Tasks without a handler on any node are marked: in snapshots, in ``taskmill status`` and in ``taskmill ls``."""

from __future__ import annotations

from pathlib import Path

from taskmill import Domain, Scheduler, Submission, blocking
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
        scheduler.submit_many([Submission("photos::old", {}, check=False), Submission("photos::resize", {})])
    assert "photos::old (1 waiting)" in here("status", store)
    assert here.answer("status", store)["unhandled"] == {"photos::old": 1}
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
