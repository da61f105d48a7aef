"""The comparison with other queues: every contestant is listed, and the page has the stored results."""

from __future__ import annotations

import importlib.util
import json
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.rivals.contestants import CONTESTANTS, WORKLOADS
from benchmarks.rivals.program import Countdown, Starts
from benchmarks.rivals.results import BEGIN, CHART, END, PAGE, RAW, cell, described, drawn, key_of

ABOUT = {
    "date": "2026-11-17",
    "quick": False,
    "rounds": 3,
    "load_at_start": 0.1,
    "processors": 2,
    "system": "Linux",
    "python": "3.13.0",
    "sqlite": "3.50.0",
}


def raw(**about: Any) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {
        key_of(one): {"version": "1.0", "drain": [100.0 * n, 110.0 * n], "submit": [50.0], "latency": [1.5]}
        for n, one in enumerate(CONTESTANTS, 1)
    }
    results["file: Huey"]["latency"] = "failed: no result within 150 s"
    results["file: litequeue"] = {"absent": "it cannot be installed"}
    return {"about": {**ABOUT, **about}, "results": results}


@pytest.mark.parametrize("one", CONTESTANTS, ids=key_of)
def test_every_contestant_has_its_program_and_says_what_it_promises(one: Any) -> None:
    assert one.promise
    if one.module is not None:
        assert importlib.util.find_spec(f"benchmarks.rivals.{one.module}") is not None


def test_contestants_are_told_apart() -> None:
    assert len({key_of(one) for one in CONTESTANTS}) == len(CONTESTANTS)


def test_a_cell_has_the_median_and_the_spread_or_the_failure() -> None:
    assert cell([3000.0, 1000.0, 2000.0]) == "2,000 (1,000–3,000)"
    assert cell([1.234]) == "1.23"
    assert cell("failed: it broke") == "failed: it broke"
    assert cell(None) == "–"


def test_the_fastest_comes_first_and_no_contestant_is_left_out_in_silence() -> None:
    text = described(raw())
    files = text.partition("### On a PostgreSQL server")[0]
    assert files.index("| DBOS") < files.index("| Huey") < files.index("| taskmill |"), "sorted by speed, ours included"
    assert "failed: no result within 150 s" in text
    assert "- file: litequeue: it cannot be installed" in text
    assert "busy" not in text


def test_a_busy_machine_and_a_quick_run_are_admitted() -> None:
    text = described(raw(load_at_start=9.0, quick=True))
    assert "**The machine was busy** (load 9.0 at the start)" in text
    assert "quick run" in text


def test_the_chart_has_a_bar_for_each_result_and_the_longest_for_the_fastest() -> None:
    tree = ElementTree.fromstring(drawn(raw()))
    bars = [float(node.get("width", 0)) for node in tree.iter("{http://www.w3.org/2000/svg}rect")][1:]
    measured = [found for found in raw()["results"].values() if found.get("drain")]
    assert len(bars) == len(measured)
    assert max(bars) == bars[0]


def test_the_page_and_the_chart_show_the_stored_results() -> None:
    stored = json.loads(RAW.read_text(encoding="utf-8"))
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written.strip() == described(stored).strip(), "run python -m benchmarks.rivals --draw"
    assert CHART.read_text(encoding="utf-8") == drawn(stored)
    assert set(stored["results"]) == {key_of(one) for one in CONTESTANTS}
    for found in stored["results"].values():
        assert "absent" in found or all(workload in found for workload in WORKLOADS)


def test_a_countdown_notes_the_last_task_and_starts_measure_each_task() -> None:
    last = Countdown(2)
    last()
    assert last.at == 0.0
    last()
    assert last.wait() > 0
    starts = Starts()
    assert 0 <= starts.median_wait(lambda _: starts(), 3) < 1000
