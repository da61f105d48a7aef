"""The output of a command: lines, names with values, JSON for programs, and the exit code.

On a terminal lines are wrapped and have colours; into a pipe the same text is printed plain. Tables are in
:mod:`taskmill.cli.tables`. ``taskmill.to_json`` makes the JSON.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable

from taskmill import (
    AlreadyRunning,
    DuplicateTask,
    InvalidState,
    StoreBusy,
    StoreMoved,
    TaskmillError,
    TaskNotFound,
)
from taskmill.cli import cells
from taskmill.cli.text import printable

DONE = 0
REFUSED = 1
"""The command was understood, but there is no such task, a problem was found, or another process dispatches."""
WRONG = 2
"""The command line or the file is wrong; argparse uses the same code."""
INTERRUPTED = 130


class Refusal(Exception):
    """Ends a command: ``main`` prints the message and returns the code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def exit_code(wrong: TaskmillError) -> int:
    refused = isinstance(wrong, AlreadyRunning | DuplicateTask | InvalidState | StoreBusy | StoreMoved | TaskNotFound)
    return REFUSED if refused else WRONG


# Lines and tables for people

INSTALL_CLI = "pip install 'taskmill[cli]'"

STYLES = {
    "running": "cyan",
    "pending": "default",
    "scheduled": "blue",
    "blocked": "yellow",
    "paused": "yellow",
    "waiting": "magenta",
    "completed": "green",
    "failed": "red",
    "dead_letter": "bold red",
    "cancelled": "yellow",
    "superseded": "dim",
    "expired": "yellow",
    "dependency_failed": "red",
    "ok": "green",
    "alive": "green",
    "dead": "bold red",
    "note": "yellow",
    "problem": "bold red",
}

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}
"""The escape codes of each style."""


def has_rich() -> bool:
    return importlib.util.find_spec("rich") is not None


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def allows_live_view(*, plain: bool = False) -> bool:
    """True if a live view may be drawn; print a hint if only rich is missing."""
    if plain or not is_terminal():
        return False
    if not has_rich():
        complain(f"the live view needs rich: {INSTALL_CLI}; continuing with plain lines")
        return False
    return True


def say(text: str = "") -> None:
    say_printable(printable(text))


def say_printable(lines: str) -> None:
    """Print lines that have no control characters except those of :func:`styled`."""
    sys.stdout.write(lines + "\n")
    sys.stdout.flush()


def discard() -> None:
    """Discard all further output: the terminal was closed, or the reader of the pipe has ended.

    Otherwise flushing the buffer at exit would fail again.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)


def say_script(text: str) -> None:
    """Print a text of our own as it is, for another program."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def styled(text: str, style: str) -> str:
    """Return the text in a style such as ``bold red``, unless colours are off or this is no terminal."""
    if not has_colours():
        return text
    codes = ";".join(str(_CODES[word]) for word in style.split() if word in _CODES)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


def has_colours() -> bool:
    """True if the output is a terminal with colours; the environment variable NO_COLOR switches them off."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def paragraph(text: str, *, indent: str = "") -> None:
    """Print text. On a terminal, wrap it between words and indent its further lines."""
    for line in cells.wrapped(printable(" ".join(text.split())), _width(), indent=indent):
        say(line)


def _width() -> int:
    """Return the width of the terminal. In a pipe a line may have any length."""
    return terminal_width() if is_terminal() else sys.maxsize


def terminal_width() -> int:
    """Return the variable COLUMNS, else the width of the terminal, else 80.

    ``shutil.get_terminal_size`` does the same, but importing shutil loads every compression module.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns or 80
    except (OSError, ValueError):
        return 80


def complain(text: str) -> None:
    """Print one line to stderr. On a terminal, wrap it between words."""
    sys.stdout.flush()
    width = terminal_width() if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else sys.maxsize
    lines = cells.wrapped(f"taskmill: {printable(text)}", width, indent="  ")
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


def facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line; the further lines of a value are indented below its first."""
    listed = list(pairs)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        lines = value.splitlines() or [""]
        first, *more = (part for line in lines for part in cells.wrapped(printable(line), _width() - width - 2))
        say_printable(f"{styled(name.ljust(width), 'dim')}  {first}".rstrip())
        for line in more:
            say_printable(" " * (width + 2) + line)


# JSON for programs


def print_json(value: object) -> None:
    """Print one indented JSON document."""
    # Imported here, because text for people does not need it.
    from taskmill.model.json_text import to_indented_json

    _write(to_indented_json(value))


def print_json_line(value: object) -> None:
    """Print one JSON object on one line, and flush it."""
    from taskmill import to_json

    _write(to_json(value))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
