"""The command line, as its users meet it: each command in a process of its own.

Starting a process costs a third of a second, so the many small variations of one command call ``main`` instead.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from taskmill import Context, Domain, Ending, GiveUp, HistoryRecord, Retry, Scheduler, Status, Submission
from taskmill.cli import main

SOURCE = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
ENVIRONMENT.pop("TASKMILL_STORE", None)

pytestmark = pytest.mark.timeout(40)


def taskmill(
    *arguments: object, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "taskmill", *map(str, arguments)],
        check=False,
        cwd=cwd,
        env={**ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


def answer(*arguments: object, code: int = 0) -> Any:
    """The JSON document a command prints."""
    done = taskmill(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


class Here:
    """Commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        found, out, wrong = self._call(arguments)
        assert found == code, wrong
        return out

    def answer(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def refusal(self, *arguments: object, code: int) -> str:
        """The one sentence a command refuses with."""
        found, out, wrong = self._call(arguments)
        assert found == code, wrong
        assert out == ""
        assert wrong.startswith("taskmill: ")
        assert wrong.count("\n") == 1, wrong
        return wrong.removeprefix("taskmill: ").strip()

    def _call(self, arguments: Sequence[object]) -> tuple[int, str, str]:
        try:
            code = main([*map(str, arguments)])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        said = self._capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.delenv("TASKMILL_STORE", raising=False)
    return Here(capsys)


# A file with something of everything in it


async def _fill(file: Path) -> None:
    sync = Domain("sync", group="s3://prod")

    @sync.task(tags={"user": "ann"})
    async def send(ctx: Context, path: str) -> dict[str, int]:
        ctx.progress.bytes(1000)
        ctx.progress.advance(1000, "all sent")
        return {"size": len(path)}

    @sync.task(retry=Retry.constant(1, delay=0))
    async def lose(path: str) -> None:
        raise GiveUp(f"{path} is gone")

    @sync.task(retry=Retry.constant(1, delay=0))
    async def break_down() -> None:
        raise ValueError("first line\nsecond line")

    async with Scheduler(file, domains=[sync]) as scheduler:
        await send.options(label="the first").submit("a.jpg")
        await lose.submit("b.jpg")
        await break_down.submit()
        await scheduler.run_until_idle()
        await send.options(key="c", priority=64, tags={"user": "bob"}).submit("c.jpg")
        await send.options(group=None, priority=100).submit("d.jpg")
        await send.options(run_after=3600, ttl=7200).submit("e.jpg")
        await send.options(label="\x1b[2J[bold]evil[/bold]").submit("f.jpg")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("cli") / "tasks.db"
    asyncio.run(_fill(file))
    return file


@pytest.fixture
def file(template: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "tasks.db"
    copy.write_bytes(template.read_bytes())
    copy.chmod(0o600)
    return copy


# Looking


def test_status_counts_tasks_by_status_ending_and_group(template: Path) -> None:
    text = taskmill("status", template).stdout
    assert "active      4: 3 pending, 1 scheduled" in text
    assert "ended       3: 1 completed, 1 failed, 1 dead letter" in text
    assert "nothing runs the tasks" in text
    assert "s3://prod" in text
    assert "(no group)" in text

    document = answer("status", template)
    assert document["dispatching"] is False
    assert document["active"]["pending"] == 3
    assert document["active"]["running"] == 0
    assert document["ended"]["dead_letter"] == 1
    assert document["groups"]["s3://prod"]["pending"] == 2
    assert document["groups"][""]["pending"] == 1


def test_ls_lists_active_tasks_with_readable_times_and_priorities(template: Path) -> None:
    done = taskmill("ls", template)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["id", "status", "type", "group", "priority", "attempts", "when", "about"]
    assert len(lines) == 5
    assert " high " in lines[1]
    assert " 100 " in lines[2]
    assert "in 59 min" in lines[3] or "in 1 h" in lines[3]
    assert "ago" in lines[1] or "now" in lines[1]
    assert [task["id"] for task in answer("ls", template)] == [4, 5, 6, 7]


def test_stored_text_cannot_drive_the_terminal(here: Here, template: Path) -> None:
    for command in (("ls", template), ("show", template, 7)):
        text = here(*command)
        assert "\x1b" not in text
        assert "\\x1b[2J[bold]evil[/bold]" in text


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (["--status", "scheduled"], [6]),
        (["--type", "sync::send"], [4, 5, 6, 7]),
        (["--type", "sync::lose"], []),
        (["--domain", "other"], []),
        (["--group", ""], [5]),
        (["--tag", "user=bob"], [4]),
        (["--limit", "2"], [4, 5]),
        (["--limit", "0"], [4, 5, 6, 7]),
        (["--history"], [3, 2, 1]),
        (["--status", "failed"], [2]),
        (["--history", "--domain", "sync", "--tag", "user=ann"], [1]),
    ],
)
def test_ls_filters(here: Here, template: Path, filters: list[str], ids: list[int]) -> None:
    assert [task["id"] for task in here.answer("ls", template, *filters)] == ids


