"""The live view of ``taskmill watch``: one task with its progress, why it waits, and its children."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskmill import HistoryRecord, Status, TaskRecord
from taskmill.cli import text
from taskmill.cli.output import STYLES
from taskmill.cli.views.live import one_line
from taskmill.cli.views.polling import Children, TaskState, state_of
from taskmill.cli.views.running import running_table, together

MOST_ROWS = 10
"""The largest number of children that get a row."""
OTHER_LINES = 8
"""Terminal lines reserved for everything except the rows of children."""
LONGEST_BAR = 60


def task_frame(state: TaskState, console: Console) -> RenderableType:
    return Group(*_parts(state, console.width, console.height))


def _parts(state: TaskState, width: int, height: int) -> Iterator[RenderableType]:
    record = state.record
    yield _head(record)
    if record.progress is not None and record.progress.fraction is not None:
        yield _bar(record.progress.fraction, min(width - 7, LONGEST_BAR), has_ended=state.ended is not None)
    if detail := _detail(record):
        yield one_line(detail, "dim")
    if isinstance(record, HistoryRecord):
        if record.error:
            yield one_line(text.first_line(record.error), "red")
        if record.result is not None:
            yield one_line(f"result {text.compact(record.result)}")
    elif state.reason:
        yield Text(text.printable(state.reason))
    if record.last_error and isinstance(record, TaskRecord) and record.status is not Status.RUNNING:
        yield one_line(f"last error: {text.first_line(record.last_error)}", "red")
    if state.children is not None:
        yield from _children(state.children, width, max(1, min(MOST_ROWS, height - OTHER_LINES)))


def _head(record: TaskRecord | HistoryRecord) -> Table:
    head = Table.grid(expand=True, padding=(0, 2, 0, 0))
    head.add_column(no_wrap=True)
    head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    head.add_column(no_wrap=True, justify="right")
    head.add_row(
        Text(f"task {record.id}", style="bold"),
        Text(text.printable(" ".join(filter(None, [record.type, record.label or record.key])))),
        Text(_state(record), style=STYLES[state_of(record)]),
    )
    return head


def _state(record: TaskRecord | HistoryRecord) -> str:
    if isinstance(record, HistoryRecord):
        return text.ending(record)
    since = ""
    if record.status is Status.RUNNING and record.started_at is not None:
        since = f" for {text.duration(datetime.now(UTC) - record.started_at)}"
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
    """Return bytes, rate, time left and message; the fraction has a bar."""
    if record.progress is None:
        return ""
    return text.progress(record.progress, has_ended=isinstance(record, HistoryRecord), with_fraction=False)


def _children(children: Children, width: int, most: int) -> Iterator[RenderableType]:
    yield one_line(f"children: {children.sentence}")
    shown, rest = children.active[:most], children.active[most:]
    if shown:
        yield running_table(shown, width, with_groups=False)
    hidden = sum(children.counts.get(status, 0) for status in (Status.RUNNING, Status.WAITING)) - len(shown)
    if rest and hidden > 0:
        sums = together(rest)
        yield one_line(f"  … and {hidden:,} more under way" + (f", {sums}" if sums else ""), "dim")
