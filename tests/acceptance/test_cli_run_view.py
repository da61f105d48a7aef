"""``taskmill run`` on a terminal: a view of running and waiting tasks, below messages and log lines."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import pytest
from rich.console import Console

from taskmill import (
    Context,
    Domain,
    Priority,
    Scheduler,
    Submission,
)
from taskmill.cli.commands import run
from taskmill.cli.views.live import LiveView
from taskmill.cli.views.polling import Pace, QueuePoller
from taskmill.cli.views.run import RunFrame, RunState
from taskmill.cli.views.run_lines import RunLines
from taskmill.testing import ManualClock
from tests.acceptance.terminal import CURSOR_IS_BACK, needs_a_terminal, on_terminal, write_app

pytestmark = pytest.mark.timeout(40)

MODULE = """
import asyncio, logging, sys
from pathlib import Path
from taskmill import Context, Domain, GiveUp, Scheduler

logging.basicConfig(format="logged: %(message)s", stream=sys.stdout, level=logging.INFO)
work = Domain("work")

async def opened(gate: str) -> None:
    while not Path(gate).exists():
        await asyncio.sleep(0.02)

@work.task
async def send(ctx: Context, gate: str) -> None:
    ctx.progress.bytes(1000)
    ctx.progress.advance(400)
    await opened(gate)

@work.task
async def speak(ctx: Context, gate: str) -> None:
    await opened(gate)
    print("printed by a handler")
    raise GiveUp("it is gone")

class Cpu:
    name = "cpu"
    def pressure(self) -> float:
        return 0.62

scheduler = Scheduler("tasks.db", domains=[work], max_concurrency=3, shutdown_grace=0.1, pressure=[Cpu()])
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    write_app(tmp_path, MODULE)
    return tmp_path


def submit(app: Path, *submissions: Submission) -> None:
    async def submit() -> None:
        async with Scheduler(app / "tasks.db") as scheduler:
            await scheduler.submit_many(submissions)

    asyncio.run(submit())


@needs_a_terminal
def test_a_terminal_shows_what_runs_and_what_waits_below_what_is_said(app: Path) -> None:
    with on_terminal(app, "run", "app:scheduler") as terminal:
        terminal.until("0 of 3 slots at work, nothing waits")
        submit(
            app,
            Submission("work::send", {"gate": "a"}, label="photo.jpg"),
            Submission("work::speak", {"gate": "b"}),
            Submission("work::send", {"gate": "a"}, priority=Priority.LOW),
        )
        terminal.until("2 of 3 slots at work, 1 pending")
        terminal.until(" 40% of 1.0 kB")
        terminal.until("the pressure is 0.62 (cpu), and tasks of priority 192 or less urgent wait until")
        assert "photo.jpg" in terminal.seen
        assert "pressure  cpu 0.62" in terminal.seen
        (app / "b").touch()
        said = terminal.until("ended here: 1 failed")
        for line in ("printed by a handler", "logged: task 2 (work::speak) attempt 1 raised GiveUp: it is gone"):
            assert f"\n{line}\r\n" in said.replace("\x1b[2K", "\n"), "on a line of its own, above the view"
        terminal.process.send_signal(signal.SIGTERM)
        seen = terminal.rest()
        assert terminal.process.wait(30) == 0
    *_, after = seen.partition("SIGTERM: stopping")
    assert "app:scheduler has stopped; ended here: 1 failed" in after
    assert "at work" not in after.rpartition("\x1b[2K")[2], "the view is gone"
    assert CURSOR_IS_BACK in after
    assert "\x1b[?1049h" not in seen


@needs_a_terminal
def test_a_second_signal_ends_the_view_and_leaves_the_cursor_behind(app: Path) -> None:
    write_app(app, MODULE.replace("shutdown_grace=0.1", "shutdown_grace=600"))
    with on_terminal(app, "run", "app:scheduler") as terminal:
        terminal.until("0 of 3 slots at work")
        submit(app, Submission("work::send", {"gate": "never"}))
        terminal.until("1 of 3 slots at work")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.until("stopping; running tasks have 10 min to finish")
        # The view counts down.
        terminal.until("draining 1 task, 599 s left")
        terminal.until("draining 1 task, 598 s left")
        terminal.until("Ctrl-C again cancels them")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.until("cancelling running tasks; they run again later")
        assert CURSOR_IS_BACK in terminal.rest()
        assert terminal.process.wait(30) == 0


@needs_a_terminal
def test_plain_is_without_the_view(app: Path) -> None:
    with on_terminal(app, "run", "app:scheduler", "--plain", "--verbose") as terminal:
        terminal.until("is dispatching")
        submit(app, Submission("work::send", {"gate": "a"}))
        terminal.until("40%, 400 B of 1.0 kB")
        terminal.process.send_signal(signal.SIGTERM)
        seen = terminal.rest()
    assert "\x1b" not in seen
    assert "at work" not in seen


