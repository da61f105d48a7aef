"""``taskmill web`` and ``taskmill demo --web``: the real programs, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.command_line import ENVIRONMENT, Here
from tests.both_engines import name_of
from tests.warm_python import Popen

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform == "win32", reason="signals need POSIX"),
]


@contextlib.contextmanager
def started(*arguments: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start the program; at the end it must have stopped by itself, without an error."""
    with Popen(
        [sys.executable, "-m", "taskmill", *map(name_of, arguments)],
        env={**ENVIRONMENT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_page_is_served_until_a_signal(file: Path, number: int) -> None:
    with started("web", file, "--port", 0) as program:
        assert program.stdout is not None
        line = program.stdout.readline().strip()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)#token=([\w-]{43})", line)
        assert found is not None, line
        address, token = found.groups()
        with httpx.Client(base_url=address, verify=False, trust_env=False) as client:
            assert client.get("/").status_code == 200
            assert client.get("/api/overview").status_code == 401
            headers = {"authorization": f"Bearer {token}"}
            overview = client.get("/api/overview", headers=headers)
            assert overview.json()["counts"]["pending"] == 3
            cancelled = client.post("/api/tasks/4/cancel", headers=headers)
            assert cancelled.json() == {"ids": [4]}
            with client.stream("GET", "/api/events", headers=headers) as stream:
                assert stream.status_code == 200
                program.send_signal(number)
                assert program.wait(30) == 0
        assert program.stderr is not None
        logged = program.stderr.read()
        assert "taskmill.audit" in logged
        assert token not in logged


@pytest.mark.one_engine("the options are what is tested")
def test_the_options_of_the_page_are_used(file: Path) -> None:
    arguments = ("web", file, "--port", 0, "--read-only", "--allow-host", "tasks.example", "--json")
    with started(*arguments, TASKMILL_WEB_TOKEN="50%&more") as program:
        assert program.stdout is not None
        said = json.loads(program.stdout.readline())
        assert said["link"] == f"{said['address']}#token=50%25%26more"
        with httpx.Client(base_url=said["address"], verify=False, trust_env=False) as client:
            headers = {"authorization": "Bearer 50%&more", "host": "tasks.example"}
            assert client.get("/api/overview", headers=headers).status_code == 200
            assert client.post("/api/pause", headers=headers).status_code == 403
            assert client.get("/", headers={"host": "other.example"}).status_code == 403
        os.kill(program.pid, signal.SIGINT)
        assert program.wait(30) == 0


@pytest.mark.one_engine("nothing is served")
def test_the_page_refuses_what_is_unsafe_or_wrong(here: Here, file: Path) -> None:
    assert "--token" in here.refusal("web", file, "--host", "0.0.0.0", code=2)
    for token in ("", "two words", "m\u00fcll"):
        assert "--token" in here.refusal("web", file, "--token", token, code=2)
    assert "--port" in here.refusal("web", file, "--port", "70000", code=2)


@pytest.mark.one_engine("the demonstration has a file of its own")
def test_the_demonstration_has_a_page_while_it_runs(tmp_path: Path) -> None:
    with started("demo", "--web", "--seconds", 2, "--tasks", 60, TMPDIR=str(tmp_path)) as program:
        assert program.stderr is not None
        line = program.stderr.readline()
        found = re.search(r"(http://127\.0\.0\.1:\d+/)#token=([\w-]{43})", line)
        assert found is not None, line
        with httpx.Client(base_url=found[1], verify=False, trust_env=False) as client:
            overview = client.get("/api/overview", headers={"authorization": f"Bearer {found[2]}"})
            assert overview.status_code == 200
            assert overview.json()["has_dispatcher"] is True
        assert program.stdout is not None
        assert "60 tasks submitted, 60 accounted for" in program.stdout.read()
        assert program.wait(30) == 0
