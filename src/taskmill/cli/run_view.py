"""The live view of ``taskmill run``: what runs, what waits and why, below what is said and logged.

It is drawn in place under the lines that others print, takes a bounded part of the terminal, and is gone when it ends.
A task keeps its line until it ends, and the view shrinks only after a while: what stands still can be read.

Drawing is for a thread of its own: a terminal that takes nothing, because somebody has stopped it or a connection
hangs, must not stop the work.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from taskmill import TaskRecord
from taskmill.cli import words
from taskmill.cli.outlook import Outlook
from taskmill.cli.screen import STYLES
from taskmill.cli.task_bars import NARROW, running_table, together

MOST_LINES = 12
"""Of running tasks."""
OTHER_LINES = 8
"""Of the view and above it, that are never taken."""
CALM = 10
"""So many looks the view stays as high as it was."""
SHOW_CURSOR = b"\r\n\x1b[?25h"


class RunView:
    """Redraws itself at each look. What is printed or logged meanwhile appears above it."""

    def __init__(self, target: str, console: Console | None = None) -> None:
        self._target = target
        self._live = Live(
            console=console,
            auto_refresh=False,
            transient=True,
            # Where errors go to a file, they shall go there.
            redirect_stderr=sys.stderr.isatty(),
        )
        self._places = Places()
        self._is_over = False
        self._logging = contextlib.ExitStack()

    def __enter__(self) -> Self:
        before = sys.stdout, sys.stderr
        self._live.start()
        self._logging.enter_context(_logs_follow(dict(zip(before, (sys.stdout, sys.stderr), strict=True))))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._logging.close()
        self._live.stop()

    def abandon(self) -> None:
        """The process ends now, without ceremony; the terminal shall have its cursor, if it takes anything at all."""
        if sys.__stdout__ is not None and select.select([], [terminal := sys.__stdout__.fileno()], [], 0)[1]:
            os.write(terminal, SHOW_CURSOR)

    def draw(self, running: Sequence[TaskRecord], outlook: Outlook, ended: Mapping[str, int]) -> None:
        if self._is_over:
            return
        console = self._live.console
        most = max(1, min(MOST_LINES, console.height - OTHER_LINES))
        shown, rest = self._places.settle(running, most)
        at_work = outlook.at_work(running)
        head = f"{at_work:,} of {words.plural(outlook.picture.max_concurrency, 'slot')} at work"
        parts: list[RenderableType] = [
            _line("─" * console.width, "dim"),
            _head(self._target, f"{head}, {outlook.counts}", f"ended here: {words.counted(ended)}"),
            _table(shown, outlook, narrow=console.width < NARROW),
        ]
        if rest:
            said, hidden = together(rest), at_work - len(running) + len(rest)
            parts.append(_line(f"  … and {hidden:,} more" + (f", {said}" if said else ""), "dim"))
        for name, sentence in outlook.lines():
            text = Text(words.printable(f"{name:<9} {sentence}"), style=STYLES["note"] if name != "waiting" else "")
            parts.extend(_first_lines(text, console))
        self._live.update(Group(*parts), refresh=True)


class Places:
    """Who stands in which line."""

    def __init__(self) -> None:
        self._ids: list[int | None] = []
        self._heights: deque[int] = deque(maxlen=CALM)

    def settle(self, running: Sequence[TaskRecord], most: int) -> tuple[list[TaskRecord | None], list[TaskRecord]]:
        """The lines, ``None`` for an empty one, and those for whom there is none."""
        found = {record.id: record for record in running}
        self._ids = [id if id in found else None for id in self._ids[:most]]
        placed = {id for id in self._ids if id is not None}
        coming = (id for id in sorted(found) if id not in placed)
        for place, id in enumerate(self._ids):
            if id is None:
                self._ids[place] = next(coming, None)
        self._ids += [id for _, id in zip(range(most - len(self._ids)), coming, strict=False)]
        while self._ids and self._ids[-1] is None:
            self._ids.pop()
        self._heights.append(len(self._ids))
        height = min(max(self._heights), most)
        lines = [None if id is None else found[id] for id in self._ids]
        standing = set(self._ids)
        rest = [record for record in running if record.id not in standing]
        return [*lines, *([None] * (height - len(lines)))], rest


def _table(shown: Sequence[TaskRecord | None], outlook: Outlook, *, narrow: bool) -> RenderableType:
    return running_table(shown, narrow=narrow, with_groups=any(outlook.picture.groups)) if shown else Text()


def _head(target: str, middle: str, right: str) -> Table:
    head = Table.grid(expand=True, padding=(0, 2, 0, 0))
    head.add_column(no_wrap=True, overflow="ellipsis")
    head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    head.add_column(no_wrap=True, justify="right", style="dim")
    head.add_row(Text(words.printable(target), style="bold"), Text(middle), Text(right))
    return head


def _line(text: str, style: str = "") -> Text:
    return Text(words.printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _first_lines(text: Text, console: Console) -> Iterator[Text]:
    """A sentence on two lines at most."""
    first, *more = text.wrap(console, console.width)
    yield first
    if more:
        rest = Text(" ").join(more)
        rest.truncate(console.width, overflow="ellipsis")
        yield rest


@contextlib.contextmanager
def _logs_follow(streams: Mapping[TextIO, TextIO]) -> Generator[None, None, None]:
    """Log handlers that write to the old streams write to the new ones, or their lines would tear the view."""
    moved: list[tuple[logging.StreamHandler[Any], TextIO]] = []
    for handler in _handlers():
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


def _handlers() -> Iterator[logging.StreamHandler[Any]]:
    """Those of every logger that write to a stream, but not to a file."""
    loggers = [logging.getLogger(), *map(logging.getLogger, list(logging.Logger.manager.loggerDict))]
    for logger in loggers:
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                yield handler
