"""A progress bar with the time left, for a command that does one thing many times."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from taskmill.cli.views.live import LiveView

FRAME_INTERVAL = 0.1


class BarFrame:
    """Renders how much of a whole is done; remembers the speed."""

    def __init__(self, doing: str, shown: Callable[[int], str]) -> None:
        self._doing = doing
        self._shown = shown
        self._progress: Progress | None = None
        self._bar = TaskID(0)

    def __call__(self, state: tuple[int, int], console: Console) -> RenderableType:
        done, total = state
        if self._progress is None:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[counts]}"))
            self._progress = Progress(*columns, TimeRemainingColumn(), console=console, expand=True)
            self._bar = self._progress.add_task(self._doing, total=total, counts="")
        counts = f"{self._shown(done)} of {self._shown(total)}"
        self._progress.update(self._bar, completed=done, total=total, counts=counts)
        return self._progress.get_renderable()


@contextlib.contextmanager
def bar(doing: str, shown: Callable[[int], str]) -> Generator[Callable[[int, int], None], None, None]:
    """Draw a bar below other output, and erase it in the end; yield a function of the done and the whole amount."""
    drawn_at = 0.0
    with LiveView(BarFrame(doing, shown), below=True) as view:

        def draw(done: int, total: int) -> None:
            nonlocal drawn_at
            now = time.monotonic()
            if done >= total or now - drawn_at >= FRAME_INTERVAL:
                drawn_at = now
                view.draw((done, total))

        yield draw
