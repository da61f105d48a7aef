"""A wrong setting of a scheduler, or a wrong field of its value, is refused by its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from taskmill import ConfigError, Retention, Retry, RetryLater, Scheduler
from taskmill.testing import ManualClock
from tests.acceptance.box import BAD_DURATIONS, NAN, box, shown

pytestmark = pytest.mark.one_engine("it is refused before there is a store")

BAD_SETTINGS: list[tuple[str, object]] = [
    *(("max_concurrency", value) for value in (0, -1, 1.5, "8", True, None, 1_000_000_001, 2**63)),
    *(("retry", value) for value in (3, "none")),
    *(("default_ttl", value) for value in BAD_DURATIONS),
    *(("retention", value) for value in (5, "all", 10_000)),
    *(("expiry_sweep_interval", value) for value in [*BAD_DURATIONS, None]),
    *(("cancel_timeout", value) for value in [*BAD_DURATIONS, None]),
    *(("shutdown_grace", value) for value in [*BAD_DURATIONS, None]),
    *(("durability", value) for value in ("none", "FULL", None, True)),
    *(("domains", value) for value in (["box"], "box", 5, None, box)),
    *(("clock", value) for value in (5, "now", datetime(2030, 1, 1, tzinfo=UTC))),
    *(("store", value) for value in (5, None, b"tasks.db", ["tasks.db"])),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [pytest.param(n, v, id=f"{n}-{shown(v)}-{i}") for i, (n, v) in enumerate(BAD_SETTINGS)],
)
def test_a_wrong_setting_of_a_scheduler_is_refused_by_name(name: str, value: Any) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError, match=name):
        Scheduler(**settings)


@pytest.mark.parametrize("value", BAD_DURATIONS, ids=shown)
def test_a_wrong_duration_in_a_value_is_refused_by_name(value: Any) -> None:
    makers: Mapping[str, Callable[[], object]] = {
        "delay": lambda: Retry.constant(1, value),
        "initial": lambda: Retry.linear(1, value, 1, 1),
        "increment": lambda: Retry.linear(1, 1, value, 1),
        "maximum": lambda: Retry.exponential(1, 1, value),
        "after": lambda: RetryLater("later", after=value),
        "max_age": lambda: Retention(max_age=value),
    }
    for name, make in makers.items():
        with pytest.raises(ConfigError, match=rf"\b{name}\b"):
            make()


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("n", lambda: Retry.constant(-1, 1)),
        ("n", lambda: Retry.constant(True, 1)),
        ("n", lambda: Retry.exponential(1.5, 1, 1)),  # type: ignore[arg-type]
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=NAN)),
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=math.inf)),
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=10**400)),
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=True)),
        ("factor", lambda: Retry.exponential(1, 1, 1, factor=-2)),
        ("jitter", lambda: Retry.exponential(1, 1, 1, jitter=1)),  # type: ignore[arg-type]
        ("max_count", lambda: Retention(max_count=-1)),
        ("max_count", lambda: Retention(max_count=True)),
        ("max_count", lambda: Retention(max_count=1.5)),  # type: ignore[arg-type]
        ("per_status", lambda: Retention(per_status={"done": Retention()})),
        ("per_status", lambda: Retention(per_status={"completed": -5})),
        ("per_status", lambda: Retention(per_status={"completed": "5"})),  # type: ignore[dict-item]
        ("per_status", lambda: Retention(per_status=5)),  # type: ignore[arg-type]
        ("start", lambda: ManualClock(datetime(2030, 1, 1))),
    ],
)
def test_a_wrong_part_of_a_value_is_refused_by_name(name: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=rf"\b{name}\b"):
        make()
