"""The real program in processes of its own: several at once, with a pipe or on a pseudo-terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.acceptance.command_line import ENVIRONMENT, read_terminal
from tests.both_engines import name_of
from tests.warm_python import Popen

needs_a_terminal = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are a Unix thing")

CURSOR_IS_BACK = "\x1b[?25h"


@contextmanager
def started(
    folder: Path,
    *command: object,
    stdin: int | None = None,
    stdout: int = subprocess.PIPE,
    columns: int = 100,
) -> Generator[subprocess.Popen[str]]:
    process = Popen(
        [sys.executable, "-m", "taskmill", *map(name_of, command)],
        cwd=folder,
        env={**ENVIRONMENT, "TERM": "xterm", "LINES": "20", "COLUMNS": str(columns)},
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def write_app(folder: Path, module: str) -> None:
    """Write ``app.py`` into the folder; its store, ``tasks.db``, is on the engine of this test."""
    assert module.count('"tasks.db"') == 1
    (folder / "app.py").write_text(module.replace('"tasks.db"', repr(name_of(folder / "tasks.db"))))


def heard(process: subprocess.Popen[str], words: str) -> str:
    """Return the next line with these words in it; pytest's own timeout bounds the wait."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"{words!r} was never said; {process.communicate()[1]}")


def without_colours(written: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)


class Terminal:
    """The text that a process has written to its terminal."""

    def __init__(self, process: subprocess.Popen[str], end: int) -> None:
        self.process = process
        self._end = end
        self.seen = ""

    def until(self, words: str, times: int = 1) -> str:
        """Read until these words have been written this many times; return everything so far."""
        while self.seen.count(words) < times:
            piece = read_terminal(self._end)
            assert piece, f"{words!r} was never written: {self.seen}"
            self.seen += piece
        return self.seen

    def type(self, text: str) -> None:
        """Type on the keyboard; an empty text is Ctrl-D, the end of the input."""
        os.write(self._end, (text or "\x04").encode())

    def rest(self) -> str:
        """Return everything that was written, once the process has closed its side."""
        while piece := read_terminal(self._end):
            self.seen += piece
        return self.seen


@contextmanager
def on_terminal(folder: Path, *command: object, columns: int = 100) -> Generator[Terminal]:
    end, other = os.openpty()
    try:
        with started(folder, *command, stdin=other, stdout=other, columns=columns) as process:
            os.close(other)
            yield Terminal(process, end)
    finally:
        os.close(end)
