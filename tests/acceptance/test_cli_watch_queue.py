"""Following a whole queue from the command line, whichever process dispatches it."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len

from taskmill import Context, Domain, GiveUp, Scheduler, blocking
from tests.acceptance.command_line import ENVIRONMENT, Here, taskmill
from tests.acceptance.terminal import CURSOR_IS_BACK, heard, needs_a_terminal, started, without_colours
from tests.both_engines import name_of
from tests.warm_python import Popen

pytestmark = pytest.mark.timeout(60)

domain = Domain("photos")


@domain.task
async def send(ctx: Context, n: int) -> None:
    """Run until stopped, or fail."""
    if n < 0:
        raise GiveUp(f"photo {n} is gone")
    ctx.progress(0.5, "halfway")
    await asyncio.Event().wait()


async def _fill(store: Path) -> None:
    async with Scheduler(store, domains=[domain], retention=None) as scheduler:
        await send.options(label="lost").submit(-1)
        await scheduler.run_until_idle()
        await scheduler.submit_many([send.options(group=f"disk{n}", label="写真" * 20).prepare(n) for n in range(40)])
        await send.options(run_after=3600, label="later").submit(99)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.db"
    asyncio.run(_fill(path))
    return path


@contextmanager
def dispatching(store: Path) -> Iterator[blocking.Scheduler]:
    scheduler = blocking.Scheduler(store, domains=[domain], max_concurrency=30, shutdown_grace=0)
    with scheduler, scheduler.running():
        while scheduler.count(status="running") < 30:
            scheduler.snapshot()
        yield scheduler


class Screen:
    """A pseudo-terminal with a real size, and the program that runs on it."""

    def __init__(self, store: Path, columns: int, lines: int) -> None:
        self._end, other = os.openpty()
        self.resize(columns, lines)
        environment = {name: value for name, value in ENVIRONMENT.items() if name not in ("COLUMNS", "LINES")}
        self.process = Popen(
            [sys.executable, "-m", "taskmill", "watch", name_of(store)],
            env={**environment, "TERM": "xterm"},
            stdin=other,
            stdout=other,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(other)
        self.seen = ""
        # A character may arrive in two pieces, and Ctrl-C may come between them.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, words: str, times: int = 1) -> None:
        while self.seen.count(words) < times:
            assert self._read(), f"{words!r} was never written: {self.seen}"

    def pictures(self) -> list[list[str]]:
        """Return the lines of every whole picture so far; each begins at the top left corner."""
        pieces = self.seen.split("\x1b[H")[1:-1]
        return [without_colours(piece).replace("\r", "").rstrip("\n").split("\n") for piece in pieces]

    def rest(self) -> str:
        while self._read():
            continue
        return self.seen

    def _read(self) -> bool:
        """Read more; return False once the program has closed its end."""
        try:
            piece = os.read(self._end, 65536)
        except OSError:
            # Linux reports the closed other end this way.
            return False
        self.seen += self._decoder.decode(piece)
        return bool(piece)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._end)


@contextmanager
def watching(store: Path, columns: int, lines: int) -> Iterator[Screen]:
    screen = Screen(store, columns, lines)
    try:
        yield screen
    finally:
        screen.close()


@needs_a_terminal
@pytest.mark.parametrize("columns", [80, 120])
def test_the_view_shows_the_whole_queue_within_the_terminal(store: Path, columns: int) -> None:
    with dispatching(store), watching(store, columns, 24) as screen:
        screen.until("Ctrl-C ends", times=3)
        picture = screen.pictures()[-1]
        screen.process.send_signal(signal.SIGINT)
        left = screen.rest()
        assert screen.process.wait(30) == 0
    assert len(picture) <= 24
    assert [line for line in picture if cell_len(line) > columns] == []
    text = "\n".join(picture)
    for words in ("10 pending", "30 running", "1 failed", "halfway", "more run", "more groups", "next due: task 42"):
        assert words in text
    assert "photo -1 is gone" in text
    # The terminal is as it was, and the last state stays visible below the prompt.
    assert CURSOR_IS_BACK in left
    assert left.rindex("\x1b[?1049l") < left.rindex("30 running")


@needs_a_terminal
def test_the_view_follows_the_size_of_the_terminal(store: Path) -> None:
    with dispatching(store), watching(store, 120, 40) as screen:
        screen.until("Ctrl-C ends", times=2)
        assert max(map(len, screen.pictures())) > 20
        screen.resize(80, 16)
        shown = screen.seen.count("Ctrl-C ends")
        screen.until("Ctrl-C ends", times=shown + 3)
        picture = screen.pictures()[-1]
    assert len(picture) <= 16
    assert max(map(cell_len, picture)) <= 80


def test_without_a_dispatcher_the_view_says_so_and_names_what_is_due(here: Here, store: Path) -> None:
    text = here("watch", store, "--once")
    assert "active: 40 pending, 1 scheduled" in text
    assert "nothing dispatches" in text
    (document,) = [json.loads(line) for line in here("watch", store, "--once", "--json").splitlines()]
    assert document["next_due"]["label"] == "later"
    assert document["counts"]["failed"] == 1
    assert document["dispatching"] is False


def test_into_a_pipe_a_line_is_printed_for_every_change(tmp_path: Path, store: Path) -> None:
    with started(tmp_path, "watch", store) as process:
        assert "active: 40 pending" in heard(process, "active")
        assert taskmill("cancel", store, 2).returncode == 0
        assert "1 cancelled" in heard(process, "active: 39 pending")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_watch_refuses_what_makes_no_sense(here: Here, store: Path) -> None:
    assert "--once" in here.refusal("watch", store, 1, "--once", code=2)
    assert "whole queue" in here.refusal("watch", store, 1, 2, code=2)
