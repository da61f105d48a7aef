"""Following one task from the command line, whichever scheduler runs it, until it ends."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taskmill import Context, Domain, GiveUp, Retention, Scheduler, Submission, blocking
from taskmill.cli.output import Refusal
from taskmill.cli.views.polling import Pace, TaskPoller
from tests.acceptance.command_line import Here
from tests.acceptance.terminal import CURSOR_IS_BACK, heard, needs_a_terminal, on_terminal, started
from tests.both_engines import name_of

pytestmark = pytest.mark.timeout(40)

work = Domain("work")


async def opened(gate: str) -> None:
    while not Path(gate).exists():
        await asyncio.sleep(0.02)


@work.task
async def send(ctx: Context, gate: str) -> str:
    ctx.progress.bytes(1000)
    ctx.progress.advance(400, "sending")
    await opened(gate)
    ctx.progress.advance(600)
    return "sent"


@work.task
async def lose(ctx: Context, gate: str) -> None:
    await opened(gate)
    raise GiveUp("it is gone")


@work.task
async def album(ctx: Context, gates: list[str]) -> None:
    await ctx.spawn_many(send.options(label=Path(gate).name).prepare(gate) for gate in gates)


@album.finalize
async def bound(ctx: Context, gates: list[str]) -> int:
    return len(ctx.children)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store in ``tasks.db`` that knows the task types; no scheduler dispatches it."""
    with scheduler(tmp_path):
        pass
    return tmp_path


@pytest.fixture
def dispatching(tmp_path: Path) -> Generator[Path]:
    """A folder with a store in ``tasks.db``, and a scheduler that dispatches it."""
    with scheduler(tmp_path):
        yield tmp_path


@contextmanager
def scheduler(folder: Path) -> Generator[None]:
    store = folder / "tasks.db"
    with blocking.Scheduler(store, domains=[work], max_concurrency=4, shutdown_grace=0.1) as running, running.running():
        yield


def submit(folder: Path, type: str, **payload: object) -> int:
    async def submit() -> int:
        async with Scheduler(folder / "tasks.db") as scheduler:
            return (await scheduler.submit(Submission(f"work::{type}", payload))).id

    return asyncio.run(submit())


# A task that has ended


def test_a_task_that_has_ended_is_reported_at_once_and_the_exit_code_says_how(here: Here, template: Path) -> None:
    assert "task 1 sync::send the first: completed in " in here("watch", template, 1)
    assert "task 2 sync::lose: failed after " in here("watch", template, 2, code=1)
    broken = here("watch", template, 3, code=1)
    assert "dead letter after" in broken
    assert "ValueError: first line" in broken
    assert "second line" not in broken


def test_a_program_reads_how_a_task_ended(here: Here, template: Path) -> None:
    (line,) = here("watch", template, 1, "--json").splitlines()
    told = json.loads(line)
    assert (told["id"], told["status"], told["ending"]) == (1, None, "completed")
    assert told["result"] == {"size": 5}
    assert told["progress"]["done_bytes"] == 1000
    assert told["why"] is None
    assert json.loads(here("watch", template, 2, "--json", code=1))["error"].endswith("b.jpg is gone")


def test_wrong_ids_to_watch_are_refused(here: Here, template: Path) -> None:
    assert here.refusal("watch", template, 99, code=1) == "no task has the id 99"
    assert "one id" in here.refusal("watch", template, 1, 2, code=2)
    assert "whole number" in here.refusal("watch", template, "four", code=2)


async def test_a_task_that_leaves_history_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    domain = Domain("work")

    @domain.task
    async def wait() -> None: ...

    async with Scheduler(tmp_path / "tasks.db", domains=[domain]) as scheduler:
        handle = await wait.submit()
        poller = TaskPoller(scheduler, handle.id)
        first = await poller.read()
        await handle.cancel()
        await scheduler.prune(Retention(max_count=0))
        with pytest.raises(Refusal, match="is no longer in history"):
            await poller.read()
    assert first.why is not None
    assert first.reason.startswith(f"Task {handle.id} (work::wait) is pending")


# A task that is run by another scheduler


def test_lines_appear_when_something_changes_and_end_with_the_task(here: Here, dispatching: Path) -> None:
    gate = dispatching / "gate"
    id = submit(dispatching, "send", gate=str(gate))
    with here.following("watch", dispatching / "tasks.db", id) as watching:
        line = watching.heard("sending")
        assert "work::send: running, 40%, 400 B of 1.0 kB" in line
        gate.touch()
        lines = watching.rest()
    assert f"task {id} work::send: completed in " in lines[-1]
    assert "\x1b" not in "".join(lines)
    # Between this line and the end only the last bytes may be reported.
    assert len(lines) <= 2


