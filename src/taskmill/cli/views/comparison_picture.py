"""An SVG picture of a simulation: how many tasks have started by when, under the present and the changed settings."""

from __future__ import annotations

from datetime import datetime
from xml.sax.saxutils import escape

from taskmill import Comparison, Run
from taskmill.cli import text

WIDTH, HEIGHT = 720, 320
LEFT, TOP, RIGHT, BOTTOM = 60, 40, 20, 40
COLOURS = {"now": "#888888", "then": "#0072b2"}


def drawn(comparison: Comparison) -> str:
    """Return the picture as SVG."""
    runs = {"now": comparison.before, "then": comparison.after}
    instants = [at for run in runs.values() for at in run.starts.values()]
    most = max((len(run.starts) for run in runs.values()), default=0)
    if not instants:
        return _framed(f'<text x="{LEFT}" y="{HEIGHT // 2}">no task starts</text>')
    first, last = min(instants), max(instants)
    parts = [
        f'<line x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH - RIGHT}" y2="{HEIGHT - BOTTOM}" stroke="black"/>',
        f'<line x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{HEIGHT - BOTTOM}" stroke="black"/>',
        f'<text x="{LEFT - 6}" y="{TOP + 5}" text-anchor="end">{most:,}</text>',
        f'<text x="{LEFT - 6}" y="{HEIGHT - BOTTOM}" text-anchor="end">0</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 12}">0 s</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 12}" text-anchor="end">{escape(text.duration(last - first))}</text>',
        f'<text x="{LEFT}" y="20">tasks started</text>',
    ]
    for number, (name, run) in enumerate(runs.items()):
        points, pen = _line(run, first, last, most), f'fill="none" stroke="{COLOURS[name]}" stroke-width="2"'
        parts.append(f'<polyline {pen} points="{points}"/>')
        at = f'x="{WIDTH - RIGHT - 130 + 70 * number}" y="20" fill="{COLOURS[name]}"'
        parts.append(f"<text {at}>{name}</text>")
    return _framed("".join(parts))


def _framed(content: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>{content}</svg>\n'
    )


def _line(run: Run, first: datetime, last: datetime, most: int) -> str:
    """Return the points of a line that rises with each start; a large run is drawn with a thousand of them."""
    starts = sorted(run.starts.values())
    step = max(len(starts) // 1000, 1)
    span = (last - first).total_seconds() or 1.0
    points: list[str] = []
    for number in [*range(0, len(starts), step), len(starts) - 1] if starts else []:
        x = LEFT + (starts[number] - first).total_seconds() / span * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (number + 1) / max(most, 1) * (HEIGHT - TOP - BOTTOM)
        points.append(f"{x:.1f},{y:.1f}")
    return " ".join(points)
