"""The benchmarks can be started, and their page explains every number."""

from __future__ import annotations

import importlib.util
import json

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
