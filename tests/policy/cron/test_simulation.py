"""Random runs of a cron scheduler: it always does what the plain model says, and nothing forbidden."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill.policy.cron import decisions
from tests.policy.cron.oracle import shifts_of
from tests.policy.cron.plain_model import EPOCH, MINUTE
from tests.policy.cron.simulation import Plan, World
from tests.repetition import often

HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana"]
OFTEN = ["* * * * *", "0,20,40 * * * *", "30 * * * *"]
SELDOM = ["0 0,2 * * *", "30 2 * * *", "15 1,3,12 * * 0,6", "0 12 30 12 *"]

declarations = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([*OFTEN, *OFTEN, *SELDOM]),
        st.sampled_from([0, 0.5, 30, 90, 600, 7200]),
    ),
    max_size=3,
    unique_by=lambda task: task[0],
)
# With a success at the end, so that a task without a delay does not fail ten thousand times in a row.
plans = st.lists(
    st.builds(Plan, st.sampled_from([0, 1, 500, 20_000, 90_000, 400_000, 3 * HOUR]), st.booleans()), max_size=5
).map(lambda some: [*some, Plan(0, True)])
spans = st.one_of(st.integers(0, 3 * MINUTE), st.integers(0, 2 * HOUR), st.sampled_from([MINUTE, HOUR]))
steps = st.one_of(st.integers(-3 * MINUTE, 3 * MINUTE), st.integers(-2 * DAY, 2 * DAY), st.sampled_from([-HOUR, HOUR]))
downtimes = st.one_of(st.just(0), st.integers(0, 2 * MINUTE), st.integers(0, 2 * DAY))


class Pass(NamedTuple):
    ms: int


class Step(NamedTuple):
    ms: int
    noticed: bool


class Crash(NamedTuple):
    downtime: int


class Stop(NamedTuple):
    timeout: int | None
    downtime: int


class Redeclare(NamedTuple):
    tasks: list[tuple[str, str, float]]


Act = Pass | Step | Crash | Stop | Redeclare
acts = st.one_of(
    st.builds(Pass, spans),
    st.builds(Pass, spans),
    st.builds(Step, steps, st.booleans()),
    st.builds(Crash, downtimes),
    st.builds(Stop, st.sampled_from([None, 0, 10_000]), downtimes),
    st.builds(Redeclare, declarations),
)
# Drawn one after the other: lists of Hypothesis are mostly short.
programs = st.integers(3, 12).flatmap(lambda length: st.lists(acts, min_size=length, max_size=length))


@st.composite
def beginnings(draw: st.DrawFn) -> tuple[ZoneInfo, int]:
    key = draw(st.sampled_from(ZONES))
    recent = [shift for shift in shifts_of(key) if shift.year > 2005] or [datetime(2026, 1, 1, tzinfo=UTC)]
    at = draw(st.sampled_from(recent)) + timedelta(seconds=draw(st.integers(-5 * 3600, 3600)))
    return ZoneInfo(key), (at - EPOCH) // timedelta(milliseconds=1)


def live(world: World, declared: list[tuple[str, str, float]], program: list[Act]) -> None:
    world.initialize(*declared)
    for act in program:
        match act:
            case Pass(ms):
                world.let_pass(ms)
            case Step(ms, noticed):
                world.step_clock(ms, noticed=noticed)
            case Crash(downtime):
                world.crash()
                world.let_pass(downtime)
                world.initialize(*declared)
            case Stop(timeout, downtime):
                world.stop(timeout)
                world.let_pass(downtime)
                world.initialize(*declared)
            case Redeclare(others):
                declared = others
                world.stop(0)
                world.initialize(*declared)


@settings(max_examples=often(30))
@given(beginnings(), declarations.filter(bool), plans, programs)
def test_whatever_happens_what_starts_is_what_is_due(
    beginning: tuple[ZoneInfo, int],
    declared: list[tuple[str, str, float]],
    plans: list[Plan],
    program: list[Act],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # The plain model never forgets; forgetting has its own test.
        patch.setattr(decisions, "MOST_STRETCHES", 10**6)
        zone, at = beginning
        world = World(zone, at, plans)
        live(world, declared, program)


@settings(max_examples=often(30))
@given(beginnings(), declarations.filter(bool), plans, st.lists(spans, min_size=1, max_size=6))
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
