"""The live view of ``taskmill demo``: counts, running tasks with their progress, groups, and the last endings."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskmill import Ending, Snapshot, Status
from taskmill.cli import text
from taskmill.cli.demo.run import DemoRun
from taskmill.cli.output import STYLES
from taskmill.cli.views.groups import bar
from taskmill.cli.views.running import NARROW, running_table, short_type
from taskmill.events import TaskCancelled, TaskCompleted, TaskDeadLettered, TaskEvent, TaskExpired, TaskFailed


def demo_frame(run: DemoRun, console: Console) -> RenderableType:
    snapshot, narrow = run.snapshot, console.width < NARROW
    if snapshot is None:
        return Text()
    slots = snapshot.max_concurrency
    whole, below = Layout(), Layout(minimum_size=4)
    groups = max(len(snapshot.groups), 4) + 3
    below.split_row(
        Layout(Panel(_recent(run.recent), title="ended last", title_align="left", border_style="dim"), ratio=3),
        Layout(
            Panel(
                _groups(snapshot, slots), title="groups: weight, share, waiting", title_align="left", border_style="dim"
            ),
            ratio=3 if narrow else 2,
        ),
    )
    whole.split_column(
        Layout(_head(run, snapshot), size=3 if run.link is None else 4),
        Layout(
            Panel(
                running_table(snapshot.running, console.width - 4),
                title=f"running {len(snapshot.running)} of {slots} slots",
                title_align="left",
                border_style="dim",
            ),
            size=slots + 2,
        ),
        Layout(below, minimum_size=groups),
    )
    return whole


def _head(run: DemoRun, snapshot: Snapshot) -> RenderableType:
    total = len(run.plan.pieces)
    top = Table.grid(expand=True, padding=(0, 1))
    top.add_column(no_wrap=True)
    top.add_column(ratio=1)
    top.add_column(no_wrap=True, justify="right")
    top.add_row(
        Text.assemble((" taskmill demo", "bold"), f"  {run.ended:,} of {total:,} ended"),
        ProgressBar(total=total, completed=min(run.ended, total)),
        Text(f"{run.elapsed:.0f} s "),
    )
    ended = _counts(snapshot, Ending, "ended")
    if run.retries_seen:
        ended.append(f" after {run.retries_seen:,} retries")
    lines: list[RenderableType] = [top, _counts(snapshot, Status, "active"), ended]
    return Group(*lines if run.link is None else [*lines, Text(f" {run.link}", style="dim", no_wrap=True)])


def _counts(snapshot: Snapshot, kinds: Iterable[Status | Ending], name: str) -> Text:
    line = Text(f" {name:<7}", style="dim", no_wrap=True, overflow="ellipsis")
    for kind in kinds:
        if count := snapshot.counts.get(kind, 0):
            line.append(f" {count:,}", style=f"not dim bold {STYLES.get(kind, '')}")
            line.append(f" {text.spoken(kind)} ", style=f"not dim {STYLES.get(kind, '')}")
    return line


def _groups(snapshot: Snapshot, slots: int) -> Table:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True, ratio=1)
    table.add_column(no_wrap=True, justify="right", style="dim", width=2)
    table.add_column(no_wrap=True, width=slots)
    table.add_column(no_wrap=True, justify="right", width=5)
    for group in snapshot.groups.values():
        table.add_row(
            Text(text.group_name(group.name), overflow="ellipsis"),
            f"{group.weight:g}",
            bar(group, is_shared=snapshot.is_shared),
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
        ending, detail = _ending(event)
        about = " · ".join(filter(None, [event.label, detail]))
        table.add_row(
            Text(text.spoken(ending), style=STYLES[ending]),
            str(event.task_id),
            Text(short_type(event.type)),
            Text(text.printable(about), overflow="ellipsis"),
        )
    return table


def _ending(event: TaskEvent) -> tuple[str, str]:
    match event:
        case TaskCompleted(duration=took):
            return "completed", text.duration(took)
        case TaskFailed(error=error):
            return "failed", text.first_line(error)
        case TaskDeadLettered(error=error):
            return "dead_letter", text.first_line(error or "")
        case TaskCancelled():
            return "cancelled", ""
        case TaskExpired(age=age):
            return "expired", f"not started within {text.duration(age)}"
        case _:
            return "completed", ""