def test_ls_says_that_there_is_more_or_nothing(here: Here, template: Path) -> None:
    assert "more than 2" in here("ls", template, "--limit", 2)
    assert "no active task matches" in here("ls", template, "--domain", "other")
    history = here("ls", template, "--history")
    assert "ValueError: first line" in history
    assert "second line" not in history


def test_ls_refuses_filters_that_make_no_sense(here: Here, template: Path) -> None:
    assert "NAME=VALUE" in here.refusal("ls", template, "--tag", "user", code=2)
    assert "not an ending" in here.refusal("ls", template, "--history", "--status", "pending", code=2)
    assert "--limit" in here.refusal("ls", template, "--limit", "-1", code=2)
    here("ls", template, "--status", "sleeping", code=2)


def test_show_tells_everything_about_a_task(here: Here, template: Path) -> None:
    text = taskmill("show", template, 1).stdout
    for words in ("completed", "the first", "s3://prod", "normal", "user=ann", "a.jpg", "100%, 1.0 kB of 1.0 kB"):
        assert words in text
    assert '{"size": 5}' in text

    broken = here("show", template, 3)
    assert "ValueError: first line\n" in broken
    assert "second line" in broken
    assert "retries" in broken

    document = answer("show", template, 1)
    assert document["payload"] == {"path": "a.jpg"}
    assert document["result"] == {"size": 5}
    assert document["ending"] == "completed"
    assert document["progress"]["done_bytes"] == 1000
    assert document["ended_at"].endswith("+00:00")
    assert here.answer("show", template, 6)["status"] == "scheduled"


def test_an_id_nobody_has_is_refused(template: Path) -> None:
    done = taskmill("show", template, 99)
    assert done.returncode == 1
    assert done.stderr == "taskmill: no task has the id 99\n"


