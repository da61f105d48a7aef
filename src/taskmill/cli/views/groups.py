"""Groups on a terminal: a table with a bar for each group, printed once or as a live view."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from taskmill import GroupSnapshot, Snapshot
from taskmill.cli.output import STYLES
from taskmill.cli.text import printable
from taskmill.cli.views.group_table import NUMBERS, GroupTable, group_table, headlines

ROOM_FOR_BARS = 100
LONGEST_BAR = 24
MARGINS = 4
"""Lines of the live view besides the groups."""


def groups_frame(file: str, snapshot: Snapshot, console: Console) -> RenderableType:
    """Render the live view of a file's groups."""
    title = Table.grid(expand=True)
    # The address of a database may be longer than the line.
    title.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    title.add_column(no_wrap=True, justify="right", style="dim")
    title.add_row(Text(printable(file), style="bold"), f"{datetime.now().astimezone():%H:%M:%S}  Ctrl-C ends")
    groups = groups_on_screen(snapshot, console.width - 2, console.height - MARGINS)
    return Padding(Group(title, Text(), groups), (1, 1))


def print_groups(snapshot: Snapshot) -> None:
    console = Console()
    console.print(groups_on_screen(snapshot, console.width))


def groups_on_screen(snapshot: Snapshot, width: int, height: int | None = None) -> RenderableType:
    first, *warnings = headlines(snapshot)
    lines = [Text(first), *(Text(printable(line), style=STYLES["note"]) for line in warnings)]
    if not snapshot.groups:
        return Group(*lines, Text("no group has work or settings", style="dim"))
    # Besides the rows there are an empty line, the headings, the total and the number of hidden groups.
    found = group_table(snapshot, None if height is None else max(height - len(lines) - 4, 1))
    left_out = [Text(f"… and {found.hidden:,} more with less to do", style="dim")] if found.hidden else []
    return Group(*lines, Text(), _table(found, snapshot, with_bars=width >= ROOM_FOR_BARS), *left_out)


def _table(found: GroupTable, snapshot: Snapshot, *, with_bars: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in found.headings:
        # On a narrow terminal names are cut off, never numbers: a cut number would be wrong.
        table.add_column(
            heading, justify="right" if heading in NUMBERS else "left", no_wrap=heading != "group", overflow="ellipsis"
        )
    scale = min(1.0, LONGEST_BAR / snapshot.max_concurrency)
    if with_bars:
        table.add_column("", no_wrap=True)
    for group, row in zip(found.groups, found.rows, strict=True):
        drawn = [bar(group, scale, is_shared=snapshot.is_shared)] if with_bars else []
        table.add_row(*_cells(found.headings, row, group), *drawn)
    if len(snapshot.groups) > 1:
        total = [Text(cell, style="bold") for cell in found.total]
        table.add_row(*total, *([Text()] if with_bars else []))
    return table


def _cells(headings: Sequence[str], row: Sequence[str], group: GroupSnapshot) -> list[Text]:
    cells: list[Text] = []
    for heading, cell in zip(headings, row, strict=True):
        style = "dim" if cell in ("-", "0") else ""
        if heading == "next" and group.paused:
            style = STYLES["paused"]
        elif heading == "running" and group.running:
            style = STYLES["running"]
        cells.append(Text(printable(cell), style=style, no_wrap=True, overflow="ellipsis"))
    return cells


def bar(group: GroupSnapshot, scale: float = 1.0, *, is_shared: bool) -> Text:
    """Return a square per slot: busy ones of the group's share, busy ones above the share, then free ones."""
    share = group.slots if is_shared else group.running
    own, lent, free = min(group.running, share), group.running - share, share - group.running
    drawn = Text(no_wrap=True)
    drawn.append("■" * _length(own, scale), style=STYLES["running"])
    drawn.append("■" * _length(lent, scale), style=STYLES["note"])
    drawn.append("□" * _length(free, scale), style="dim")
    return drawn


def _length(slots: int, scale: float) -> int:
    """Return the length of a part of a bar; at least 1 if it has a slot."""
    return max(1, round(slots * scale)) if slots > 0 else 0
