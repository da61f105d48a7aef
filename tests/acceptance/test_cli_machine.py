"""The machine on the command line: pressure by source, and the declared and measured IO of tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskmill import Context, Domain, GiveUp, IoBudget, Priority, Scheduler, Submission, blocking
from tests.acceptance.command_line import Here
from tests.both_engines import name_of

pytestmark = pytest.mark.timeout(40)

work = Domain("work")


@work.task
async def tidy() -> None: ...


class Source:
    """A source of pressure that never changes."""

    def __init__(self, name: str, value: float) -> None:
        self.name, self.value = name, value

    def pressure(self) -> float:
        return self.value


def test_pressure_that_tasks_wait_for_is_seen_by_other_schedulers(here: Here, tmp_path: Path) -> None:
    file, sources = tmp_path / "tasks.db", [Source("memory", 0.4), Source("cpu", 0.62)]
    with blocking.Scheduler(file, domains=[work], pressure=sources) as scheduler, scheduler.running():
        while not here.answer("status", file)["pressure"]:
            pass  # Readings are stored a moment after the start.
        assert here("status", file).splitlines()[2] == (
            "pressure    cpu 0.62, memory 0.40 when last recorded; less urgent tasks wait for it to fall"
        )
        assert "pressure: cpu 0.62, memory 0.40 when" in here("groups", file)
        for command in ("status", "groups"):
            assert here.answer(command, file)["pressure"] == {"cpu": 0.62, "memory": 0.4}
        held = scheduler.submit(Submission("work::tidy", {}, priority=Priority.LOW))
        with here.following("watch", file, held.id, "--json", code=1) as watching:
            told = json.loads(watching.heard('"pressure"'))
            held.cancel()
        assert told["holds"][0]["reason"] == "pressure"
        assert "the pressure is 0.62 (cpu)" in told["why"]


def test_without_pressure_nothing_is_said_of_it(here: Here, template: Path) -> None:
    for command in ("status", "groups"):
        assert "pressure" not in here(command, template).replace(str(template), "")
        assert here.answer(command, template)["pressure"] == {}


# What tasks move


@pytest.fixture
async def moved(tmp_path: Path) -> Path:
    """Task 1 has moved its budget and more; task 2 waits; task 3 has failed."""
    domain = Domain("sync")
    file = tmp_path / "tasks.db"

    @domain.task(io=IoBudget(disk_read=5_000_000, net_tx=2_000_000))
    async def send(ctx: Context) -> None:
        ctx.progress.bytes(1000)
        ctx.progress.advance(1000)
        ctx.record_io(disk_read=5_000_000, net_tx=2_500_000)

    @domain.task
    async def lose() -> None:
        raise GiveUp("gone")

    async with Scheduler(file, domains=[domain]) as scheduler:
        await send.submit()
        await send.options(run_after=3600).submit()
        await lose.submit()
        await scheduler.run_until_idle()
    return file


def test_show_tells_what_a_task_was_to_move_and_has_moved(here: Here, moved: Path) -> None:
    ended = here("show", moved, 1)
    assert "budget     5.0 MB read, 2.0 MB sent\n" in ended
    assert "moved      5.0 MB read, 2.5 MB sent\n" in ended
    assert " left" not in ended, "a task that has ended has no time left"
    waiting = here("show", moved, 2)
    assert "budget     5.0 MB read, 2.0 MB sent\n" in waiting
    assert "moved" not in waiting
    assert "budget" not in here("show", moved, 3)
    assert here.answer("show", moved, 1)["actual_io"]["net_tx"] == 2_500_000


def test_stats_tell_how_a_type_ends_how_long_it_takes_and_what_it_moves(here: Here, moved: Path) -> None:
    headings, send, lose = (line.split() for line in here("stats", moved, "sync::send", "sync::lose").splitlines())
    assert headings == ["type", "ended", "completed", "failed", "takes", "moves"]
    assert send[:4] == ["sync::send", "1", "1", "0"]
    assert send[6:] == ["5.0", "MB", "read,", "2.5", "MB", "sent"]
    assert lose[:5] == ["sync::lose", "1", "0", "1", "(100%)"]
    document = here.answer("stats", moved, "sync::send")
    assert document["sync::send"]["avg_io"] == {
        "disk_read": 5_000_000,
        "disk_write": 0,
        "net_rx": 0,
        "net_tx": 2_500_000,
    }


def test_stats_refuse_what_has_never_ended(here: Here, moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no task of the type 'sync::sned' has ended" in here.refusal("stats", moved, "sync::sned", code=1)
    assert here("stats", moved) == here("stats", moved, "sync::lose", "sync::send"), "without a type, every type"
    assert "TASKMILL_STORE" in here.refusal("stats", "sync::send", code=2)
    monkeypatch.setenv("TASKMILL_STORE", name_of(moved))
    assert "sync::send" in here("stats", "sync::send")
