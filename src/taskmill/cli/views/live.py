"""The live view, drawn again and again in one place of the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, Self, TextIO, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from taskmill.cli import text

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


def one_line(line: str, style: str = "") -> Text:
    """Return the line, cut off at the edge of the terminal."""
    return Text(text.printable(line), style=style, no_wrap=True, overflow="ellipsis")
