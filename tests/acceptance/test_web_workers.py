"""A FastAPI service works unchanged under servers with several worker processes.

The real servers run it, on loopback. Both workers start; a photo submitted to one is watched in the other; a killed
worker is replaced; Ctrl-C does not wait for browsers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from tests.both_engines import Engine, name_of

SHUTDOWN_GRACE = 1.0
ROOT = Path(__file__).parents[2]
APPLICATION = "tests.acceptance.photo_service:app"
PATIENCE = 30.0
PLAIN: dict[str, Any] = {"timeout": PATIENCE, "verify": False, "trust_env": False}
"""Nothing is encrypted on loopback, and reading the certificates of the machine takes 50 ms for each client."""
T = TypeVar("T")

SERVERS = {
    "uvicorn": ["uvicorn", APPLICATION, "--workers", "2", "--host", "127.0.0.1", "--port", "{port}"],
    "gunicorn": [
        *("gunicorn", APPLICATION, "-w", "2", "-k", "uvicorn.workers.UvicornWorker", "-b", "127.0.0.1:{port}"),
        *("--worker-tmp-dir", "."),
    ],
}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and gunicorn need POSIX")


class Stream:
    """A browser that follows the events, in one worker."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()
        self.worker = int(self.next()["data"])

    def next(self) -> dict[str, Any]:
        message: dict[str, Any] = {}
        for line in self._lines:
            if not line:
                return message
            name, _, value = line.partition(": ")
            message[name] = value
        raise EOFError

    def until(self, kind: str, id: int) -> list[tuple[str, dict[str, Any]]]:
        """Return the kinds and contents of the events about a task, up to one of this kind."""
        heard: list[tuple[str, dict[str, Any]]] = []
        while True:
            message = self.next()
            event = json.loads(message["data"])
            assert (event["event"], str(event["seq"])) == (message["event"], message["id"])
            if event["task_id"] == id:
                heard.append((message["event"], event))
                if message["event"] == kind:
                    return heard


class Server:
    """A running server with two workers."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, opened: contextlib.ExitStack) -> None:
        self.process = process
        self._address = f"http://127.0.0.1:{port}"
        self._opened = opened

    def about(self) -> dict[str, Any]:
        # Each request has a connection of its own, which either of the workers may accept.
        found: dict[str, Any] = httpx.get(self._address, **PLAIN).json()
        return found

    def dispatching(self, least: int) -> set[int]:
        """Ask until both workers have answered and at least so many dispatch; return those that do.

        A single worker may accept many requests in a row, and a worker is ready before it has the right to dispatch.
        """
        answers: dict[int, bool] = {}
        while len(answers) < 2 or sum(answers.values()) < least:
            answer = self.about()
            answers[answer["worker"]] = answer["dispatching"]
        return {worker for worker, dispatches in answers.items() if dispatches}

    def submit(self, steps: int) -> int:
        answer = httpx.post(f"{self._address}/photos", params={"steps": steps}, **PLAIN).json()
        return int(answer["id"])

    def streams(self) -> dict[int, Stream]:
        """Open event streams until each worker has one; return them by worker."""
        found: dict[int, Stream] = {}

        def open_one() -> bool:
            stream = self._open_stream()
            found.setdefault(stream.worker, stream)
            return len(found) == 2

        eventually(open_one)
        return found

    def _open_stream(self) -> Stream:
        client = self._opened.enter_context(httpx.Client(**PLAIN))
        return Stream(self._opened.enter_context(client.stream("GET", f"{self._address}/events")))


def eventually(question: Callable[[], T]) -> T:
    """Repeat a question until the answer is true; a server that is not ready yet is asked again."""
    until = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(httpx.TransportError):
            if answer := question():
                return answer
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(params=sorted(SERVERS))
def server(request: pytest.FixtureRequest, tmp_path: Path, engine: Engine) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [word.format(port=port) for word in SERVERS[request.param]]
    environment = {
        **os.environ,
        "PHOTOS": name_of(tmp_path / "photos.db"),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
    }
    log = tmp_path / "server.log"
    with log.open("wb") as output, contextlib.ExitStack() as opened:
        # A session of its own: Ctrl-C in a terminal reaches every process of the foreground group.
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield Server(process, port, opened)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            sys.stdout.write(log.read_text(encoding="utf-8", errors="replace"))


def test_photos_are_watched_in_every_worker_and_outlive_one_and_ctrl_c_ends_open_streams(
    server: Server, engine: Engine
) -> None:
    streams = server.streams()
    dispatchers = 2 if engine.is_postgres else 1
    dispatching = server.dispatching(dispatchers)
    assert len(dispatching) == dispatchers, "a file has one dispatcher, the others stand by"

    # Start, progress and ending reach a browser at either worker, wherever the task was submitted and runs.
    id = server.submit(steps=10)
    for stream in streams.values():
        heard = stream.until("TaskCompleted", id)
        kinds = [kind for kind, _ in heard if kind != "TaskSubmitted"]
        assert kinds[0] == "TaskDispatched"
        assert kinds.count("TaskDispatched") == kinds.count("TaskCompleted") == 1
        assert "TaskProgressed" in kinds
    ran_in = heard[-1][1]["result"]
    assert ran_in in streams

    # A worker is killed while it runs a task. On a file, the other takes over and runs the task again; in a cluster
    # that takes until the lease of the dead node has expired, but new tasks run at once.
    victim = ran_in
    (survivor,) = (stream for worker, stream in streams.items() if worker != victim)
    id = server.submit(steps=20)
    if engine.is_postgres:
        os.kill(victim, signal.SIGKILL)
        id = eventually(lambda: server.submit(steps=2))
    else:
        survivor.until("TaskProgressed", id)
        os.kill(victim, signal.SIGKILL)
    assert survivor.until("TaskCompleted", id)[-1][1]["result"] != victim

    # Ctrl-C ends open streams, and then the server, even while a task is running.
    server.streams()
    id = server.submit(steps=1000)
    survivor.until("TaskProgressed", id)
    pressed = time.monotonic()
    os.killpg(server.process.pid, signal.SIGINT)
    with pytest.raises((EOFError, httpx.TransportError)):
        survivor.until("TaskCompleted", id)
    server.process.wait(timeout=PATIENCE)
    assert time.monotonic() - pressed < SHUTDOWN_GRACE + 2
