"""The dashboard in the documentation uses only metrics of the collector, and shows all of them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from taskmill import Scheduler
from taskmill.metrics import Collector

pytestmark = pytest.mark.one_engine("no store is opened")

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "docs" / "grafana" / "taskmill.json").read_text(encoding="utf-8"))
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")


def labels_of(family: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = family._labelnames
    return names


FAMILIES = Collector(Scheduler()).describe()
SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
LABELS = {
    family.name + suffix: {*labels_of(family), *(["le"] if suffix == "_bucket" else [])}
    for family in FAMILIES
    for suffix in SUFFIXES[family.type]
}
BY_PROMETHEUS = {"instance", "job"}
"""Labels that every sample gets when it is scraped."""

PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
QUERIES = [
    *((panel["title"], target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]),
    *((name, variable["definition"], "") for name, variable in VARIABLES.items() if variable["type"] == "query"),
]
SELECTOR = re.compile(r"\b(taskmill_\w+)(?:\{([^}]*)\})?")


@pytest.mark.parametrize(
    ("where", "expr", "legend"), QUERIES, ids=[f"{where}-{n}" for n, (where, *_) in enumerate(QUERIES)]
)
def test_every_expression_names_metrics_and_labels_that_exist(where: str, expr: str, legend: str) -> None:
    selectors = SELECTOR.findall(expr)
    assert selectors
    kept: set[str] = set()
    for metric, matchers in selectors:
        assert metric in LABELS, f"{where}: {metric}"
        known = LABELS[metric] | BY_PROMETHEUS
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= known, f"{where}: {expr}"
        kept |= known
    grouped = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", expr) for label in labels.split(",")}
    assert grouped <= kept, f"{where}: {expr}"
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= grouped, f"{where}: {legend}"
    assert set(re.findall(r"label_values\([^,]*(?:\{[^}]*\})?, (\w+)\)", expr)) <= kept
    assert expr.count("(") == expr.count(")")


@pytest.mark.parametrize(
    ("where", "expr", "legend"), QUERIES, ids=[f"{where}-{n}" for n, (where, *_) in enumerate(QUERIES)]
)
def test_counters_are_read_as_rates_and_gauges_as_they_are(where: str, expr: str, legend: str) -> None:
    for metric, _ in SELECTOR.findall(expr):
        is_counted = metric.endswith(("_total", "_bucket", "_count", "_sum"))
        is_rated = bool(re.search(rf"(?:rate|increase)\({metric}\b", expr)) or expr.startswith("label_values")
        assert is_counted <= is_rated, f"{where}: {expr}"
        assert is_counted or not re.search(rf"(?:rate|increase)\({metric}\b", expr), f"{where}: {expr}"


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {metric for _, expr, _ in QUERIES for metric, _ in SELECTOR.findall(expr)}
    assert [family.name for family in FAMILIES if not any(name.startswith(family.name) for name in shown)] == []


def test_every_value_that_is_asked_for_by_name_can_occur() -> None:
    events = Collector(Scheduler())._meter.events
    for _, expr, _ in QUERIES:
        assert set(re.findall(r'kind="(\w+)"', expr)) <= {*events}
        assert set(re.findall(r'state="(\w+)"', expr)) <= {"running", "next"}
        assert set(re.findall(r"\$(\w+)", expr)) <= {*VARIABLES, "__rate_interval"}


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for one, other in combinations(DASHBOARD["panels"], 2):
        assert not _overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DASHBOARD["panels"])


def _overlap(one: Any, other: Any) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in (("x", "w"), ("y", "h"))
    )


def test_every_metric_with_its_labels_is_in_the_reference() -> None:
    for family in FAMILIES:
        shown = family.name + ("_total" if family.type == "counter" else "")
        row = re.search(rf"^\| `{shown}` \| {family.type} \|(.*?)\|", REFERENCE, re.MULTILINE)
        assert row is not None, shown
        assert set(re.findall(r"`(\w+)`", row[1])) == set(labels_of(family)), shown


def test_the_reference_names_no_metric_that_does_not_exist() -> None:
    assert set(re.findall(r"`(taskmill_\w+)`", REFERENCE)) <= {*LABELS, *(family.name for family in FAMILIES)}


def test_every_reason_and_outcome_is_in_the_reference() -> None:
    from taskmill import Ending
    from taskmill.observe.counters import HOLDS

    words = {*HOLDS, *Ending, "retried", "returned", "preempted", "waiting"}
    assert {word for word in words if f"`{word}`" not in REFERENCE} == set()
