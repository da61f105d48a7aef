"""The live view of ``taskmill run``: what runs, what waits and why, below the printed and logged lines.

It takes a bounded part of the terminal. A task keeps its row until it ends, and the view shrinks only after a while,
so that the rows do not jump.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from taskmill import TaskRecord
from taskmill.cli import text
from taskmill.cli.output import STYLES
from taskmill.cli.views.live import NARROW, one_line, running_table, together
from taskmill.cli.views.polling import QueueState

MOST_ROWS = 12
"""The most running tasks that have a row."""
OTHER_LINES = 8
"""Lines of the terminal that are kept free of rows: the rest of the view, and what is printed above it."""
SHRINK_AFTER = 10
"""The view shrinks after this many consecutive drawings that needed fewer rows."""


class RunState(NamedTuple):
    """The queue, how many tasks have ended in this process by ending, and how long the last ones may still run."""

    queue: QueueState
    ended: Mapping[str, int]
    drain: str = ""


class RunFrame:
    """Renders the states of one run; remembers which task is in which row."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._rows = Rows()

    def __call__(self, state: RunState, console: Console) -> RenderableType:
        queue = state.queue
        rows, rest = self._rows.assign(queue.running, max(1, min(MOST_ROWS, console.height - OTHER_LINES)))
        slots = f"{queue.running_count:,} of {text.plural(queue.snapshot.max_concurrency, 'slot')} at work"
        parts: list[RenderableType] = [
            one_line("─" * console.width, "dim"),
            _head(self._target, f"{slots}, {queue.waiting_counts}", f"ended here: {text.counted(state.ended)}"),
            _table(rows, queue, narrow=console.width < NARROW),
        ]
        if rest:
            sums, hidden = together(rest), queue.running_count - len(queue.running) + len(rest)
            parts.append(one_line(f"  … and {hidden:,} more" + (f", {sums}" if sums else ""), "dim"))
        if state.drain:
            parts.append(
                one_line(f"{state.drain}; Ctrl-C again ends at once, and they run again later", STYLES["note"])
            )
        for name, sentence in queue.lines():
            line = Text(text.printable(f"{name:<9} {sentence}"), style=STYLES["note"] if name != "waiting" else "")
            parts.extend(_two_lines(line, console))
        return Group(*parts)


class Rows:
    """Gives each running task a row, which it keeps until it ends."""

    def __init__(self) -> None:
        self._ids: list[int | None] = []
        self._heights: deque[int] = deque(maxlen=SHRINK_AFTER)

    def assign(self, running: Sequence[TaskRecord], most: int) -> tuple[list[TaskRecord | None], list[TaskRecord]]:
        """Return at most ``most`` rows, ``None`` for an empty one, and the tasks that have no row."""
        found = {record.id: record for record in running}
        self._ids = [id if id in found else None for id in self._ids[:most]]
        placed = {id for id in self._ids if id is not None}
        coming = (id for id in sorted(found) if id not in placed)
        for row, id in enumerate(self._ids):
            if id is None:
                self._ids[row] = next(coming, None)
        self._ids += [id for _, id in zip(range(most - len(self._ids)), coming, strict=False)]
        while self._ids and self._ids[-1] is None:
            self._ids.pop()
        self._heights.append(len(self._ids))
        height = min(max(self._heights), most)
        rows = [None if id is None else found[id] for id in self._ids]
        shown = set(self._ids)
        rest = [record for record in running if record.id not in shown]
        return [*rows, *([None] * (height - len(rows)))], rest


def _table(rows: Sequence[TaskRecord | None], queue: QueueState, *, narrow: bool) -> RenderableType:
    return running_table(rows, narrow=narrow, with_groups=any(queue.snapshot.groups)) if rows else Text()


def _head(target: str, middle: str, right: str) -> Table:
    head = Table.grid(expand=True, padding=(0, 2, 0, 0))
    head.add_column(no_wrap=True, overflow="ellipsis")
    head.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    head.add_column(no_wrap=True, justify="right", style="dim")
    head.add_row(Text(text.printable(target), style="bold"), Text(middle), Text(right))
    return head


def _two_lines(sentence: Text, console: Console) -> Iterator[Text]:
    """Return the sentence on two lines at most."""
    first, *more = sentence.wrap(console, console.width)
    yield first
    if more:
        rest = Text(" ").join(more)
        rest.truncate(console.width, overflow="ellipsis")
        yield rest
