"""The results of a run, and what is written about them: a table for the documentation, and a chart."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.measuring import ROOT
from benchmarks.rivals.contestants import CONTESTANTS, SLOTS, Contestant

RAW = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "explanation" / "rivals.md"
CHART = ROOT / "docs" / "pictures" / "rivals.svg"
BEGIN, END = "<!-- rivals: written by make rivals -->", "<!-- rivals: end -->"
BUSY = 0.5
"""Load per processor above which a machine counts as busy."""

HEADINGS = {"file": "In a file", "server": "On a PostgreSQL server"}


def key_of(contestant: Contestant) -> str:
    return f"{contestant.place}: {contestant.name}"


def is_busy(about: Mapping[str, Any]) -> bool:
    """True if other programs used the machine before the run began."""
    return bool(about["load_at_start"] > BUSY * about["processors"])


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(found: Any) -> str:
    """Return a median with its range, or the reason why there is none."""
    if isinstance(found, str):
        return found
    if not found:
        return "–"
    middle = number(statistics.median(found))
    return middle if len(found) == 1 else f"{middle} ({number(min(found))}–{number(max(found))})"


def table(results: Mapping[str, Mapping[str, Any]], place: str) -> list[str]:
    """Return the rows for one kind of place, the fastest to drain first."""
    chosen = [one for one in CONTESTANTS if one.place == place and key_of(one) in results]
    chosen.sort(key=lambda one: -_median(results[key_of(one)].get("drain")))
    lines = [
        f"### {HEADINGS[place]}",
        "",
        "| queue | version | drain, tasks/s | submit, tasks/s | latency, ms | what it promises |",
        "|---|---|---|---|---|---|",
    ]
    for one in chosen:
        found = results[key_of(one)]
        cells = [cell(found.get(workload)) for workload in ("drain", "submit", "latency")]
        lines.append(f"| {one.name} | {found.get('version', '')} | {' | '.join(cells)} | {one.promise} |")
    return [*lines, ""]


def _median(found: Any) -> float:
    return statistics.median(found) if isinstance(found, list) and found else 0.0


def described(raw: Mapping[str, Any]) -> str:
    """Return the generated part of the page."""
    about, results = raw["about"], raw["results"]
    rounds = f"{about['rounds']} rounds" if about["rounds"] > 1 else "1 round"
    lines = [
        f"Measured on {about['date']} in {rounds} on {about['processors']} processors: {about['system']},",
        f"Python {about['python']}, SQLite {about['sqlite']}. Each queue ran up to {SLOTS} tasks at once.",
        "Medians, with the least and the greatest value in brackets.",
        "",
    ]
    if is_busy(about):
        lines += [
            f"**The machine was busy** (load {about['load_at_start']:.1f} at the start), so these numbers are rough:",
            "they show orders of magnitude at best, and neighbours in the table may change places.",
            "",
        ]
    if about["quick"]:
        lines += ["This was a quick run with few tasks.", ""]
    for place in HEADINGS:
        lines += table(results, place)
    if left_out := {key: found["absent"] for key, found in results.items() if "absent" in found}:
        lines += ["Not measured:", "", *(f"- {key}: {why}" for key, why in left_out.items()), ""]
    return "\n".join(lines)


def write_page(raw: Mapping[str, Any]) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{described(raw)}\n{END}{after}", encoding="utf-8")


# The chart

WIDTH, BAR, GAP, LABELS, MARGIN = 860, 20, 9, 260, 20
INK, SOFT, OURS, OTHERS = "#1f2430", "#6b7280", "#2563eb", "#9aa5b8"


def drawn(raw: Mapping[str, Any]) -> str:
    """Return an SVG with one bar per contestant: how fast it empties a full queue."""
    parts: list[str] = []
    y = 44
    for place, heading in HEADINGS.items():
        rates = [
            (one.name.replace("`", ""), _median(raw["results"].get(key_of(one), {}).get("drain")))
            for one in CONTESTANTS
            if one.place == place
        ]
        rates = sorted(((name, rate) for name, rate in rates if rate), key=lambda pair: -pair[1])
        if rates:
            parts.append(_text(MARGIN, y, heading, weight="600"))
            y += 14
            parts += _bars(rates, y)
            y += len(rates) * (BAR + GAP) + 30
    title = "Tasks per second while a full queue is emptied"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" font-size="13"'
            ' font-family="system-ui, sans-serif">',
            f"<title>{title}</title>",
            f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/>',
            _text(MARGIN, 22, f"{title} ({SLOTS} at once)", weight="700", size=15),
            *parts,
            "</svg>",
            "",
        ]
    )


def _bars(rates: Sequence[tuple[str, float]], top: int) -> list[str]:
    most = rates[0][1]
    room = WIDTH - LABELS - MARGIN - 70
    lines = []
    for row, (name, rate) in enumerate(rates):
        y = top + row * (BAR + GAP)
        length = max(2.0, room * rate / most)
        colour = OURS if name.startswith("taskmill") and "Rust" not in name else OTHERS
        lines += [
            _text(LABELS - 8, y + 15, name, anchor="end"),
            f'<rect x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3" fill="{colour}"/>',
            _text(LABELS + length + 6, y + 15, number(rate), fill=SOFT),
        ]
    return lines


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400", size: int = 13, fill: str = INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" font-size="{size}"'
        f' fill="{fill}">{escape(text)}</text>'
    )


def write_all(raw: Mapping[str, Any]) -> None:
    """Write the raw results, the page and the chart."""
    RAW.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    write_page(raw)
    CHART.parent.mkdir(exist_ok=True)
    CHART.write_text(drawn(raw), encoding="utf-8")
