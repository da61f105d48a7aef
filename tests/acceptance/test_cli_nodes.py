"""``taskmill nodes`` lists the nodes of a store."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from taskmill import Domain, Scheduler, blocking
from taskmill.events import TaskDispatched
from taskmill.store.postgres import lease
from tests.acceptance.command_line import ENVIRONMENT, Here
from tests.acceptance.terminal import needs_a_terminal, without_colours
from tests.both_engines import name_of
from tests.warm_python import Popen

pytestmark = pytest.mark.timeout(60)

domain = Domain("d")


@domain.task
async def work(n: int) -> None:
    """Run until stopped."""
    await asyncio.Event().wait()


NODE = """
import asyncio, sys
from taskmill import Scheduler
from tests.acceptance.test_cli_nodes import domain
async def main():
    slots = int(sys.argv[2])
    async with Scheduler(sys.argv[1], domains=[domain], max_concurrency=slots, shutdown_grace=0) as scheduler:
        async with scheduler.running():
            while len((await scheduler.snapshot()).nodes[-1].running) < slots:
                await asyncio.sleep(0.02)
            print("busy", flush=True)
            await asyncio.Event().wait()
asyncio.run(main())
"""


@contextmanager
def node(store: object, slots: int) -> Iterator[subprocess.Popen[str]]:
    """Start a process that dispatches and has all its slots taken."""
    root = str(Path(__file__).parents[2])
    process = Popen(
        [sys.executable, "-c", NODE, name_of(store), str(slots)],
        env={**ENVIRONMENT, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{root}"},
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "busy\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def fill(store: object, count: int) -> None:
    async def run() -> None:
        async with Scheduler(name_of(store), domains=[domain]) as scheduler:
            await scheduler.submit_many([work.options(key=f"k{n}").prepare(n) for n in range(count)])

    asyncio.run(run())


@contextmanager
def node_here(store: Path, slots: int) -> Iterator[None]:
    """Start a scheduler in this process that dispatches and has all its slots taken."""
    with blocking.Scheduler(store, domains=[domain], max_concurrency=slots, shutdown_grace=0) as scheduler:
        dispatched = scheduler.events(TaskDispatched)
        with scheduler.running():
            for _ in range(slots):
                next(dispatched)
            yield


def test_a_store_without_a_dispatcher_has_no_nodes(here: Here, tmp_path: Path) -> None:
    fill(tmp_path / "t.db", 1)
    assert "nothing dispatches" in here("nodes", tmp_path / "t.db")
    found = here.answer("nodes", tmp_path / "t.db")
    assert (found["nodes"], found["without_node"]) == ([], [])


def test_the_process_that_dispatches_a_store_is_its_node(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    fill(file, 3)
    with node_here(file, 2):
        said = here("nodes", file)
        found = here.answer("nodes", file)
    name = f"{socket.gethostname()}:{os.getpid()}"
    nodes, tasks = said.split("\n\n")
    assert re.search(rf"^{re.escape(name)} +alive +.+ +now +2 taken, 0 free$", nodes, re.MULTILINE)
    assert re.search(rf"^ +1 +{re.escape(name)} +.+ d::work +k0$", tasks, re.MULTILINE)
    (one,) = found["nodes"]
    assert (one["name"], one["is_alive"], one["slots"]) == (name, True, 2)
    assert [(task["id"], task["type"], task["key"]) for task in one["running"]] == [
        (1, "d::work", "k0"),
        (2, "d::work", "k1"),
    ]


def test_nodes_of_a_cluster_and_what_dead_ones_have_left(
    here: Here, postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command declares a node dead sooner than the nodes do.
    monkeypatch.setattr(lease, "LEASE", 3.0)
    fill(postgres_store, 6)
    with (
        node(postgres_store, 2) as first,
        node(postgres_store, 1) as second,
        psycopg.connect(postgres_store, autocommit=True) as connection,
    ):
        connection.execute(
            "INSERT INTO taskmill_node (id, name, slots) OVERRIDING SYSTEM VALUE VALUES (99, 'far:1', 4)"
        )
        connection.execute(
            "UPDATE taskmill_task SET status = 'running', node_id = 99, attempt = 1, started_at = 1 WHERE id = 5"
        )
        while here.answer("nodes", postgres_store)["nodes"][2]["is_alive"]:
            time.sleep(0.1)
        # Only now: the nodes return such a task to the queue within about ten seconds.
        connection.execute(
            "UPDATE taskmill_task SET status = 'running', node_id = 77, attempt = 1, started_at = 1 WHERE id = 6"
        )
        said = here("nodes", postgres_store)
        found = here.answer("nodes", postgres_store)
    names = [f"{socket.gethostname()}:{process.pid}" for process in (first, second)]
    assert [one["name"] for one in found["nodes"]] == [*names, "far:1"]
    assert [len(one["running"]) for one in found["nodes"]] == [2, 1, 1]
    assert [one["is_alive"] for one in found["nodes"]] == [True, True, False]
    assert [task["id"] for task in found["without_node"]] == [6]
    assert re.search(r"^far:1 +dead .* 1 task to be rescued by another node$", said, re.MULTILINE)
    assert re.search(r"^ +5 +far:1 .* d::work +k4$", said, re.MULTILINE)
    assert re.search(r"^ +6 +\(none\) ", said, re.MULTILINE)
    assert "1 task without a node, left behind by a node that died; live nodes return such tasks" in said


@needs_a_terminal
@pytest.mark.parametrize("columns", [80, 120])
def test_nodes_fit_a_terminal(here: Here, tmp_path: Path, columns: int) -> None:
    file = tmp_path / "t.db"
    fill(file, 3)
    with node_here(file, 2):
        lines = without_colours(here.on_terminal("nodes", file, columns=columns)).splitlines()
    assert max(map(len, lines)) <= columns
    assert any("2 taken, 0 free" in line for line in lines)
    assert any("d::work" in line and "k1" in line for line in lines)
