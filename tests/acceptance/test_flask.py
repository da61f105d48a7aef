"""The program of the Flask page under gunicorn with forked workers, and ``taskmill run`` beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from taskmill import blocking
from tests.acceptance.terminal import heard, started
from tests.acceptance.web_programs import ask, gunicorn, save_files_of

pytestmark = [
    pytest.mark.one_engine("the page uses a file, and the engine plays no part in forking"),
    pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs POSIX"),
]


def test_forked_workers_submit_and_another_process_runs_the_tasks(tmp_path: Path) -> None:
    save_files_of("flask.md", tmp_path)
    with gunicorn(tmp_path, "--preload") as address:
        ids = [ask(f"{address}/reports/r{n}", "POST")["id"] for n in range(6)]
        with started(tmp_path, "run", "app:scheduler", "--json") as runner:
            heard(runner, '"started"')
            with blocking.Scheduler(tmp_path / "tasks.db") as onlooker:
                for id in ids:
                    onlooker.wait(id, timeout=30)
        assert [ask(f"{address}/reports/{id}")["result"] for id in ids] == [f"R{n}" for n in range(6)]
        assert "no task has the id 999" in ask(f"{address}/reports/999")["error"]


def test_the_workers_themselves_dispatch_on_standby(tmp_path: Path) -> None:
    save_files_of("flask.md", tmp_path)
    conf = tmp_path / "gunicorn_conf.py"
    conf.write_text(conf.read_text().replace("scheduler.open()", "scheduler.open(); _run(scheduler)") + RUN)
    with gunicorn(tmp_path, "--preload") as address:
        id = ask(f"{address}/reports/weekly", "POST")["id"]
        with blocking.Scheduler(tmp_path / "tasks.db") as onlooker:
            onlooker.wait(id, timeout=30)
        assert ask(f"{address}/reports/{id}")["result"] == "WEEKLY"


RUN = """

def _run(scheduler):
    global running
    running = scheduler.running(standby=True)
    running.__enter__()
"""
