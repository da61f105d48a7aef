"""The demonstration's live view: counts, running tasks with their progress, groups, and what ended last."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskmill import Ending, Snapshot, Status
from taskmill.cli import words
from taskmill.cli.group_view import bar
from taskmill.cli.performance import Performance
from taskmill.cli.redrawn import Redrawn
from taskmill.cli.screen import STYLES
from taskmill.cli.task_bars import NARROW, running_table, short_type
from taskmill.events import TaskCancelled, TaskCompleted, TaskDeadLettered, TaskEvent, TaskExpired, TaskFailed


class LiveView(Redrawn):
    """Redraws the whole terminal at each look; leaves it as it was."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console, screen=True)

    def draw(self, performance: Performance) -> None:
        if performance.picture is not None:
            narrow = self._live.console.width < NARROW
            self._live.update(frame(performance, performance.picture, narrow=narrow), refresh=True)


def frame(performance: Performance, picture: Snapshot, *, narrow: bool) -> RenderableType:
    slots = picture.max_concurrency
    whole, below = Layout(), Layout(minimum_size=4)
    groups = max(len(picture.groups), 4) + 3
    below.split_row(
        Layout(Panel(_recent(performance.recent), title="ended last", title_align="left", border_style="dim"), ratio=3),
        Layout(
            Panel(
                _groups(picture, slots), title="groups: weight, share, waiting", title_align="left", border_style="dim"
            ),
            ratio=3 if narrow else 2,
        ),
    )
    whole.split_column(
        Layout(_head(performance, picture), size=3),
        Layout(
            Panel(
                running_table(picture.running, narrow=narrow),
                title=f"running {len(picture.running)} of {slots} slots",
                title_align="left",
                border_style="dim",
            ),
            size=slots + 2,
        ),
        Layout(below, minimum_size=groups),
    )
    return whole


def _head(performance: Performance, picture: Snapshot) -> RenderableType:
    total = len(performance.plan.pieces)
    top = Table.grid(expand=True, padding=(0, 1))
    top.add_column(no_wrap=True)
    top.add_column(ratio=1)
    top.add_column(no_wrap=True, justify="right")
    top.add_row(
        Text.assemble((" taskmill demo", "bold"), f"  {performance.ended:,} of {total:,} ended"),
        ProgressBar(total=total, completed=min(performance.ended, total)),
        Text(f"{performance.elapsed:.0f} s "),
    )
    ended = _counts(picture, Ending, "ended")
    if performance.retries_seen:
        ended.append(f" after {performance.retries_seen:,} retries")
    return Group(top, _counts(picture, Status, "active"), ended)


def _counts(picture: Snapshot, kinds: Iterable[Status | Ending], name: str) -> Text:
    line = Text(f" {name:<7}", style="dim", no_wrap=True, overflow="ellipsis")
    for kind in kinds:
        if count := picture.counts.get(kind, 0):
            line.append(f" {count:,}", style=f"not dim bold {STYLES.get(kind, '')}")
            line.append(f" {words.spoken(kind)} ", style=f"not dim {STYLES.get(kind, '')}")
    return line


def _groups(picture: Snapshot, slots: int) -> Table:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True, ratio=1)
    table.add_column(no_wrap=True, justify="right", style="dim", width=2)
    table.add_column(no_wrap=True, width=slots)
    table.add_column(no_wrap=True, justify="right", width=5)
    for group in picture.groups.values():
        table.add_row(
            Text(words.group_name(group.name), overflow="ellipsis"),
            f"{group.weight:g}",
            bar(group, is_shared=picture.is_shared),
            Text(f"{group.pending:,}", style="" if group.pending else "dim"),
        )
    return table


def _recent(events: Iterable[TaskEvent]) -> Table:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True, width=11)
    table.add_column(no_wrap=True, justify="right", style="dim", width=5)
    table.add_column(no_wrap=True, width=11)
    table.add_column(no_wrap=True, ratio=1)
    for event in reversed(list(events)):
        ending, detail = _told(event)
        about = " · ".join(filter(None, [event.label, detail]))
        table.add_row(
            Text(words.spoken(ending), style=STYLES[ending]),
            str(event.task_id),
            Text(short_type(event.type)),
            Text(words.printable(about), overflow="ellipsis"),
        )
    return table


def _told(event: TaskEvent) -> tuple[str, str]:
    match event:
        case TaskCompleted(duration=took):
            return "completed", words.duration(took)
        case TaskFailed(error=error):
            return "failed", words.first_line(error)
        case TaskDeadLettered(error=error):
            return "dead_letter", words.first_line(error or "")
        case TaskCancelled():
            return "cancelled", ""
        case TaskExpired(age=age):
            return "expired", f"not started within {words.duration(age)}"
        case _:
            return "completed", ""
