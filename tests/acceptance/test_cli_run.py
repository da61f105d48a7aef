"""``taskmill run`` dispatches beside other processes until a signal arrives."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from taskmill import Ending, HistoryRecord, Scheduler, Status, Submission, blocking
from tests.acceptance.command_line import Here, read_terminal, taskmill
from tests.acceptance.terminal import heard, needs_a_terminal, started, write_app
from tests.both_engines import Engine

pytestmark = pytest.mark.timeout(40)

MODULE = """
import asyncio, time
from taskmill import Context, Domain, Scheduler

work = Domain("work")

@work.task
async def add(a: int, b: int) -> int:
    return a + b

@work.task
async def wait_long(ctx: Context) -> None:
    await asyncio.Event().wait()

@wait_long.on_cancel
async def cleaned(ctx: Context) -> None:
    print("cleaned up", flush=True)

@work.task
async def ignore_stops() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        time.sleep(60)

scheduler = Scheduler("tasks.db", domains=[work], shutdown_grace=0.1)
number = 7
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    write_app(tmp_path, MODULE)
    return tmp_path


def running(app: Path, *options: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(app, "run", "app:scheduler", *options)


async def _submit(app: Path, *submissions: Submission) -> list[int]:
    async with Scheduler(app / "tasks.db") as scheduler:
        return [handle.id for handle in await scheduler.submit_many(submissions)]


async def _record(app: Path, id: int) -> Any:
    async with Scheduler(app / "tasks.db") as scheduler:
        return await scheduler.get(id)


def submit(app: Path, *submissions: Submission) -> list[int]:
    return asyncio.run(_submit(app, *submissions))


def test_run_works_off_what_other_processes_submit_and_stops_on_sigterm(here: Here, app: Path) -> None:
    with running(app, "--json") as process:
        heard(process, '"started"')
        added, waiting = submit(app, Submission("work::add", {"a": 2, "b": 3}), Submission("work::wait_long", {}))
        completed = json.loads(heard(process, "TaskCompleted"))
        assert completed["task_id"] == added
        assert completed["result"] == 5

        assert here.answer("status", app / "tasks.db")["dispatching"] is True
        (dispatched,) = re.findall("^dispatcher.*$", here("status", app / "tasks.db"), re.MULTILINE)
        assert str(process.pid) in dispatched

        process.send_signal(signal.SIGTERM)
        assert json.loads(heard(process, '"stopped"'))["ended"] == {"completed": 1}
        assert process.wait(30) == 0
    done = asyncio.run(_record(app, added))
    assert isinstance(done, HistoryRecord)
    assert done.result == 5
    interrupted = asyncio.run(_record(app, waiting))
    assert interrupted.status is Status.PENDING
    assert interrupted.retries == 0


def test_the_first_line_names_the_store_and_counts_types_and_slots(here: Here, app: Path, engine: Engine) -> None:
    with running(app) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        store = here.answer("doctor", app / "tasks.db")["facts"]["store"]
    assert first == (
        f"app:scheduler is dispatching {store}: 3 task types, 8 slots (process {process.pid}); Ctrl-C stops it\n"
    )
    assert store.startswith("postgresql://") if engine.is_postgres else store.endswith("tasks.db")
    submit(app, Submission("work::add", {"a": 2, "b": 3}))
    with running(app, "--json") as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert json.loads(heard(process, "TaskCompleted"))["result"] == 5
    assert started["event"] == "started"
    assert (started["store"], started["types"], started["slots"]) == (store, 3, 8)


@pytest.mark.one_engine("a file has one dispatcher, a database has many")
def test_a_second_one_learns_which_process_dispatches_the_file(app: Path) -> None:
    with blocking.Scheduler(app / "tasks.db") as first, first.running():
        second = taskmill("run", "app:scheduler", cwd=app)
    assert second.returncode == 1
    assert f"process {os.getpid()}" in second.stderr
    assert second.stderr.endswith("to wait for that, use --standby\n")
    assert "Traceback" not in second.stderr


def test_cancel_stops_a_task_that_runs_in_another_process(here: Here, app: Path) -> None:
    with running(app, "--verbose") as process:
        heard(process, "app:scheduler is dispatching")
        (waiting,) = submit(app, Submission("work::wait_long", {}))
        heard(process, "dispatched")
        assert here.answer("ls", app / "tasks.db", "--status", "running")[0]["id"] == waiting
        said = here("cancel", app / "tasks.db", waiting)
        # The other process may have stopped the task before this one reads it again.
        asked, over = "is running and has been asked to stop", "is cancelled"
        assert said in (f"task {waiting} {asked}\n", f"task {waiting} {over}\n")
        heard(process, "cleaned up")
        heard(process, "cancelled")
        process.send_signal(signal.SIGINT)
        heard(process, "1 cancelled")
        assert process.wait(30) == 0
    assert asyncio.run(_record(app, waiting)).ending is Ending.CANCELLED


def test_run_says_what_is_paused_and_how_shares_change(here: Here, app: Path) -> None:
    submit(app)
    here("groups", app / "tasks.db", "pause", "a")
    here("groups", app / "tasks.db", "set", "b", "--weight", 3)
    with running(app, "--verbose") as process:
        heard(process, "is dispatching")
        assert heard(process, "paused:") == "paused: group a\n"
        submit(app, *(Submission("work::wait_long", {}, group=name) for name in "ab"))
        assert "group b: share 1 slot, was 0" in heard(process, "share")
        here("groups", app / "tasks.db", "resume", "a")
        assert "group a: share 1 slot, was 0" in heard(process, "share")


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_cancels_running_tasks_and_they_count_no_crash(app: Path, second: signal.Signals) -> None:
    be_patient(app)
    with running(app, "--verbose") as process:
        heard(process, "is dispatching")
        (waiting,) = submit(app, Submission("work::wait_long", {}))
        heard(process, "dispatched")
        process.send_signal(signal.SIGINT)
        heard(process, "stopping")
        process.send_signal(second)
        heard(process, f"{second.name}: cancelling running tasks")
        assert process.wait(30) == 0
    record = asyncio.run(_record(app, waiting))
    assert (record.status, record.retries, record.errors) == (Status.PENDING, 0, ())


def be_patient(app: Path) -> None:
    source = (app / "app.py").read_text()
    (app / "app.py").write_text(source.replace("shutdown_grace=0.1", "shutdown_grace=600"))


def test_a_third_signal_exits_at_once(app: Path, engine: Engine) -> None:
    be_patient(app)
    with running(app, "--verbose") as process:
        heard(process, "is dispatching")
        (waiting,) = submit(app, Submission("work::ignore_stops", {}))
        heard(process, "dispatched")
        for expected in ("stopping", "cancelling"):
            process.send_signal(signal.SIGTERM)
            heard(process, expected)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    if not engine.is_postgres:
        # Opening the file changes nothing; the next dispatcher runs the task again. Nodes wait for the lease to end.
        assert asyncio.run(_record(app, waiting)).status is Status.RUNNING
        with running(app, "--verbose") as again:
            heard(again, "dispatched")
            assert asyncio.run(_record(app, waiting)).attempt == 2


@pytest.mark.parametrize("option", ["--verbose", "--json"])
def test_a_signal_stops_it_also_when_the_reader_of_its_output_has_ended(app: Path, option: str) -> None:
    with running(app, option) as process:
        heard(process, "app:scheduler")
        assert process.stdout is not None
        process.stdout.close()
        (added,) = submit(app, Submission("work::add", {"a": 2, "b": 3}))
        with blocking.Scheduler(app / "tasks.db") as onlooker:
            onlooker.wait(added, timeout=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@needs_a_terminal
@pytest.mark.parametrize("options", [[], ["--plain"]])
def test_a_signal_stops_it_also_when_its_terminal_was_closed(app: Path, options: list[str]) -> None:
    end, other = os.openpty()
    with started(app, "run", "app:scheduler", *options, stdin=other, stdout=other) as process:
        os.close(other)
        seen = ""
        while "is dispatching" not in seen:
            seen += read_terminal(end)
        os.close(end)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


BLOCKING_MODULE = """
from taskmill import Domain
from taskmill.blocking import Scheduler

work = Domain("work")

@work.task
def double(n: int) -> int:
    return 2 * n

@work.task
def twice_double(n: int) -> int:
    return 2 * scheduler.submit(double.prepare(n)).result()

scheduler = Scheduler("tasks.db", domains=[work])

def make_scheduler():
    return scheduler
"""


@pytest.mark.parametrize("name", ["scheduler", "make_scheduler"])
def test_run_takes_a_blocking_scheduler_and_a_factory(tmp_path: Path, name: str) -> None:
    write_app(tmp_path, BLOCKING_MODULE)
    with started(tmp_path, "run", f"app:{name}", "--json") as process:
        heard(process, '"started"')
        (id,) = submit(tmp_path, Submission("work::twice_double", {"n": 3}))
        while (completed := json.loads(heard(process, "TaskCompleted")))["task_id"] != id:
            continue
        assert completed["result"] == 12
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.one_engine("a file has one dispatcher, a database has many")
def test_a_standby_takes_over(app: Path) -> None:
    with running(app) as first:
        heard(first, "is dispatching")
        with running(app, "--standby") as second:
            assert "tasks.db" in heard(second, "is standing by")
            first.send_signal(signal.SIGTERM)
            assert first.wait(30) == 0
            heard(second, "is dispatching")
            second.send_signal(signal.SIGTERM)
            assert second.wait(30) == 0


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("app", "module:attribute"),
        ("app:", "module:attribute"),
        (":scheduler", "module:attribute"),
        ("app/tasks.py:scheduler", "module:attribute"),
        ("nowhere:scheduler", "there is no module nowhere"),
        ("app.inner:scheduler", "there is no module app.inner"),
        ("app:missing", "module app has no missing"),
        ("app:number", "app:number is of type int, not a Scheduler"),
        ("app:Context", "app:Context is a class, not a Scheduler"),
        ("app:work", "app:work is a domain, not a Scheduler"),
        ("app:add", "app:add is a task, not a Scheduler; name a Scheduler or a function that returns one"),
        ("made:seven", "what made:seven() returned is of type int, not a Scheduler"),
        ("made:later", "what made:later() returned is of type coroutine, not a Scheduler"),
        ("made:demanding", "made:demanding needs arguments (name); name a Scheduler or a function"),
        ("made:confused", "calling made:confused() failed: TypeError"),
        ("needy:scheduler", "importing needy failed: it needs the module surely_not_there"),
        ("broken:scheduler", "importing broken failed: ZeroDivisionError"),
    ],
)
@pytest.mark.one_engine("no store is opened")
def test_run_says_what_is_wrong_with_its_target(
    here: Here, app: Path, target: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (app / "needy.py").write_text("import surely_not_there")
    (app / "broken.py").write_text("1 / 0")
    (app / "made.py").write_text(
        "def seven(): return 7\nasync def later(): return 7\ndef demanding(name): return name\n"
        "def confused(): return demanding()\n"
    )
    monkeypatch.chdir(app)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    done = here.run("run", target)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.wrong.splitlines()[-1]


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize("target", ["handlers:touch", "handlers:work", "handlers:Callable", "handlers:wrapped"])
def test_run_calls_no_handler_and_prints_one_sentence(
    here: Here, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "handlers.py").write_text(
        "from functools import wraps\n"
        "from pathlib import Path\n"
        "from taskmill import Domain\n"
        "work = Domain('work')\n"
        "@work.task\n"
        "def touch(): Path('called').touch()\n"
        "class Callable:\n"
        "    def __call__(self): Path('called').touch()\n"
        "Callable = Callable()\n"
        "@wraps(lambda: None)\n"
        "def wrapped(needed): Path('called').touch()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert here.refusal("run", target, code=2)
    assert not (tmp_path / "called").exists()


@pytest.mark.one_engine("no store is opened")
@pytest.mark.parametrize(
    ("code", "last"),
    [("def load():\n    1 / 0\nload()", "ZeroDivisionError"), ("import nothing_here", "ModuleNotFound")],
)
def test_a_module_that_fails_to_import_shows_its_traceback_from_its_first_frame(
    tmp_path: Path, code: str, last: str
) -> None:
    (tmp_path / "bad.py").write_text(code)
    done = taskmill("run", "bad:scheduler", cwd=tmp_path)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{tmp_path / "bad.py"}", line ')
    assert "importlib" not in done.stderr
    assert "taskmill/cli" not in done.stderr
    assert lines[-2].startswith(last)
    assert lines[-1].startswith("taskmill: importing bad failed: ")


def test_after_the_first_signal_run_says_how_many_tasks_drain_and_how_long(app: Path) -> None:
    source = (app / "app.py").read_text()
    (app / "app.py").write_text(source.replace("shutdown_grace=0.1", "shutdown_grace=2"))
    with running(app) as process:
        heard(process, "is dispatching")
        submit(app, *(Submission("work::wait_long", {}) for _ in range(3)))
        assert process.stdout is not None
        with blocking.Scheduler(app / "tasks.db") as onlooker:
            while onlooker.count(status=Status.RUNNING) < 3:
                onlooker.snapshot()
        process.send_signal(signal.SIGINT)
        assert "running tasks have 2.0 s to finish" in heard(process, "stopping")
        assert heard(process, "draining") == "draining 3 tasks, 2 s left\n"
        heard(process, "has stopped")
        assert process.wait(30) == 0