def test_the_file_may_come_from_the_environment(here: Here, template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TASKMILL_STORE" in here.refusal("status", code=2)
    assert "TASKMILL_STORE" in here.refusal("show", "1", code=2)
    monkeypatch.setenv("TASKMILL_STORE", str(template))
    assert "4: 3 pending" in here("status")
    assert "the first" in here("show", "1")
    assert here("doctor")


# Control


def test_cancel_ends_waiting_tasks_and_refuses_the_rest(here: Here, file: Path) -> None:
    done = taskmill("cancel", file, 4, 6)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["task 4 is cancelled", "task 6 is cancelled"]

    mixed = taskmill("cancel", file, 5, 1, 99)
    assert mixed.returncode == 1
    assert mixed.stdout.splitlines() == ["task 5 is cancelled"]
    assert "task 1 had ended already: completed" in mixed.stderr
    assert "no task has the id 99" in mixed.stderr

    assert here.answer("cancel", file, 7) == [{"id": 7, "outcome": "cancelled", "ending": None}]
    again = answer("cancel", file, 7, 99, code=1)
    assert again[0] == {"id": 7, "outcome": "ended", "ending": "cancelled"}
    assert again[1]["outcome"] == "not_found"
    assert here.answer("status", file)["ended"]["cancelled"] == 4


def test_ids_are_whole_numbers(here: Here, template: Path) -> None:
    assert "whole number" in here.refusal("cancel", template, "four", code=2)
    assert "whole number" in here.refusal("show", template, "-4", code=2)
    assert "id" in here.refusal("show", template, code=2)
    assert "one id" in here.refusal("show", template, 1, 2, code=2)
    assert "digits" in here.refusal("show", template, "9" * 30, code=2)


# Files that are none


@pytest.mark.parametrize("command", ["status", "ls", "doctor", "show", "cancel"])
def test_no_command_creates_a_database(here: Here, tmp_path: Path, command: str) -> None:
    ids = ["1"] if command in ("show", "cancel") else []
    missing = tmp_path / "missing.db"
    assert "does not exist" in here.refusal(command, missing, *ids, code=2)
    assert list(tmp_path.iterdir()) == []

    text = tmp_path / "notes.txt"
    text.write_text("not a database at all")
    assert "not an SQLite database" in here.refusal(command, text, *ids, code=2)
    assert text.read_text() == "not a database at all"
    assert "is a folder" in here.refusal(command, tmp_path, *ids, code=2)


def test_the_database_of_another_program_is_left_alone(here: Here, tmp_path: Path) -> None:
    other = tmp_path / "app.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE customer (name TEXT)")
    connection.commit()
    connection.close()
    before = other.read_bytes()
    assert "tables are not in it" in here.refusal("status", other, code=2)
    assert other.read_bytes() == before


# Doctor


def test_doctor_finds_a_sound_file_healthy(template: Path) -> None:
    done = taskmill("doctor", template)
    assert done.returncode == 0, done.stdout
    for words in ("integrity", "SQLite", "write-ahead log", "schema", "durability", "0600", "dead letters"):
        assert words in done.stdout
    document = answer("doctor", template)
    assert document["healthy"] is True
    assert document["facts"]["integrity"] == "ok"
    levels = {finding["subject"]: finding["level"] for finding in document["findings"]}
    assert levels["dead letters"] == "note"
    assert levels["permissions"] == "ok"
    version = tuple(map(int, document["facts"]["sqlite_version"].split(".")))
    assert levels["SQLite"] == ("ok" if version >= (3, 51, 3) else "note")
    assert ("taskmill[sqlite]" in done.stdout) == (version < (3, 51, 3))


def test_doctor_notes_loose_permissions_without_failing(here: Here, file: Path) -> None:
    file.chmod(0o644)
    assert "0644: other users may open it" in here("doctor", file)