@pytest.mark.one_engine("no store is opened")
def test_cancelling_counts_all_tasks_whose_time_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    lines = RunLines(verbose=False)
    for count, seconds in ((4, 0.3), (3, 0.02), (2, 0.0), (1, 0.0)):
        lines.draining(count, seconds)
    assert capsys.readouterr().out.splitlines()[-1] == "cancelling 3 tasks"
    assert lines.drain == "cancelling 3 tasks"


# What waits and why


class Pressed:
    """A source of pressure whose value the test sets."""

    name = "cpu"

    def __init__(self) -> None:
        self.value = 0.0

    def pressure(self) -> float:
        return self.value


async def test_a_task_held_by_pressure_is_explained_even_if_others_wait_longer() -> None:
    clock, cpu = ManualClock(), Pressed()
    work = Domain("work")

    @work.task
    async def run_long(ctx: Context) -> None:
        await asyncio.Event().wait()

    async with Scheduler(domains=[work], max_concurrency=1, clock=clock, pressure=[cpu], shutdown_grace=0) as scheduler:
        await scheduler.submit_many(run_long.prepare() for _ in range(2))
        low = await run_long.options(priority=Priority.LOW).submit()
        async with scheduler.running():
            await clock.advance(1)
            calm = await QueuePoller(scheduler).read()
            cpu.value = 0.6
            await clock.advance(2)
            pressed = await QueuePoller(scheduler).read()
    assert dict(calm.lines())["waiting"] == "task 2: the only slot is taken"
    said = dict(pressed.lines())
    assert said["pressure"] == "cpu 0.60"
    assert said["waiting"].startswith(f"task {low.id}: the pressure is 0.60 (cpu), and tasks of priority 192")
    assert pressed.waiting_counts == "2 pending"
    assert pressed.running_count == 1


async def test_a_reason_is_said_only_while_it_holds() -> None:
    clock, work = ManualClock(), Domain("work")
    gates = [asyncio.Event() for _ in range(3)]

    @work.task
    async def wait(n: int) -> None:
        await gates[n].wait()

    async with Scheduler(domains=[work], max_concurrency=1, clock=clock, shutdown_grace=0) as scheduler:
        await scheduler.submit_many(wait.prepare(n) for n in range(3))
        async with scheduler.running():
            await clock.advance(1)
            poller = QueuePoller(scheduler)
            # The explanation of one moment is kept for the next states.
            poller._pace = Pace(1e9, 1.0)
            first = await poller.read()
            again = await poller.read()
            gates[0].set()
            await clock.advance(1)
            started = await poller.read()
    assert dict(first.lines())["waiting"] == "task 2: the only slot is taken"
    assert again.why is first.why
    assert [one.id for one in started.running] == [2]
    assert "waiting" not in dict(started.lines())


async def test_nothing_is_said_to_wait_while_tasks_drain() -> None:
    clock, work = ManualClock(), Domain("work")

    @work.task
    async def wait() -> None:
        await asyncio.Event().wait()

    async with Scheduler(domains=[work], max_concurrency=1, clock=clock, shutdown_grace=0) as scheduler:
        await scheduler.submit_many(wait.prepare() for _ in range(2))
        async with scheduler.running():
            await clock.advance(1)
            state = await QueuePoller(scheduler).read()
    frame, console = RunFrame("app:scheduler"), Console(width=80, height=24, color_system=None)
    with console.capture() as captured:
        console.print(frame(RunState(state, {}), console))
        console.print(frame(RunState(state, {}, "draining 1 task, 9 s left"), console))
    working, draining = captured.get().split("─" * 80)[1:]
    assert "waiting   task 2: the only slot is taken" in working
    assert "waiting" not in draining
    assert "draining 1 task" in draining


async def test_in_a_long_queue_no_reasons_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskmill.cli.views.polling.SHORT_QUEUE", 2)
    work = Domain("work")

    @work.task
    async def wait() -> None: ...

    async with Scheduler(domains=[work]) as scheduler:
        await scheduler.submit_many(wait.prepare() for _ in range(2))
        short = await QueuePoller(scheduler).read()
        await scheduler.group("").pause()
        await wait.options(group="a").submit()
        await wait.options(group="a").submit()
        await wait.options(group="a").submit()
        long = await QueuePoller(scheduler).read()
    assert "no scheduler runs the tasks" in dict(short.lines())["waiting"]
    assert dict(long.lines()) == {"paused": "tasks without a group"}


async def test_a_terminal_that_takes_nothing_does_not_stop_the_work() -> None:
    drawing, thawed = threading.Event(), threading.Event()
    work = Domain("work")

    @work.task
    async def answer() -> int:
        return 42

    class FrozenView(LiveView[RunState]):
        def draw(self, state: RunState) -> None:
            drawing.set()
            thawed.wait()

    async with Scheduler(domains=[work]) as scheduler:
        showing = asyncio.create_task(
            run._show(scheduler, RunLines(verbose=False), FrozenView(RunFrame("app:scheduler")))
        )
        try:
            await asyncio.to_thread(drawing.wait)
            handle = await answer.submit()
            await scheduler.run_until_idle()
            result = await handle.result()
        finally:
            thawed.set()
            showing.cancel()
    assert result == 42
