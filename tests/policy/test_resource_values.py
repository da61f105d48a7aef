"""The values that configure backpressure: what they accept, and what they refuse by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill import ConfigError, Priority
from taskmill.model.io_budget import AXES, MOST_BYTES, NO_IO, IoBudget
from taskmill.model.machine import (
    DEFAULT_LIMITS,
    Capacity,
    PressureSource,
    Reading,
    Resources,
    ResourceSampler,
    ThrottlePolicy,
    checked_bandwidth,
    checked_resources,
    checked_sources,
)

NAN = float("nan")
amounts = st.integers(0, MOST_BYTES)
budgets = st.builds(IoBudget, amounts, amounts, amounts, amounts)


class Steady:
    """A sampler and source with constant readings."""

    name = "steady"

    def sample(self) -> Reading:
        return Reading(0.5)

    def pressure(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: IoBudget(disk_read=-1), "disk_read must be from 0"),
        (lambda: IoBudget(disk_write=1.5), "disk_write must be an int, in bytes, or a text such as '64MB', not float"),  # type: ignore[arg-type]
        (lambda: IoBudget(net_rx=True), "net_rx must be an int, in bytes, or a text such as '64MB', not bool"),
        (lambda: IoBudget(net_tx=2**53), "net_tx must be from 0 to 9,007,199,254,740,991"),
        (lambda: IoBudget(net_tx=10**400), "net_tx must be from 0"),
        (lambda: IoBudget("1"), "disk_read is written as 500kB, 64MB or 1GiB, got '1'"),
        (lambda: Capacity(disk_read=-1), "disk_read must be bytes per second"),
        (lambda: Capacity(net_rx=NAN), "net_rx must be bytes per second"),
        (lambda: Capacity(net_tx=10**400), "net_tx must be bytes per second"),
        (lambda: Resources(sampler=5), r"sampler must have a method sample\(\).*int does not"),  # type: ignore[arg-type]
        (lambda: Resources(sampler=Steady), "the class Steady, which is not an instance"),  # type: ignore[arg-type]
        (lambda: Resources(interval=0), "interval must be from 10 ms to 1 hour"),
        (lambda: Resources(interval=-1), "interval must not be negative"),
        (lambda: Resources(interval=NAN), "interval must not be NaN"),
        (lambda: Resources(interval=timedelta(days=1)), "interval must be from 10 ms to 1 hour"),
        (lambda: Resources(interval="1"), "interval is written as"),
        (lambda: Resources(capacity=100), "capacity must be an IoBudget in bytes per second.*int"),  # type: ignore[arg-type]
        (lambda: Resources(capacity={"disk_read": 1}), "capacity must be an IoBudget.*dict"),  # type: ignore[arg-type]
        (lambda: checked_resources(1), "resources must be True, None or Resources"),
        (lambda: checked_resources("psutil"), "resources must be True, None or Resources"),
        (lambda: checked_bandwidth("1M"), "bandwidth_limit is written as 500kB, 64MB or 1GiB, got '1M'"),
        (lambda: checked_bandwidth(0), "bandwidth_limit must be more than 0"),
        (lambda: checked_bandwidth(NAN), "bandwidth_limit must be more than 0"),
        (lambda: checked_bandwidth(10**400), "bandwidth_limit must be more than 0"),
        (lambda: checked_sources(Steady()), "pressure must be a list of pressure sources, not Steady"),
        (lambda: checked_sources("cpu"), "pressure must be a list of pressure sources, not str"),
        (lambda: checked_sources([Steady]), "the class Steady, which is not an instance"),
        (lambda: checked_sources([lambda: 0.5]), r"has a name and a method pressure\(\); function does not"),
        (lambda: checked_sources([Steady(), Steady()]), "two pressure sources are called 'steady'"),
        (lambda: ThrottlePolicy(5), "limits must be a list of .* pairs, not int"),  # type: ignore[arg-type]
        (lambda: ThrottlePolicy("no"), "limits must be a list of .* pairs, not str"),  # type: ignore[arg-type]
        (lambda: ThrottlePolicy([5]), "limits must be .* pairs, got 5"),  # type: ignore[list-item]
        (lambda: ThrottlePolicy([(192, 0.5, 1)]), "limits must be .* pairs"),  # type: ignore[list-item]
        (lambda: ThrottlePolicy([(256, 0.5)]), "priority in limits must be from 0"),
        (lambda: ThrottlePolicy([(0.5, 192)]), "priority in limits must be an int"),  # type: ignore[list-item]
        (lambda: ThrottlePolicy([(192, 50)]), "limit in limits must be from 0 to 1, got 50"),
        (lambda: ThrottlePolicy([(192, NAN)]), "limit in limits must be from 0 to 1"),
        (lambda: ThrottlePolicy([(192, 10**400)]), "limit in limits must be from 0 to 1"),
        (lambda: ThrottlePolicy([(192, True)]), "limit in limits must be a number"),
        (lambda: ThrottlePolicy([(192, 0.5), (192, 0.6)]), "limits has priority 192 twice"),
        (lambda: ThrottlePolicy([(192, 0.8), (128, 0.5)]), "the limit 0.8 for priority 192 would never matter"),
        (lambda: ThrottlePolicy(preempt_above=1.5), "preempt_above must be from 0 to 1"),
        (lambda: ThrottlePolicy(resume_below=0.5), "resume_below .* needs preempt_above"),
        (lambda: ThrottlePolicy(preempt_above=0.8, resume_below=0.9), "resume_below must not be above preempt_above"),
        (lambda: ThrottlePolicy(easing=-0.1), "easing must be from 0 to 1"),
        (lambda: ThrottlePolicy(easing=None), "easing must be a number"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_refused_by_name(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


@given(budgets, budgets, budgets)
def test_budgets_add_up_in_any_order_and_stay_within_bounds(a: IoBudget, b: IoBudget, c: IoBudget) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + NO_IO == a
    assert (a + b) - b == a or MOST_BYTES in (a + b).amounts
    assert a - (a + b) == NO_IO


@given(budgets)
def test_a_budget_survives_json_and_names_the_axes_it_has(budget: IoBudget) -> None:
    assert msgspec.json.decode(msgspec.json.encode(budget), type=IoBudget) == budget
    assert IoBudget(**budget.axes()) == budget
    assert all(amount > 0 for amount in budget.axes().values())
    assert list(budget.axes()) == [axis for axis in AXES if getattr(budget, axis)]


def test_a_budget_adds_only_to_a_budget() -> None:
    with pytest.raises(TypeError):
        IoBudget(1) + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        IoBudget(1) - 1  # type: ignore[operator]


def test_equal_settings_are_equal_however_they_were_written() -> None:
    assert Resources(interval=1) == Resources(interval=timedelta(seconds=1)) == checked_resources(True)
    assert ThrottlePolicy() == ThrottlePolicy([(Priority.NORMAL, 0.75), [Priority.LOW, 0.5]])  # type: ignore[list-item]
    assert Resources().interval_seconds == 1


def test_the_default_throttles_low_above_half_and_normal_above_three_quarters() -> None:
    assert ThrottlePolicy().by_urgency == DEFAULT_LIMITS == ((192, 0.5), (128, 0.75))
    assert ThrottlePolicy([]).by_urgency == ()


def test_tasks_return_a_little_below_the_pressure_at_which_they_are_preempted() -> None:
    assert ThrottlePolicy(preempt_above=0.9).resume_below == pytest.approx(0.8)
    assert ThrottlePolicy(preempt_above=0.05).resume_below == 0
    assert ThrottlePolicy().resume_below is None


def test_anything_with_the_right_methods_is_a_sampler_or_a_source() -> None:
    assert isinstance(Steady(), ResourceSampler)
    assert isinstance(Steady(), PressureSource)
    assert Resources(sampler=Steady()).sampler is not None
    assert [source.name for source in checked_sources([Steady()])] == ["steady"]
    assert checked_bandwidth(5) == 5.0
    assert checked_bandwidth(None) is None
    assert checked_resources(None) is None
    assert checked_resources(False) is None
