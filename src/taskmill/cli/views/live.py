"""The live view, drawn again and again in one place of the terminal, and the rows of running tasks in it."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Generic, Self, TextIO, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskmill import TaskRecord
from taskmill.cli import cells, text

SHOW_CURSOR = b"\r\n\x1b[?25h"

State = TypeVar("State")


class LiveView(Generic[State]):
    """Draws each new state with ``render`` while its ``with`` block lasts.

    With ``screen`` it takes the whole terminal and restores it at the end. With ``below`` it is drawn below the lines
    that are printed and logged meanwhile, and is erased at the end. With neither, the last picture stays.

    A terminal may take nothing for a while, because it was stopped or its connection hangs, and drawing then blocks.
    Where other work must continue, call ``draw`` in a thread.
    """

    def __init__(
        self,
        render: Callable[[State, Console], RenderableType],
        console: Console | None = None,
        *,
        screen: bool = False,
        below: bool = False,
    ) -> None:
        self._render = render
        self._live = Live(
            console=console,
            screen=screen,
            transient=below,
            auto_refresh=False,
            redirect_stdout=screen or below,
            # Errors that go to a file must not be diverted to the terminal.
            redirect_stderr=below and sys.stderr.isatty(),
        )
        self._follows_logs = below
        self._is_over = False
        self._logs = contextlib.ExitStack()

    def __enter__(self) -> Self:
        before = sys.stdout, sys.stderr
        self._live.start()
        if self._follows_logs:
            self._logs.enter_context(_redirected_logs(dict(zip(before, (sys.stdout, sys.stderr), strict=True))))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._logs.close()
        self._live.stop()

    def draw(self, state: State) -> None:
        if not self._is_over:
            self._live.update(self._render(state, self._live.console), refresh=True)

    def show_cursor(self) -> None:
        """Show the cursor again before the process exits at once, if the terminal takes output at all."""
        if sys.__stdout__ is not None and select.select([], [terminal := sys.__stdout__.fileno()], [], 0)[1]:
            os.write(terminal, SHOW_CURSOR)


@contextlib.contextmanager
def _redirected_logs(streams: Mapping[TextIO, TextIO]) -> Generator[None, None, None]:
    """Let log handlers write to the new streams instead of the old ones, so that their lines appear above the view."""
    moved: list[tuple[logging.StreamHandler[Any], TextIO]] = []
    for handler in _stream_handlers():
        before = handler.stream
        after = next((new for old, new in streams.items() if old is before), before)
        if after is not before:
            handler.setStream(after)
            moved.append((handler, before))
    try:
        yield
    finally:
        for handler, before in moved:
            handler.setStream(before)


def _stream_handlers() -> Iterator[logging.StreamHandler[Any]]:
    """Return the handlers of all loggers that write to a stream other than a file."""
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.Logger.manager.loggerDict))]
    for logger in loggers:
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                yield handler


# Running tasks: a row with a progress bar for each, in columns of fixed width

NARROW = 96
"""On terminals with fewer columns, names and bars are shorter and the time left is not shown."""


def running_table(records: Iterable[TaskRecord | None], *, narrow: bool, with_groups: bool = True) -> Table:
    """Return a table with a row per record, and an empty row for ``None``."""
    shown = list(records)
    name, bar, pace = (11, 8, 23) if narrow else (13, 16, 38)
    longest = max((len(str(record.id)) for record in shown if record is not None), default=0)
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(justify="right", no_wrap=True, style="dim", width=max(longest, 5))
    table.add_column(no_wrap=True, overflow="ellipsis", width=name)
    if with_groups:
        table.add_column(no_wrap=True, overflow="ellipsis", style="dim", width=name)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, width=bar)
    table.add_column(no_wrap=True, overflow="ellipsis", width=pace)
    now = datetime.now(UTC)
    for record in shown:
        if record is None:
            table.add_row(" ")
            continue
        table.add_row(
            str(record.id),
            Text(cells.shortened(text.printable(short_type(record.type)), name)),
            *([Text(cells.shortened(text.printable(record.group or "-"), name))] if with_groups else []),
            Text(text.printable(text.subject(record))),
            _bar(record, bar),
            Text(text.printable(_pace(record, now, with_eta=not narrow)), style="dim"),
        )
    return table


def together(records: Collection[TaskRecord]) -> str:
    """Sum up the progress of tasks that have no row: ``40% together, 3.1 MB/s``."""
    known = [record.progress for record in records if record.progress is not None]
    fractions = [progress.fraction for progress in known if progress.fraction is not None]
    rate = sum(progress.rate for progress in known if progress.rate)
    parts = [f"{sum(fractions) / len(records):.0%} together"] if fractions else []
    return ", ".join([*parts, f"{text.size(rate)}/s"] if rate else parts)


def one_line(line: str, style: str = "") -> Text:
    """Return the line, cut off at the edge of the terminal."""
    return Text(text.printable(line), style=style, no_wrap=True, overflow="ellipsis")


def short_type(type: str) -> str:
    return type.partition("::")[2] or type


def _bar(record: TaskRecord, width: int) -> ProgressBar | Text:
    """Return a bar, or nothing if the task reports no fraction: an empty bar would mean 0 %."""
    fraction = None if record.progress is None else record.progress.fraction
    return Text() if fraction is None else ProgressBar(total=1, completed=fraction, width=width)


def _pace(record: TaskRecord, now: datetime, *, with_eta: bool) -> str:
    progress = record.progress
    if progress is not None and progress.fraction is not None:
        shown = f"{progress.fraction:>4.0%}"
        if progress.total_bytes:
            shown += f" of {text.size(progress.total_bytes)}"
        if progress.rate:
            shown += f" {text.size(progress.rate)}/s"
        elif progress.message:
            return f"{shown} {progress.message}"
        return f"{shown} {text.duration(progress.eta)} left" if with_eta and progress.eta else shown
    if progress is not None and progress.done_bytes:
        return f"{text.size(progress.done_bytes)}" + (f" {text.size(progress.rate)}/s" if progress.rate else "")
    if progress is not None and progress.message:
        return progress.message
    if record.retries:
        return f"retry {record.retries}"
    if record.started_at is not None:
        return f"for {text.duration(now - record.started_at)}"
    return ""
