"""Random runs of a cron scheduler: the engine starts the same tasks at the same times as the pure decisions."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings

from tests.policy.cron.simulation import Plan
from tests.policy.cron.test_simulation import (
    Act,
    Crash,
    Pass,
    Redeclare,
    Step,
    Stop,
    beginnings,
    declarations,
    plans,
    programs,
)
from tests.repetition import often
from tests.runtime.cron.worlds import EngineWorld, PlannedWorld, Task

SMALLEST_STEP = 1000
"""The smallest step, in milliseconds, that counts as a step; less is drift."""
SEEN_AFTER_STEP = 150_000
"""Milliseconds with two occurrences of a task that runs each minute."""


async def both_lived(
    folder: Path, beginning: tuple[ZoneInfo, int], plans: list[Plan], declared: list[Task], program: list[Act]
) -> tuple[PlannedWorld, EngineWorld]:
    zone, at = beginning
    thought, lived = PlannedWorld(zone, at, plans), EngineWorld(folder, zone, at, plans)

    async def initialize() -> None:
        thought.initialize(*declared)
        thought.let_pass(0)
        await lived.initialize(*declared)

    async def stop(timeout: int | None) -> None:
        before = thought.real
        thought.stop(timeout)
        await lived.stop(timeout, thought.real - before)

    async def let_pass(ms: int) -> None:
        thought.let_pass(ms)
        await lived.let_pass(ms)

    await initialize()
    for act in program:
        match act:
            case Pass(ms):
                await let_pass(ms)
            case Step(ms):
                thought.step_clock(ms)
                thought.let_pass(0)
                await lived.step_clock(ms)
            case Crash(downtime):
                thought.crash()
                await lived.crash()
                await let_pass(downtime)
                await initialize()
            case Stop(timeout, downtime):
                await stop(timeout)
                await let_pass(downtime)
                if downtime % 2:
                    # The clock is set while no scheduler runs.
                    thought.step_clock(-downtime)
                    await lived.step_clock(-downtime)
                await initialize()
            case Redeclare(others):
                await stop(0)
                declared = others
                await initialize()
    await lived.end()
    return thought, lived


def steps_are_noticed(program: list[Act]) -> bool:
    return all(abs(act.ms) >= SMALLEST_STEP for act in program if isinstance(act, Step))


def watched(program: list[Act]) -> list[Act]:
    """Return the program with time after each clock step, and at the end, to see its effects."""
    after_step = [Pass(SEEN_AFTER_STEP)]
    return [then for act in program for then in (act, *(after_step if isinstance(act, Step) else []))] + [
        Pass(SEEN_AFTER_STEP)
    ]


UNHURRIED = [HealthCheck.too_slow, HealthCheck.filter_too_much]
lives = given(beginnings(), declarations.filter(bool), plans, programs.filter(steps_are_noticed).map(watched))


def starts_what_is_due_and_nothing_else(
    beginning: tuple[ZoneInfo, int], declared: list[Task], plans: list[Plan], program: list[Act]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        thought, lived = asyncio.run(both_lived(Path(folder), beginning, plans, declared, program))
    assert lived.wrong == []
    assert sorted(lived.starts) == sorted((start.at, start.name) for start in thought.starts)


@settings(max_examples=often(2), deadline=None, suppress_health_check=UNHURRIED)
@lives
def test_the_engine_starts_what_is_due_when_it_is_due_and_nothing_else(
    beginning: tuple[ZoneInfo, int], declared: list[Task], plans: list[Plan], program: list[Act]
) -> None:
    starts_what_is_due_and_nothing_else(beginning, declared, plans, program)


@pytest.mark.one_engine("many lives; a few are lived on both")
@settings(max_examples=often(6), deadline=None, suppress_health_check=UNHURRIED)
@lives
def test_it_does_so_in_many_lives(
    beginning: tuple[ZoneInfo, int], declared: list[Task], plans: list[Plan], program: list[Act]
) -> None:
    starts_what_is_due_and_nothing_else(beginning, declared, plans, program)
