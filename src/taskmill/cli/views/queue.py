"""The live view of ``taskmill watch STORE``: the whole queue, within the height of the terminal.

From top to bottom: counts, warnings, running tasks, groups, the next due task and the last endings. Running tasks,
groups and endings share the lines that are left; what does not fit is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from taskmill import Ending, HistoryRecord, Snapshot, Status
from taskmill.cli import cells, text
from taskmill.cli.output import STYLES
from taskmill.cli.views.group_table import group_table
from taskmill.cli.views.live import one_line
from taskmill.cli.views.polling import QueueState
from taskmill.cli.views.run import Rows
from taskmill.cli.views.running import running_table, together

TYPE_WIDTH = 24


class Lines(NamedTuple):
    """How many rows each part of the view may have."""

    running: int
    groups: int
    endings: int


class QueueFrame:
    """Renders the states of one queue; remembers which task is in which row."""

    def __init__(self, name: str, *, fills_screen: bool) -> None:
        self._name = name
        self._fills_screen = fills_screen
        self._rows = Rows()

    def __call__(self, state: QueueState, console: Console) -> RenderableType:
        head = [*self._head(state, console.width)]
        height = console.height - 1 if self._fills_screen else 1_000
        lines = shared_lines(state, height - len(head))
        parts: list[RenderableType] = [*head, *self._running(state, lines.running, console.width)]
        parts += [*_groups(state.snapshot, lines.groups), *_due(state), *_endings(state, lines.endings, console.width)]
        return Group(*parts)

    def _head(self, state: QueueState, width: int) -> Iterator[RenderableType]:
        now = f"{datetime.now().astimezone():%H:%M:%S}"
        end = f"{now}  Ctrl-C ends" if self._fills_screen else now
        name = cells.shortened(text.printable(self._name), max(width - len(end) - 2, 8))
        yield Text.assemble((name, "bold"), " " * max(width - cells.width(name) - len(end), 2), (end, "dim"))
        snapshot = state.snapshot
        yield _counts("active", {str(kind): snapshot.counts.get(kind, 0) for kind in Status})
        yield _counts("ended", {str(kind): snapshot.counts.get(kind, 0) for kind in Ending})
        for sentence in state.warnings():
            yield one_line(sentence, STYLES["note"])

    def _running(self, state: QueueState, most: int, width: int) -> Iterator[RenderableType]:
        if not state.running:
            return
        yield Text()
        rows, rest = self._rows.assign(state.running, most)
        yield running_table(rows, width, with_groups=any(state.snapshot.groups))
        if rest:
            sums, hidden = together(rest), state.running_count - len(state.running) + len(rest)
            yield one_line(f"  … and {hidden:,} more run" + (f", {sums}" if sums else ""), "dim")


def shared_lines(state: QueueState, room: int) -> Lines:
    """Divide the lines that are left: half of them for running tasks, and what a part does not need is for the next.

    A part also takes an empty line before it and a line for what it hides; the groups also have headings.
    """
    due = 2 if state.snapshot.next_due is not None else 0
    wanted = len(state.running), len(state.snapshot.groups), len(state.endings)
    room -= due + 2 * (wanted[0] > 0) + 3 * (wanted[1] > 0) + (wanted[2] > 0)
    endings = min(wanted[2], max(room // 4, 1))
    groups = min(wanted[1], max((room - endings) // 3, 1))
    running = min(wanted[0], max(room - endings - groups, 1))
    groups = min(wanted[1], max(room - endings - running, 1))
    return Lines(running, groups, min(wanted[2], max(room - groups - running, 1)))


def _counts(name: str, counts: dict[str, int]) -> Text:
    line = Text(f"{name:<8}", style="dim", no_wrap=True, overflow="ellipsis")
    found = [(kind, count) for kind, count in counts.items() if count]
    for place, (kind, count) in enumerate(found):
        line.append(", " if place else "", style="not dim")
        line.append(f"{count:,} {text.spoken(kind)}", style=f"not dim {STYLES.get(kind, '')}")
    if not found:
        line.append("none", style="not dim")
    return line


def _groups(snapshot: Snapshot, most: int) -> Iterator[RenderableType]:
    if not any(snapshot.groups):
        return
    yield Text()
    found = group_table(snapshot, most)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in found.headings:
        is_name = heading == "group"
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=True, overflow="ellipsis")
    for row in found.rows:
        table.add_row(*(Text(cells.shortened(text.printable(cell), TYPE_WIDTH)) for cell in row))
    yield table
    if found.hidden:
        yield one_line(f"  … and {found.hidden:,} more groups with less to do", "dim")


def _due(state: QueueState) -> Iterator[RenderableType]:
    due = state.snapshot.next_due
    if due is None or due.run_at is None:
        return
    more = state.snapshot.counts.get(Status.SCHEDULED, 0) - 1
    others = f"; {more:,} more scheduled" if more > 0 else ""
    yield Text()
    yield one_line(f"next due: task {due.id} {due.type} {text.subject(due)} {text.ago(due.run_at)}{others}")


def _endings(state: QueueState, most: int, width: int) -> Iterator[RenderableType]:
    if not state.endings:
        return
    yield Text()
    for record in state.endings[:most]:
        yield _ending(record, width)


def _ending(record: HistoryRecord, width: int) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{record.id:>6} ", style="dim")
    line.append(text.ending(record), style=STYLES[record.ending])
    line.append(f"  {cells.shortened(text.printable(record.type), TYPE_WIDTH)}  ")
    when = text.ago(record.ended_at)
    error = text.first_line(record.error) if record.error else ""
    about = " · ".join(filter(None, [text.subject(record), error]))
    room = max(width - line.cell_len - len(when) - 2, 4)
    line.append(f"{cells.shortened(text.printable(about), room)}  ")
    line.append(when, style="dim")
    return line