def test_doctor_fails_on_a_damaged_file(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for start in range(4096, len(content), 4096):
        # Spared, so that it can still be told whose file this was.
        if b"taskmill_schema" not in content[start : start + 4096]:
            content[start : start + 4096] = b"\xa5" * 4096
    file.write_bytes(content)
    done = taskmill("doctor", file, "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["healthy"] is False
    assert "problem" in {finding["level"] for finding in document["findings"]}


# Run

MODULE = """
import asyncio
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

scheduler = Scheduler("tasks.db", domains=[work], shutdown_grace=0.1)
number = 7
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(MODULE)
    return tmp_path


@contextmanager
def running(app: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "taskmill", "run", "app:scheduler", *options],
        cwd=app,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def heard(process: subprocess.Popen[str], words: str) -> str:
    """The next line with these words in it; pytest's own timeout bounds the wait."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"{words!r} was never said; {process.communicate()[1]}")


async def _submit(app: Path, *submissions: Submission) -> list[int]:
    async with Scheduler(app / "tasks.db") as scheduler:
        return [handle.id for handle in await scheduler.submit_many(submissions)]


async def _record(app: Path, id: int) -> Any:
    async with Scheduler(app / "tasks.db") as scheduler:
        return await scheduler.get(id)


def submit(app: Path, *submissions: Submission) -> list[int]:
    return asyncio.run(_submit(app, *submissions))


def test_run_works_off_what_other_processes_submit_and_stops_on_sigterm(app: Path) -> None:
    with running(app, "--json") as process:
        heard(process, '"started"')
        added, waiting = submit(app, Submission("work::add", {"a": 2, "b": 3}), Submission("work::wait_long", {}))
        completed = json.loads(heard(process, "TaskCompleted"))
        assert completed["task_id"] == added
        assert completed["result"] == 5

        assert answer("status", app / "tasks.db")["dispatching"] is True
        assert f"process {process.pid}" in taskmill("status", app / "tasks.db").stdout
        second = taskmill("run", "app:scheduler", cwd=app)
        assert second.returncode == 1
        assert f"process {process.pid}" in second.stderr
        assert "Traceback" not in second.stderr

        process.send_signal(signal.SIGTERM)
        assert json.loads(heard(process, '"stopped"'))["ended"] == {"completed": 1}
        assert process.wait(30) == 0
    done = asyncio.run(_record(app, added))
    assert isinstance(done, HistoryRecord)
    assert done.result == 5
    interrupted = asyncio.run(_record(app, waiting))
    assert interrupted.status is Status.PENDING
    assert interrupted.retries == 0


def test_cancel_stops_a_task_that_runs_in_another_process(app: Path) -> None:
    with running(app, "--verbose") as process:
        heard(process, "app:scheduler is dispatching")
        (waiting,) = submit(app, Submission("work::wait_long", {}))
        heard(process, "dispatched")
        assert answer("ls", app / "tasks.db", "--status", "running")[0]["id"] == waiting
        done = taskmill("cancel", app / "tasks.db", waiting)
        # The other process may have done it before this one looks again.
        asked, over = "is running and has been asked to stop", "is cancelled"
        assert done.stdout in (f"task {waiting} {asked}\n", f"task {waiting} {over}\n")
        heard(process, "cleaned up")
        heard(process, "cancelled")
        process.send_signal(signal.SIGINT)
        heard(process, "1 cancelled")
        assert process.wait(30) == 0
    assert asyncio.run(_record(app, waiting)).ending is Ending.CANCELLED


def test_a_second_signal_exits_at_once(app: Path) -> None:
    source = (app / "app.py").read_text()
    (app / "app.py").write_text(source.replace("shutdown_grace=0.1", "shutdown_grace=600"))
    with running(app, "--verbose") as process:
        heard(process, "is dispatching")
        (waiting,) = submit(app, Submission("work::wait_long", {}))
        heard(process, "dispatched")
        process.send_signal(signal.SIGTERM)
        heard(process, "stopping")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    # Nothing dispatches any more; opening the file returns the task to the queue.
    assert asyncio.run(_record(app, waiting)).status is Status.PENDING


def test_a_standby_takes_over(app: Path) -> None:
    with running(app) as first:
        heard(first, "is dispatching")
        with running(app, "--standby") as second:
            heard(second, "is standing by")
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
        ("app:number", "app:number is not a Scheduler but of type int"),
        ("needy:scheduler", "importing needy failed: it needs the module surely_not_there"),
        ("broken:scheduler", "importing broken failed: ZeroDivisionError"),
    ],
)
def test_run_says_what_is_wrong_with_its_target(
    here: Here, app: Path, target: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (app / "needy.py").write_text("import surely_not_there")
    (app / "broken.py").write_text("1 / 0")
    monkeypatch.chdir(app)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert sentence in here.refusal("run", target, code=2)


# Demo


def test_the_demonstration_accounts_for_every_task(tmp_path: Path) -> None:
    done = taskmill("demo", "--seconds", 1, "--tasks", 120, environment={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "120 tasks submitted, 120 accounted for" in done.stdout
    assert "✗" not in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_numbers_of_the_demonstration_add_up() -> None:
    document = answer("demo", "--fast", "--tasks", 100)
    assert document["balances"] is True
    assert document["submitted"] == document["accounted_for"] == 100
    assert sum(document["endings"].values()) == 100
    assert set(document["endings"]) == {"completed", "failed", "dead_letter", "cancelled", "expired"}
    assert all(check["holds"] for check in document["checks"])


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are a Unix thing")
def test_the_demonstration_draws_on_a_terminal_and_leaves_it_as_it_was() -> None:
    terminal, end = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "taskmill", "demo", "--fast", "--tasks", "40"],
        env={**ENVIRONMENT, "TERM": "xterm", "LINES": "30", "COLUMNS": "100"},
        stdout=end,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(end)
        seen = b"".join(iter(partial(_read, terminal), b"")).decode()
        os.close(terminal)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    frames, _, after = seen.rpartition("\x1b[?1049l")
    assert "taskmill demo" in frames
    assert "of 12 slots" in frames
    assert "40 tasks submitted, 40 accounted for" in after
    assert "\x1b[?1049h" not in after


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # Linux reports the closed other end this way.
        return b""


def test_the_demonstration_refuses_what_it_cannot_show(here: Here) -> None:
    assert "--tasks" in here.refusal("demo", "--tasks", "0", code=2)
    assert "--seconds" in here.refusal("demo", "--seconds", "nan", code=2)


# Without rich

WITHOUT_RICH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "rich":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from taskmill.cli import main
for command in (["status", FILE], ["ls", FILE], ["show", FILE, "1"], ["doctor", FILE], ["demo", "--fast"]):
    assert main(command) == 0, command
assert "rich" not in sys.modules
"""


def test_everything_but_the_live_view_works_without_rich(template: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"FILE = {str(template)!r}\n{WITHOUT_RICH}"],
        check=False,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_help_and_version(here: Here) -> None:
    assert taskmill("--version").stdout.startswith("taskmill ")
    text = here("--help")
    for command in ("demo", "run", "status", "ls", "show", "cancel", "doctor"):
        assert command in text
    here(code=2)
    here("explode", code=2)


async def test_graph_shows_a_family_and_what_waits_for_what(tmp_path: Path, here: Here) -> None:
    domain = Domain("album")

    @domain.task
    async def photo(n: int) -> None:
        if n == 2:
            raise GiveUp("broken")

    @domain.task(fail_fast=False)
    async def whole(ctx: Context) -> None:
        await ctx.spawn_many(photo.prepare(n) for n in range(3))

    file = str(tmp_path / "tasks.db")
    async with Scheduler(file, domains=[domain]) as scheduler:
        album = await whole.submit()
        await scheduler.run_until_idle()
        later = await photo.options(run_after=3600, depends_on=album).submit(7)
        await photo.options(depends_on=later, label="the last").submit(8)
    text = await asyncio.to_thread(here, "graph", file, later.id)
    assert text.splitlines() == [
        "task  state      type          progress  after",
        "1     completed  album::whole",
        "├─ 2  completed  album::photo",
        "├─ 3  completed  album::photo",
        "└─ 4  failed     album::photo",
        "5 ◂   scheduled  album::photo            1 ✓",
        "6     blocked    the last                5",
    ]
    shortened = await asyncio.to_thread(here, "graph", file, 1, "--limit", 2)
    assert shortened.splitlines()[-1] == "… and 4 more; --limit 0 shows all"
    document = await asyncio.to_thread(here.answer, "graph", file, 1)
    assert document["tasks"]["4"]["parent_id"] == 1
    assert document["dependencies"] == [[5, 1, False], [6, 5, True]]
    assert "no task has the id 99" in await asyncio.to_thread(here.refusal, "graph", file, 99, code=1)
    assert "--limit" in await asyncio.to_thread(here.refusal, "graph", file, 1, "--limit", -1, code=2)
