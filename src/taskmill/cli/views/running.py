"""The rows of running tasks in live views: names, a bar, and columns of percentage, bytes, rate and time left.

Names take the room that they need and that is there; where there is too little, the least important columns are left
out (:data:`DISPENSABLE`). A number keeps its width and its place while it changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from taskmill import TaskRecord
from taskmill.cli import cells, text

NARROW = 96
"""On terminals with fewer columns, bars and messages are shorter."""
BAR, LONG_BAR = 8, 16
NOTE, LONG_NOTE = 23, 38
"""The most cells of a message that a task reports in place of numbers."""
NUMBERS = {"percent": 4, "bytes": 10, "rate": 9, "left": 11}
"""The columns of numbers and their widths: `` 50%``, ``of 99.9 MB``, ``99.9 MB/s``, ``59 min left``."""
COMFORT = 10
"""A column is left out if the names would have fewer cells on average, and need more."""
DISPENSABLE = ("group", "bytes", "left", "bar", "rate")
"""The columns that are left out where there is no room, the first of them first."""


class Row(NamedTuple):
    """The cells of one task. ``note`` takes the place of the numbers that follow the percentage."""

    names: dict[str, str]
    fraction: float | None
    numbers: dict[str, str]
    note: str


class Columns(NamedTuple):
    """The cells of each column; ``bar`` is 0 if there is none. ``pace`` has the numbers or a note."""

    names: dict[str, int]
    bar: int
    numbers: list[str]
    pace: int


def running_table(records: Sequence[TaskRecord], width: int, *, with_groups: bool = True) -> Table:
    """Return a table with a row per record, in so many columns of the terminal."""
    if not records:
        return Table.grid()
    now = datetime.now(UTC)
    rows = [_row(record, now, with_groups=with_groups) for record in records]
    columns = _columns(rows, width)
    table = Table.grid(padding=(0, 1))
    for name, room in columns.names.items():
        style = "dim" if name in ("id", "group") else ""
        table.add_column(no_wrap=True, width=room, justify="right" if name == "id" else "left", style=style)
    if columns.bar:
        table.add_column(no_wrap=True, width=columns.bar)
    table.add_column(no_wrap=True, overflow="ellipsis", width=columns.pace, style="dim")
    for row in rows:
        names = [Text(cells.shortened(row.names[name], room)) for name, room in columns.names.items()]
        bar = [_bar(row.fraction, columns.bar)] if columns.bar else []
        table.add_row(*names, *bar, Text(_pace(row, columns.numbers)))
    return table


def together(records: Collection[TaskRecord]) -> str:
    """Sum up the progress of tasks that have no row: ``40% together, 3.1 MB/s``."""
    known = [record.progress for record in records if record.progress is not None]
    fractions = [progress.fraction for progress in known if progress.fraction is not None]
    rate = sum(progress.rate for progress in known if progress.rate)
    parts = [f"{sum(fractions) / len(records):.0%} together"] if fractions else []
    return ", ".join([*parts, f"{text.size(rate)}/s"] if rate else parts)


def short_type(type: str) -> str:
    return type.partition("::")[2] or type


# Cells


def _row(record: TaskRecord, now: datetime, *, with_groups: bool) -> Row:
    group = {"group": text.printable(record.group or "-")} if with_groups else {}
    names = {
        "id": str(record.id),
        "type": text.printable(short_type(record.type)),
        **group,
        "subject": text.printable(text.subject(record)),
    }
    fraction = None if record.progress is None else record.progress.fraction
    numbers = _numbers(record)
    return Row(names, fraction, numbers, "" if numbers.keys() - {"percent"} else _note(record, now))


def _numbers(record: TaskRecord) -> dict[str, str]:
    progress = record.progress
    if progress is None:
        return {}
    found: dict[str, str] = {}
    if progress.fraction is not None:
        found["percent"] = f"{progress.fraction:>4.0%}"
    if progress.total_bytes and progress.fraction is not None:
        found["bytes"] = f"of {text.size(progress.total_bytes)}"
    elif progress.done_bytes:
        found["bytes"] = text.size(progress.done_bytes)
    if progress.rate:
        found["rate"] = f"{text.size(progress.rate)}/s".rjust(NUMBERS["rate"])
    # A task that says what it does, and not how fast, is shown with what it says.
    if progress.eta and (progress.rate or not progress.message):
        found["left"] = f"{text.rough(max(progress.eta, timedelta(seconds=1)))} left"
    return found


def _note(record: TaskRecord, now: datetime) -> str:
    progress = record.progress
    if progress is not None and progress.message:
        return text.printable(progress.message)
    if progress is not None and progress.fraction is not None:
        return ""
    if record.retries:
        return f"retry {record.retries}"
    return "" if record.started_at is None else f"for {text.duration(now - record.started_at)}"


def _bar(fraction: float | None, width: int) -> ProgressBar | Text:
    """Return a bar, or nothing if the task reports no fraction: an empty bar would mean 0 %."""
    return Text() if fraction is None else ProgressBar(total=1, completed=fraction, width=width)


def _pace(row: Row, columns: Sequence[str]) -> str:
    if row.note:
        return " ".join(filter(None, [row.numbers.get("percent", ""), row.note]))
    return " ".join(row.numbers.get(name, "").ljust(NUMBERS[name]) for name in columns).rstrip()


# Columns


def _columns(rows: Sequence[Row], width: int) -> Columns:
    natural = {name: max(cells.width(row.names[name]) for row in rows) for name in rows[0].names}
    numbers = [name for name in NUMBERS if any(name in row.numbers for row in rows)]
    bar = 0 if all(row.fraction is None for row in rows) else BAR if width < NARROW else LONG_BAR
    noted = max((cells.width(_pace(row, ())) for row in rows if row.note), default=0)
    # Seconds that pass must not shift the columns.
    noted = min(max(noted, 12), NOTE if width < NARROW else LONG_NOTE) if noted else 0
    left_out = iter(DISPENSABLE)
    while True:
        pace = max(sum(NUMBERS[name] + 1 for name in numbers) - 1, noted, 0)
        id = natural.get("id", 0)
        flexible = {name: needed for name, needed in natural.items() if name != "id"}
        room = width - id - len(flexible) - (bar + 1 if bar else 0) - (pace + 1)
        if room >= min(sum(flexible.values()), COMFORT * len(flexible)) or (column := next(left_out, None)) is None:
            return Columns({"id": id, **_shared(flexible, max(room, len(flexible)))}, bar, numbers, pace)
        natural.pop(column, None)
        bar = 0 if column == "bar" else bar
        numbers = [name for name in numbers if name != column]


def _shared(natural: dict[str, int], room: int) -> dict[str, int]:
    """Share the room between names; the longest give way first, and the last takes what is left."""
    level = max(natural.values(), default=0)
    while level > 1 and sum(min(needed, level) for needed in natural.values()) > room:
        level -= 1
    shared = {name: min(needed, level) for name, needed in natural.items()}
    *_, last = shared
    shared[last] += max(room - sum(shared.values()), 0)
    return shared