def test_a_task_that_waits_says_why_and_an_interrupt_leaves_quietly(folder: Path) -> None:
    id = submit(folder, "send", gate="gate")
    with started(folder, "watch", folder / "tasks.db", id) as watching:
        line = heard(watching, f"Task {id} (work::send) is pending")
        assert "no scheduler runs the tasks of this store now" in line
        watching.send_signal(signal.SIGINT)
        rest, wrong = watching.communicate(timeout=30)
    assert (watching.returncode, rest, wrong) == (130, "", "")


def test_a_program_follows_a_parent_through_its_children(here: Here, dispatching: Path) -> None:
    gates = [dispatching / name for name in "abc"]
    id = submit(dispatching, "album", gates=[*map(str, gates)])
    with here.following("watch", dispatching / "tasks.db", id, "--json") as watching:
        watching.heard('"status":"waiting"', '"children":{"running":3}')
        gates[0].touch()
        fraction = 0.0
        while fraction != pytest.approx(1.8 / 3, abs=0.01):
            # The task is read a moment before its children are counted; the next line has both.
            fraction = json.loads(watching.heard('"running":2,"completed":1'))["progress"]["fraction"]
        for gate in gates:
            gate.touch()
        ended = json.loads(watching.heard('"ending":"completed"'))
    assert ended["children"] == {"completed": 3}
    assert ended["result"] == 3


def test_a_task_that_fails_meanwhile_gives_another_exit_code(here: Here, dispatching: Path) -> None:
    gate = dispatching / "gate"
    id = submit(dispatching, "lose", gate=str(gate))
    with here.following("watch", dispatching / "tasks.db", id, code=1) as watching:
        watching.heard("running")
        gate.touch()
        assert "failed after" in watching.heard("it is gone")


# On a terminal


@needs_a_terminal
def test_on_a_terminal_the_last_picture_stays(dispatching: Path) -> None:
    gates = [dispatching / name for name in "ab"]
    id = submit(dispatching, "album", gates=[*map(str, gates)])
    with on_terminal(dispatching, "watch", dispatching / "tasks.db", id) as terminal:
        for words in ("children: 2 running", "40%", "waiting"):
            terminal.until(words)
        assert "━" in terminal.seen
        for gate in gates:
            gate.touch()
        seen = terminal.rest()
        assert terminal.process.wait(30) == 0
        assert terminal.process.stderr is not None
        assert terminal.process.stderr.read() == ""
    last = seen.rpartition("\x1b[2K")[2]
    assert "completed in " in seen[seen.rindex("task ") :]
    assert "children: 2 completed" in last
    assert CURSOR_IS_BACK in seen
    assert "\x1b[?1049h" not in seen, "what was on the terminal before stays"


@needs_a_terminal
def test_an_interrupt_on_a_terminal_gives_the_cursor_back(dispatching: Path) -> None:
    id = submit(dispatching, "send", gate=str(dispatching / "never"))
    with on_terminal(dispatching, "watch", dispatching / "tasks.db", id) as terminal:
        terminal.until("running for")
        terminal.process.send_signal(signal.SIGINT)
        seen = terminal.rest()
        assert terminal.process.wait(30) == 130
        assert terminal.process.stderr is not None
        assert terminal.process.stderr.read() == ""
    assert CURSOR_IS_BACK in seen


@needs_a_terminal
def test_plain_lines_can_be_had_on_a_terminal(here: Here, template: Path) -> None:
    seen = here.on_terminal("watch", template, 1, "--plain")
    assert "completed in" in seen
    assert "\x1b" not in seen


# The pace


@pytest.mark.one_engine("no store is opened")
def test_looks_that_are_dear_are_rare() -> None:
    now = 0.0
    pace = Pace(0.5, 0.1, clock=lambda: now)
    assert pace.is_due
    with pace.read():
        now += 0.001
    assert not pace.is_due
    now = 0.5
    assert pace.is_due
    with pace.read():
        now += 7
    now += 62
    assert not pace.is_due
    now += 1.01
    assert pace.is_due


def test_watch_may_find_its_file_in_the_environment(
    here: Here, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKMILL_STORE", name_of(template))
    assert "completed" in here("watch", 1)
