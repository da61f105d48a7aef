"""Random lives of a cron scheduler: whatever happens, it does what the plain model says, and nothing forbidden."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill.policy.cron import decisions
from tests.policy.cron.oracle import shifts_of
from tests.policy.cron.plain_model import EPOCH, MINUTE
from tests.policy.cron.simulation import Plan, World

HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana"]
TEXTS = ["* * * * *", "0,20,40 * * * *", "30 * * * *", "0 0,2 * * *", "30 2 * * *", "15 1,3,12 * * 0,6", "0 12 30 12 *"]

tasks = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(TEXTS), st.sampled_from([0, 0.5, 30, 90, 600, 7200])),
    max_size=3,
    unique_by=lambda task: task[0],
)
# With a success at the end, so that a task without a delay does not fail ten thousand times in a row.
plans = st.lists(
    st.builds(Plan, st.sampled_from([0, 1, 500, 20_000, 90_000, 400_000, 3 * HOUR]), st.booleans()), max_size=5
).map(lambda some: [*some, Plan(0, True)])
spans = st.one_of(st.integers(0, 3 * MINUTE), st.integers(0, 2 * HOUR), st.sampled_from([MINUTE, HOUR]))
steps = st.one_of(st.integers(-3 * MINUTE, 3 * MINUTE), st.integers(-2 * DAY, 2 * DAY), st.sampled_from([-HOUR, HOUR]))
acts = st.one_of(
    st.tuples(st.just("pass"), spans),
    st.tuples(st.just("pass"), spans),
    st.tuples(st.just("step"), steps),
    st.tuples(st.just("step unseen"), steps),
    st.tuples(st.just("stop"), st.sampled_from([None, 0, 10_000])),
    st.tuples(st.just("crash"), st.integers(0, 2 * DAY)),
    st.tuples(st.just("restart"), tasks),
)


@st.composite
def beginnings(draw: st.DrawFn) -> tuple[ZoneInfo, int]:
    key = draw(st.sampled_from(ZONES))
    recent = [shift for shift in shifts_of(key) if shift.year > 2005] or [datetime(2026, 1, 1, tzinfo=UTC)]
    at = draw(st.sampled_from(recent)) + timedelta(seconds=draw(st.integers(-5 * 3600, 3600)))
    return ZoneInfo(key), (at - EPOCH) // timedelta(milliseconds=1)


def live(world: World, declared: list[tuple[str, str, float]], program: list[tuple[str, object]]) -> None:
    world.initialize(*declared)
    for act, how in program:
        match act, how:
            case "pass", int(ms):
                world.let_pass(ms)
            case "step", int(ms):
                world.step_clock(ms)
            case "step unseen", int(ms):
                world.step_clock(ms, noticed=False)
            case "stop", timeout:
                world.stop(timeout if isinstance(timeout, int) else None)
            case "crash", int(ms):
                world.crash()
                world.let_pass(ms)
            case "restart", list(others):
                if world.is_active:
                    world.stop(0)
                world.initialize(*others)
            case _:
                raise AssertionError(act)


@settings(max_examples=250)
@given(beginnings(), tasks, plans, st.lists(acts, max_size=12))
def test_whatever_happens_what_starts_is_what_is_due(
    beginning: tuple[ZoneInfo, int],
    declared: list[tuple[str, str, float]],
    plans: list[Plan],
    program: list[tuple[str, object]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # The plain model forgets nothing; what forgetting does has a test of its own.
        patch.setattr(decisions, "MOST_STRETCHES", 10**6)
        zone, at = beginning
        world = World(zone, at, plans)
        live(world, declared, program)


@settings(max_examples=100)
@given(beginnings(), tasks, plans, st.lists(spans, max_size=6))
def test_while_the_clock_runs_smoothly_an_idle_task_starts_on_the_dot(
    beginning: tuple[ZoneInfo, int], declared: list[tuple[str, str, float]], plans: list[Plan], passing: list[int]
) -> None:
    zone, at = beginning
    world = World(zone, at, [Plan(0, succeeds) for _, succeeds in plans])
    world.initialize(*declared)
    for ms in passing:
        world.let_pass(ms)
    late = [start for start in world.starts if start.reason == "occurrence" and start.at != start.occurrence]
    assert all(start.at == at and start.at - start.occurrence < MINUTE for start in late), "only at the very beginning"
