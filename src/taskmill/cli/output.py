"""The output of a command: lines, tables, JSON for programs, and the exit code.

Lines and tables have colours on a terminal if rich is installed. Without rich, or into a pipe, the same text appears in
plain columns and nothing is cut off. ``taskmill.to_json`` makes the JSON.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import chain

from taskmill import AlreadyRunning, InvalidState, StoreBusy, StoreMoved, TaskmillError, TaskNotFound, to_json
from taskmill.cli.text import printable
from taskmill.model.json_text import to_indented_json

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
    refused = isinstance(wrong, AlreadyRunning | InvalidState | StoreBusy | StoreMoved | TaskNotFound)
    return REFUSED if refused else WRONG


# Lines and tables for people

INSTALL_RICH = "pip install 'taskmill[cli]'"

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


def has_rich() -> bool:
    return importlib.util.find_spec("rich") is not None


def is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def allows_live_view(*, plain: bool = False) -> bool:
    """True if a live view may be drawn; complain if only rich is missing for it."""
    if plain or not is_terminal():
        return False
    if not has_rich():
        complain(f"the live view needs rich: {INSTALL_RICH}; continuing with plain lines")
        return False
    return True


def say(text: str = "") -> None:
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def paragraph(text: str, *, indent: str = "") -> None:
    """Print text, on a terminal wrapped between words; its further lines are indented."""
    import shutil

    width = shutil.get_terminal_size().columns if is_terminal() else sys.maxsize
    for line in textwrap.wrap(text, width, subsequent_indent=indent):
        say(line)


def complain(text: str) -> None:
    """Print one line to stderr."""
    sys.stdout.flush()
    sys.stderr.write(f"taskmill: {printable(text)}\n")
    sys.stderr.flush()


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: frozenset[str] = frozenset(),
    wrap: frozenset[str] = frozenset(),
) -> None:
    """Print rows under headings, the columns of ``numbers`` aligned right.

    On a terminal the columns of ``wrap`` are wrapped between words, and what is still too wide is cut off, in the last
    column first.
    """
    cleaned = [[printable(cell) for cell in row] for row in rows]
    if is_terminal() and has_rich():
        _rich_table(headings, cleaned, numbers, wrap)
    else:
        _plain_table(headings, cleaned, numbers)


def facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line; the further lines of a value are indented below its first."""
    listed = list(pairs)
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        first, *more = value.splitlines() or [""]
        say(f"{name:<{width}}  {first}".rstrip())
        for line in more:
            say(" " * (width + 2) + line)


def _plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str]) -> None:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in chain([headings], rows):
        cells = [
            cell.rjust(width) if heading in numbers else cell.ljust(width)
            for heading, cell, width in zip(headings, row, widths, strict=True)
        ]
        say("  ".join(cells).rstrip())


def _rich_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[str], wrap: frozenset[str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        gives_way = heading in wrap or heading == headings[-1]
        shown.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=not gives_way)
    for row in rows:
        cells = [
            Text(cell, style=STYLES.get(cell, ""), no_wrap=heading not in wrap, overflow="ellipsis")
            for heading, cell in zip(headings, row, strict=True)
        ]
        shown.add_row(*cells)
    Console().print(shown)


# JSON for programs


def print_json(value: object) -> None:
    """Print one indented JSON document."""
    _write(to_indented_json(value))


def print_json_line(value: object) -> None:
    """Print one JSON object on one line, and flush it."""
    _write(to_json(value))


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
