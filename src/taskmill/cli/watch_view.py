"""One task on a terminal: drawn in place, so that its last picture stays to be read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskmill import HistoryRecord, Status, TaskRecord
from taskmill.cli import words
from taskmill.cli.redrawn import Redrawn
from taskmill.cli.screen import STYLES
from taskmill.cli.sight import Family, Sight
from taskmill.cli.task_bars import NARROW, running_table, together

MOST_LINES = 10
"""Of children."""
OTHER_LINES = 8
"""What else there may be to say."""
LONGEST_BAR = 60


class WatchView(Redrawn):
    """Redraws a few lines at each look."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console, screen=False)

    def draw(self, sight: Sight) -> None:
        console = self._live.console
        self._live.update(picture(sight, console.width, console.height), refresh=True)


def picture(sight: Sight, width: int, height: int) -> RenderableType:
    return Group(*_parts(sight, width, height))


def _parts(sight: Sight, width: int, height: int) -> Iterator[RenderableType]:
    record = sight.record
    yield _head(record)
    if record.progress is not None and record.progress.fraction is not None:
        yield _bar(record.progress.fraction, min(width - 7, LONGEST_BAR), has_ended=sight.ending is not None)
    if detail := _detail(record):
        yield _line(detail, style="dim")
    if isinstance(record, HistoryRecord):
        if record.error:
            yield _line(words.first_line(record.error), style="red")
        if record.result is not None:
            yield _line(f"result {words.compact(record.result)}")
    elif sight.reason:
        yield Text(words.printable(sight.reason))
    if record.last_error and isinstance(record, TaskRecord) and record.status is not Status.RUNNING:
        yield _line(f"last error: {words.first_line(record.last_error)}", style="red")
    if sight.family is not None:
        yield from _family(sight.family, width, max(1, min(MOST_LINES, height - OTHER_LINES)))


def _head(record: TaskRecord | HistoryRecord) -> Table:
    head = Table.grid(expand=True, padding=(0, 2, 0, 0))
    head.add_column(no_wrap=True)
    head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    head.add_column(no_wrap=True, justify="right")
    state = record.ending if isinstance(record, HistoryRecord) else record.status
    head.add_row(
        Text(f"task {record.id}", style="bold"),
        Text(words.printable(" ".join(filter(None, [record.type, record.label or record.key])))),
        Text(_state(record), style=STYLES[state]),
    )
    return head


def _state(record: TaskRecord | HistoryRecord) -> str:
    if isinstance(record, HistoryRecord):
        return words.ending(record)
    since = ""
    if record.status is Status.RUNNING and record.started_at is not None:
        since = f" for {words.duration(datetime.now(UTC) - record.started_at)}"
    again = f", attempt {record.attempt}" if record.attempt > 1 else ""
    return f"{record.status}{since}{again}"


def _bar(fraction: float, width: int, *, has_ended: bool) -> Table:
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(width=width)
    row.add_column(no_wrap=True)
    style = "bar.complete" if not has_ended or fraction >= 1 else "dim"
    row.add_row(
        ProgressBar(total=1, completed=fraction, width=width, complete_style=style), Text(f"{int(fraction * 100):>3}%")
    )
    return row


def _detail(record: TaskRecord | HistoryRecord) -> str:
    """Bytes, rate, time left and message; the fraction has a bar."""
    if record.progress is None:
        return ""
    return words.progress(record.progress, has_ended=isinstance(record, HistoryRecord), with_fraction=False)


def _family(family: Family, width: int, most: int) -> Iterator[RenderableType]:
    yield _line(f"children: {family.sentence}")
    shown, rest = family.under_way[:most], family.under_way[most:]
    if shown:
        yield running_table(shown, narrow=width < NARROW, with_groups=False)
    hidden = sum(family.counts.get(status, 0) for status in (Status.RUNNING, Status.WAITING)) - len(shown)
    if rest and hidden > 0:
        yield _line(
            f"  … and {hidden:,} more under way" + (f", {said}" if (said := together(rest)) else ""), style="dim"
        )


def _line(text: str, style: str = "") -> Text:
    """One line, cut short where the terminal ends."""
    return Text(words.printable(text), style=style, no_wrap=True, overflow="ellipsis")
