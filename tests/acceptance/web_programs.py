"""Programs of the how-to pages as real processes: saved from the page, started, asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.acceptance.command_line import ENVIRONMENT
from tests.acceptance.test_docs import DOCS, blocks_of


def save_files_of(page: str, folder: Path) -> None:
    """Save the files that a how-to page shows."""
    for block in blocks_of((DOCS / "how-to" / page).read_text(encoding="utf-8")):
        if block.file is not None:
            (folder / block.file).write_text(block.code, encoding="utf-8")


SAYS_READY = """

_page_init = post_worker_init


def post_worker_init(worker):
    _page_init(worker)
    worker.log.info("worker is ready")
"""


def gunicorn_command(folder: Path, *options: str, workers: int = 2) -> list[str]:
    """Return the command that serves ``app:app`` on a free port, with the configuration in this folder."""
    conf = str(folder / "gunicorn_conf.py")
    return [sys.executable, "-m", "gunicorn", "-c", conf, "-b", "127.0.0.1:0", "-w", str(workers), *options, "app:app"]


@contextmanager
def gunicorn(folder: Path, *options: str, workers: int = 2) -> Generator[str]:
    """Start gunicorn with ``app:app`` on a free port; yield its address once all workers are ready.

    A worker that gets the signal to end before that ignores it until gunicorn kills it, 30 s later.
    """
    conf = folder / "gunicorn_conf.py"
    conf.write_text(conf.read_text() + SAYS_READY)
    process = subprocess.Popen(
        gunicorn_command(folder, *options, workers=workers),
        cwd=folder,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        address, ready = "", 0
        said: list[str] = []
        while ready < workers:
            line = process.stderr.readline()
            assert line, "".join(said)
            said.append(line)
            ready += "worker is ready" in line
            if found := re.search(r"Listening at: (http\S+)", line):
                address = found[1]
        yield address
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        # The workers too: one that hangs outlives its master.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ask(address: str, method: str = "GET") -> Any:
    """Return the JSON that an address answers, also with an error status."""
    request = urllib.request.Request(address, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return json.load(refused)
