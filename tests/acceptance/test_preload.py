"""``gunicorn --preload`` with a scheduler opened in the master: the workers raise a clear error, and none hangs.

The real server runs. The master imports the application, which opens its scheduler, and then forks its workers.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taskmill import blocking
from tests.acceptance.command_line import ENVIRONMENT
from tests.acceptance.web_programs import ask, gunicorn, gunicorn_command
from tests.both_engines import name_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs POSIX")

TASKS = """
from taskmill import Domain, InvalidState

work = Domain("work")


@work.task
def double(n: int) -> int:
    return 2 * n
"""

BLOCKING = """
import os
from flask import Flask
from taskmill.blocking import Scheduler
from tasks import InvalidState, double, work

master = os.getpid()
scheduler = Scheduler({store!r}, domains=[work])
scheduler.open()
inherited = scheduler.submit(double.prepare(1))
app = Flask(__name__)


@app.get("/submit")
def submit():
    return {{"id": scheduler.submit(double.prepare(4)).id}}


@app.get("/submit_sync")
def submit_sync():
    return {{"id": double.submit_sync(4).id}}


@app.get("/result")
def result():
    return {{"result": inherited.result()}}


@app.errorhandler(InvalidState)
def refused(wrong):
    return {{"error": str(wrong), "master": master}}, 500


def submit_in_master():
    scheduler.submit(double.prepare(8))
    scheduler.close()
"""

ASYNC = """
import asyncio, os
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from taskmill import Scheduler
from taskmill.asgi import lifespan
from tasks import InvalidState, double, work

master = os.getpid()
scheduler = Scheduler({store!r}, domains=[work])
loop = asyncio.new_event_loop()
loop.run_until_complete(scheduler.open())
inherited = loop.run_until_complete(double.submit(1))
app = FastAPI(lifespan={lifespan})


@app.get("/submit")
async def submit():
    return {{"id": (await scheduler.submit(double.prepare(4))).id}}


@app.get("/submit_sync")
def submit_sync():
    return {{"id": double.submit_sync(4).id}}


@app.get("/result")
async def result():
    return {{"result": await inherited.result()}}


@app.exception_handler(InvalidState)
async def refused(request, wrong):
    return JSONResponse({{"error": str(wrong), "master": master}}, 500)


def submit_in_master():
    loop.run_until_complete(double.submit(8))
    loop.run_until_complete(scheduler.close())
"""

CONFIGURATION = """
def post_worker_init(worker):
    {in_worker}


def on_exit(server):
    from app import submit_in_master

    submit_in_master()
"""

OPEN = "from app import scheduler; scheduler.open()"
UVICORN = ("-k", "uvicorn.workers.UvicornWorker")


def save(folder: Path, application: str, in_worker: str = "pass", lifespan: str = "None") -> None:
    store = name_of(folder / "tasks.db")
    (folder / "tasks.py").write_text(TASKS)
    (folder / "app.py").write_text(application.format(store=store, lifespan=lifespan))
    (folder / "gunicorn_conf.py").write_text(CONFIGURATION.format(in_worker=in_worker))


def is_explained(message: str, master: int) -> bool:
    return message.startswith(f"this scheduler was opened in process {master}, ") and (
        "open one in each process: in a web server, when a worker starts" in message
    )


@pytest.mark.parametrize(("application", "options"), [(BLOCKING, ()), (ASYNC, UVICORN)], ids=["blocking", "async"])
def test_workers_raise_at_every_use_and_the_master_works_on(
    tmp_path: Path, application: str, options: tuple[str, ...]
) -> None:
    save(tmp_path, application)
    with gunicorn(tmp_path, "--preload", *options) as address:
        for verb in ("submit", "submit_sync", "result"):
            met = ask(f"{address}/{verb}")
            assert is_explained(met["error"], met["master"]), (verb, met)
    with blocking.Scheduler(tmp_path / "tasks.db") as onlooker:
        assert [record.payload for record in onlooker.tasks()] == [{"n": 1}, {"n": 8}]


@pytest.mark.parametrize(
    ("application", "in_worker", "lifespan", "options"),
    [(BLOCKING, OPEN, "None", ()), (ASYNC, "pass", "lifespan(scheduler)", UVICORN)],
    ids=["blocking", "async"],
)
def test_workers_that_open_it_again_end_the_server_with_what_to_do(
    tmp_path: Path, application: str, in_worker: str, lifespan: str, options: tuple[str, ...]
) -> None:
    save(tmp_path, application, in_worker, lifespan)
    done = subprocess.run(
        # One worker: if two fail to boot at once, gunicorn trips over the second and exits with 1 instead of 3.
        gunicorn_command(tmp_path, "--preload", *options, workers=1),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "InvalidState: this scheduler was opened in process" in done.stderr
    assert "open one in each process: in a web server, when a worker starts" in done.stderr
