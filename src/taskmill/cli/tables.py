"""Tables: rows under headings, fitted to the width of the terminal.

If the columns do not fit, minor columns are dropped first, then long cells are shortened in the middle, wrapped, or cut
off. All other columns are always shown whole. Into a pipe everything is printed whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from taskmill.cli import cells, output
from taskmill.cli.text import printable

GAP = "  "
COMFORT = 24
"""Minor columns are dropped until the flexible columns have this many cells each, or all that they need."""
NARROWEST = 6
"""The fewest cells of a flexible column."""


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: frozenset[str] = frozenset(),
    wrap: frozenset[str] = frozenset(),
    middle: frozenset[str] = frozenset(),
    minor: Sequence[str] = (),
) -> None:
    """Print rows under headings.

    ``numbers`` are aligned right. If the terminal is too narrow, the columns of ``minor`` are dropped, the first of
    them first; those of ``middle`` lose the middle of long cells, those of ``wrap`` are wrapped between words, and the
    last column is cut off.
    """
    columns = {
        heading: [printable(cell) for cell in column]
        for heading, column in zip(headings, zip(*rows, strict=True), strict=True)
    }
    flexible = middle | wrap | {headings[-1]}
    natural = {name: max(map(cells.width, [name, *column])) for name, column in columns.items()}
    widths = natural if not output.is_terminal() else fitted(natural, flexible, minor, output.terminal_width())
    shown = {name: list(_laid_out(name, columns[name], widths, wrap, middle)) for name in widths}
    lines = [_line(list(widths), widths, numbers, heading=True)]
    for row in zip(*shown.values(), strict=True):
        lines += [_line(line, widths, numbers) for line in zip_longest(*row, fillvalue="")]
    # At once: each line would be a write of its own, and a table may have thousands.
    output.say_printable("\n".join(lines))


def fitted(
    natural: Mapping[str, int], flexible: frozenset[str], minor: Sequence[str], available: int
) -> dict[str, int]:
    """Return the width of each column that is shown, in order."""
    shown = dict(natural)

    def limited(most: int) -> dict[str, int]:
        return {name: min(needed, most) if name in flexible else needed for name, needed in shown.items()}

    def spare(widths: Mapping[str, int]) -> int:
        return available - sum(widths.values()) - len(GAP) * (len(widths) - 1)

    for name in minor:
        if spare(limited(COMFORT)) >= 0:
            break
        shown.pop(name, None)
    # The widest columns give way first, until all fit.
    level = max(shown.values())
    while level > NARROWEST and spare(limited(level)) < 0:
        level -= 1
    chosen = limited(level)
    for name, needed in shown.items():
        if spare(chosen) > 0 and chosen[name] < needed:
            chosen[name] += 1
    return chosen


def _laid_out(
    name: str, column: Sequence[str], widths: Mapping[str, int], wrap: frozenset[str], middle: frozenset[str]
) -> Iterator[list[str]]:
    """Return the lines of each cell of a column."""
    most = widths[name]
    for cell in column:
        if name in wrap:
            yield cells.wrapped(cell, most)
        elif name in middle:
            yield [cells.shortened(cell, most)]
        else:
            yield [cells.cut_off(cell, most)]


def _line(line: Sequence[str], widths: Mapping[str, int], numbers: frozenset[str], *, heading: bool = False) -> str:
    printed: list[str] = []
    for (name, width), cell in zip(widths.items(), line, strict=True):
        padded = cells.padded(cells.cut_off(cell, width), width, right=name in numbers)
        style = "bold" if heading else output.STYLES.get(cell, "")
        printed.append(output.styled(padded, style) if cell and style else padded)
    return GAP.join(printed).rstrip()
