"""The live view of ``taskmill run``: what runs, what waits and why, below the printed and logged lines.

It takes a bounded part of the terminal, and has no row for a task that has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.text import Text

from taskmill import TaskRecord
from taskmill.cli import cells, text
from taskmill.cli.output import STYLES
from taskmill.cli.views.live import one_line
from taskmill.cli.views.polling import QueueState
from taskmill.cli.views.running import running_table, together

MOST_ROWS = 12
"""The most running tasks that have a row."""
OTHER_LINES = 9
"""Lines of the terminal that are kept free of rows: the rest of the view, and what is printed above it."""


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
        width = console.width
        rows, rest = self._rows.assign(queue.running, max(1, min(MOST_ROWS, console.height - OTHER_LINES)))
        slots = f"{queue.running_count:,} of {text.plural(queue.snapshot.max_concurrency, 'slot')} at work"
        parts: list[RenderableType] = [
            one_line("─" * width, "dim"),
            *_head(self._target, slots, queue.waiting_counts, f"ended here: {text.counted(state.ended)}", width),
            running_table(rows, width, with_groups=any(queue.snapshot.groups)),
        ]
        if rest:
            sums, hidden = together(rest), queue.running_count - len(queue.running) + len(rest)
            parts.append(one_line(f"  … and {hidden:,} more" + (f", {sums}" if sums else ""), "dim"))
        if state.drain:
            parts.append(
                one_line(f"{state.drain}; Ctrl-C again cancels them, and they run again later", STYLES["note"])
            )
        for name, sentence in queue.lines():
            if name == "waiting" and state.drain:
                # Nothing starts any more, whatever the reason was.
                continue
            line = Text(text.printable(f"{name:<9} {sentence}"), style=STYLES["note"] if name != "waiting" else "")
            parts.extend(_two_lines(line, console))
        return Group(*parts)


class Rows:
    """Gives each running task a row. A new task takes the row of one that has ended, else the rows below move up."""

    def __init__(self) -> None:
        self._ids: list[int] = []

    def assign(self, running: Sequence[TaskRecord], most: int) -> tuple[list[TaskRecord], list[TaskRecord]]:
        """Return the tasks of at most ``most`` rows, and those that have no row."""
        found = {record.id: record for record in running}
        kept = self._ids[:most]
        placed = {id for id in kept if id in found}
        coming = iter([id for id in sorted(found) if id not in placed])
        filled = [id if id in found else next(coming, None) for id in kept]
        self._ids = [id for id in filled if id is not None]
        self._ids += [id for _, id in zip(range(most - len(self._ids)), coming, strict=False)]
        shown = set(self._ids)
        return [found[id] for id in self._ids], [record for record in running if record.id not in shown]


def _head(target: str, slots: str, waiting: str, ended: str, width: int) -> Iterator[Text]:
    """Return the counts on one line, or on two if they do not fit beside the name."""
    name = text.printable(target)
    if cells.width(name) + len(f"  {slots}, {waiting}  {ended}") <= width:
        yield _between_edges(Text.assemble((name, "bold"), f"  {slots}, {waiting}"), ended, width)
        return
    yield Text.assemble((cells.shortened(name, max(width - len(slots) - 2, 8)), "bold"), f"  {slots}")
    yield _between_edges(Text(waiting), ended, width)


def _between_edges(left: Text, right: str, width: int) -> Text:
    return Text.assemble(left, (right.rjust(max(width - left.cell_len, len(right) + 2)), "dim"))


def _two_lines(sentence: Text, console: Console) -> Iterator[Text]:
    """Return the sentence on two lines at most."""
    first, *more = sentence.wrap(console, console.width)
    yield first
    if more:
        rest = Text(" ").join(more)
        rest.truncate(console.width, overflow="ellipsis")
        yield rest
