"""The live bar of ``taskmill move``: how far copying and comparing are, and how long they will take."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from taskmill.cli import words
from taskmill.cli.task_bars import NARROW
from taskmill.moving import Step

PREFIX = "taskmill_"


class MoveView:
    """A line for each phase; both are gone when it ends."""

    def __init__(self, console: Console | None = None) -> None:
        shown = console or Console()
        # On a narrow terminal the bar and the time left come first.
        table = [] if shown.width < NARROW else [TextColumn("{task.fields[table]:<12}", style="dim")]
        self._progress = Progress(
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TimeRemainingColumn(),
            *table,
            console=shown,
            transient=True,
            expand=True,
            redirect_stderr=sys.stderr.isatty(),
        )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, step: Step) -> None:
        table = words.spoken(step.table.removeprefix(PREFIX))
        if step.phase not in self._bars:
            self._bars[step.phase] = self._progress.add_task(
                step.phase, total=step.total, completed=step.done, table=table
            )
        self._progress.update(self._bars[step.phase], completed=step.done, total=step.total, table=table)
