"""The benchmarks can be started, and their page explains every number."""

from __future__ import annotations

import importlib.util
import json
import re

from benchmarks.__main__ import MEASUREMENTS

from tests.architecture.sources import ROOT

PAGE = (ROOT / "benchmarks" / "README.md").read_text()


def test_every_measurement_has_its_module() -> None:
    missing = [name for name in MEASUREMENTS.values() if importlib.util.find_spec(f"benchmarks.{name}") is None]
    assert missing == []


def test_the_page_lists_every_measurement() -> None:
    listed = PAGE.split("```")[1].replace("#", " ").split()
    assert [name for name in MEASUREMENTS if name not in listed] == []


def test_the_page_explains_every_measured_number() -> None:
    numbers = json.loads((ROOT / "bench.json").read_text())
    assert [name for name in numbers if name != "about" and f"`{name}`" not in PAGE] == []


README = {
    "emptying a queue, over Huey on SQLite": "drain_vs_huey",
    "emptying a queue on PostgreSQL, over Procrastinate": "pg_drain_vs_procrastinate",
    "the same, over PgQueuer": "pg_drain_vs_pgqueuer",
    "the same, over PgQueuer with its best settings on uvloop": "pg_drain_vs_pgqueuer_best",
    "from submission to history, over a bare `sqlite3` loop": "e2e_vs_raw",
    "time per task with 1,000,000 waiting, over 1,000 waiting": "depth_1m_vs_1k",
    "from `submit` to the start of the handler, median": "latency_p50_ms",
}
"""The figures on the first page, and their names in bench.json."""


def test_the_figures_of_the_readme_are_the_measured_ones() -> None:
    numbers = json.loads((ROOT / "bench.json").read_text())
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## How fast it is")
    shown = dict(re.findall(r"^\| (.+?) \| ([\d.]+) (?:×|ms) \|$", section, re.MULTILINE))
    assert shown.keys() == README.keys()
    wrong = {
        row: f"{numbers[name]:.2g}" for row, name in README.items() if float(shown[row]) != _rounded(numbers[name])
    }
    assert wrong == {}, "write these into README.md"


def _rounded(number: float) -> float:
    """Return a number with two significant digits."""
    return float(f"{number:.2g}")
