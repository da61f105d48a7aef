"""The live view of ``taskmill move``: a bar for copying and one for comparing, with the time left."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from taskmill.cli import text
from taskmill.cli.views.running import NARROW
from taskmill.moving import Step

PREFIX = "taskmill_"


class MoveFrame:
    """Renders the steps of one move; remembers the speed of each phase."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}

    def __call__(self, step: Step, console: Console) -> RenderableType:
        if self._progress is None:
            self._progress = _progress(console)
        table = text.spoken(step.table.removeprefix(PREFIX))
        if step.phase not in self._bars:
            self._bars[step.phase] = self._progress.add_task(
                step.phase, total=step.total, completed=step.done, table=table
            )
        self._progress.update(self._bars[step.phase], completed=step.done, total=step.total, table=table)
        return self._progress.get_renderable()


def _progress(console: Console) -> Progress:
    # On a narrow terminal the bar and the time left are more important than the table.
    table = [] if console.width < NARROW else [TextColumn("{task.fields[table]:<12}", style="dim")]
    return Progress(
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeRemainingColumn(),
        *table,
        console=console,
        expand=True,
    )
