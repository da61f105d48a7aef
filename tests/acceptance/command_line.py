"""Calling the command line: ``Here`` in this process, :func:`taskmill` as the real program.

Starting the program takes a third of a second, so tests call ``main`` in this process. A new interpreter runs it once
per command (test_cli.py). Tests about a signal, a terminal of its own or another process fork it
(:mod:`tests.warm_python`).

If the test runs on PostgreSQL, a command gets an address in place of the path of a database.
"""

from __future__ import annotations

import io
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

from taskmill.cli import main
from tests.both_engines import name_of
from tests.warm_python import run as warm_run

SOURCE = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
ENVIRONMENT.pop("TASKMILL_STORE", None)


def taskmill(
    *arguments: object,
    cwd: Path | None = None,
    environment: dict[str, str] | None = None,
    start: Callable[..., subprocess.CompletedProcess[str]] = warm_run,
) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own; with ``start=subprocess.run`` in a new interpreter."""
    return start(
        [sys.executable, "-m", "taskmill", *map(name_of, arguments)],
        check=False,
        cwd=cwd,
        env={**ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


def answer(*arguments: object, code: int = 0) -> Any:
    """Return the JSON document that the real program prints."""
    done = taskmill(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


class Done(NamedTuple):
    """The exit code of a command, and what it printed to stdout and to stderr."""

    code: int
    out: str
    wrong: str


class Here:
    """Commands in this process.

    While this process dispatches a file, another process must not have it open at the same time: a command reads the
    bytes of the file before it opens it, and when a process closes a file it loses the locks that SQLite holds for it.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: object, code: int = 0) -> str:
        """Return what a command prints to stdout."""
        done = self.run(*arguments)
        assert done.code == code, done.wrong
        return done.out

    def answer(self, *arguments: object, code: int = 0) -> Any:
        """Return the JSON document that a command prints."""
        return json.loads(self(*arguments, "--json", code=code))

    def refusal(self, *arguments: object, code: int) -> str:
        """Return the one sentence with which a command refuses."""
        done = self.run(*arguments)
        assert done.code == code, done.wrong
        assert done.out == ""
        assert done.wrong.startswith("taskmill: ")
        assert done.wrong.count("\n") == 1, done.wrong
        return done.wrong.removeprefix("taskmill: ").strip()

    def run(self, *arguments: object) -> Done:
        code = _call(arguments)
        printed = self._capsys.readouterr()
        return Done(code, printed.out, printed.err)

    def on_terminal(self, *arguments: object, columns: int = 100, lines: int = 20, code: int = 0) -> str:
        """Return everything that a command writes to a pseudo-terminal; it must report no error."""
        for name, value in {"TERM": "xterm", "COLUMNS": columns, "LINES": lines}.items():
            self._monkeypatch.setenv(name, str(value))
        end, other = os.openpty()
        seen: list[str] = []
        reading = threading.Thread(target=lambda: seen.extend(iter(lambda: read_terminal(end), "")))
        reading.start()
        try:
            with open(other, "w", encoding="utf-8") as terminal, pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "stdout", terminal)
                found = _call(arguments)
            reading.join()
        finally:
            os.close(end)
        assert (found, self._capsys.readouterr().err) == (code, "")
        return "".join(seen)

    @contextmanager
    def following(self, *arguments: object, code: int = 0) -> Generator[Printed]:
        """Run a command in a thread meanwhile; at the end of the block it must end by itself, without errors."""
        printed, codes = Printed(), list[int]()

        def run() -> None:
            _output.set(printed)
            try:
                codes.append(_call(arguments))
            finally:
                printed.end()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", _Router(sys.stdout))
            following = threading.Thread(target=copy_context().run, args=[run], daemon=True)
            following.start()
            yield printed
            following.join()
        assert (codes, self._capsys.readouterr().err) == ([code], "")


def _call(arguments: tuple[object, ...]) -> int:
    try:
        return main([*map(name_of, arguments)])
    except SystemExit as leaving:
        return int(leaving.code or 0)


def read_terminal(end: int) -> str:
    """Return what was written to the other end of a pseudo-terminal; empty once it is closed."""
    try:
        return os.read(end, 65536).decode(errors="replace")
    except OSError:
        # Linux reports the closed other end this way.
        return ""


class Printed(io.TextIOBase):
    """The lines that a followed command prints, while it prints them."""

    def __init__(self) -> None:
        self._pieces: queue.Queue[str | None] = queue.Queue()
        self._begun = ""

    def write(self, text: str) -> int:
        self._pieces.put(text)
        return len(text)

    def end(self) -> None:
        self._pieces.put(None)

    def heard(self, *words: str) -> str:
        """Return the next line with all these words in it; pytest's own timeout bounds the wait."""
        while line := self._line():
            if all(word in line for word in words):
                return line
        raise AssertionError(f"{words!r} was never said")

    def rest(self) -> list[str]:
        """Return the lines that are left, once the command has ended."""
        return [line.rstrip("\n") for line in iter(self._line, "")]

    def _line(self) -> str:
        while "\n" not in self._begun:
            piece = self._pieces.get()
            if piece is None:
                self._pieces.put(None)
                return ""
            self._begun += piece
        line, _, self._begun = self._begun.partition("\n")
        return f"{line}\n"


_output: ContextVar[Printed | None] = ContextVar("output", default=None)


class _Router(io.TextIOBase):
    """Writes to the output of the followed command if it is the one that writes, else as usual."""

    def __init__(self, usual: TextIO) -> None:
        self._usual = usual

    def write(self, text: str) -> int:
        return (_output.get() or self._usual).write(text)

    def flush(self) -> None:
        self._usual.flush()
