"""Forecasts are compared with what really happens, on ten kinds of workloads.

Each workload learns the durations of its tasks from earlier runs, makes a forecast of a new queue, and then runs it.
The durations of the queue come from the same source, and the forecast does not know them. The figures in
docs/explanation/looking-ahead.md are those of eight rounds, twice as many as in a normal run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import timedelta
from statistics import median
from typing import Any, NamedTuple

import pytest

from taskmill import (
    Aging,
    Context,
    Domain,
    Group,
    IoBudget,
    RateLimit,
    Reading,
    Resources,
    Retry,
    Scheduler,
    Submission,
)
from taskmill.cron import Cron
from taskmill.testing import ManualClock
from tests.repetition import seeds

pytestmark = pytest.mark.one_engine("the starts of both engines are compared with simulated ones elsewhere")

TASKS = 30
ROUNDS = seeds(4)
"""The starts of one round depend on each other, so one round may be far from the average."""


def even(chance: random.Random) -> float:
    return chance.uniform(3, 7)


def heavy(chance: random.Random) -> float:
    """Most are short, and some take very long."""
    return min(chance.paretovariate(1.3), 60)


class Quiet:
    """A machine that does nothing."""

    def sample(self) -> Reading:
        return Reading(0.0, 0, 0, 0, 0)


class Workload(NamedTuple):
    """How long tasks take, the settings of the scheduler, and the options of each task."""

    duration: Callable[[random.Random], float] = even
    settings: dict[str, Any] = {"max_concurrency": 3}  # noqa: RUF012 - it is never changed
    options: Callable[[int, random.Random], dict[str, Any]] = lambda _n, _chance: {}
    fails: float = 0.0
    cron: bool = False


def _dependencies(n: int, chance: random.Random) -> dict[str, Any]:
    needs = [f"r{chance.randrange(n)}" for _ in range(2)] if n > 4 and chance.random() < 0.5 else []
    return {"ref": f"r{n}", "depends_on": needs}


WORKLOADS = {
    "steady": Workload(),
    "bursty": Workload(options=lambda _n, chance: {"run_after": chance.choice([0, 30, 60])}),
    "heavy-tailed": Workload(duration=heavy),
    "rates": Workload(
        settings={"max_concurrency": 8, "groups": {"api": Group(rate=RateLimit(1, 3))}},
        options=lambda _n, chance: {"group": chance.choice(["api", "other"])},
    ),
    "shares": Workload(
        settings={"max_concurrency": 4, "groups": {"a": Group(weight=3), "b": Group(weight=1, min_slots=1)}},
        options=lambda _n, chance: {"group": chance.choice(["a", "b", "c"])},
    ),
    "dependencies": Workload(options=_dependencies),
    "failures": Workload(fails=0.3, options=lambda _n, _chance: {"retry": Retry.constant(3, 5)}),
    "IO-bound": Workload(
        settings={"max_concurrency": 8, "resources": Resources(sampler=Quiet(), capacity=IoBudget(disk_read="100MB"))},
        options=lambda _n, chance: {"io": IoBudget(disk_read=chance.choice(["40MB", "80MB"]))},
    ),
    "cron-heavy": Workload(settings={"max_concurrency": 2}, cron=True),
    "starved group": Workload(
        settings={"max_concurrency": 2, "aging": Aging(grace=20, interval=10, step=20)},
        options=lambda n, _chance: {"group": "low", "priority": 192} if n % 4 == 0 else {"group": "high"},
    ),
}


class Result(NamedTuple):
    """How good a forecast was: the error of each predicted start, and which starts were inside the range."""

    errors: list[float]
    inside: list[bool]


async def measured(workload: Workload, seed: int) -> Result:
    chance, clock, domain = random.Random(seed), ManualClock(), Domain("work")
    started: dict[int, Any] = {}

    @domain.task
    async def job(ctx: Context, seconds: float) -> None:
        started.setdefault(ctx.task.id, clock.now())
        await clock.sleep(seconds)
        if (ctx.task.id * 7919 + ctx.attempt * 104729 + seed) % 100 < 100 * workload.fails:
            raise RuntimeError("it fails now and then")

    async def report() -> None:
        await clock.sleep(20)

    def batch(count: int) -> list[Submission]:
        return [job.options(**workload.options(n, chance)).prepare(workload.duration(chance)) for n in range(count)]

    crons = [Cron(f"report {n}", "* * * * *", report, 60) for n in range(2)] if workload.cron else []
    settings: dict[str, Any] = {
        "domains": [domain],
        "clock": clock,
        "cron": crons,
        "preempt_at": None,
        "shutdown_grace": 0,
        **workload.settings,
    }
    async with Scheduler(**settings) as scheduler, scheduler.running():
        await scheduler.submit_many(batch(TASKS * 2))
        await clock.advance(600)
        await clock.advance(10)
        handles = await scheduler.submit_many(batch(TASKS))
        await clock.advance(0)
        now = clock.now()
        forecast = await scheduler.forecast(samples=60, seed=seed, horizon=3600)
        outlooks = {handle.id: forecast.of(handle.id) for handle in handles}
        await clock.advance(600)
    errors: list[float] = []
    inside: list[bool] = []
    for id, outlook in outlooks.items():
        assert outlook.start is not None, "it starts before the horizon"
        low, middle, high = outlook.start.p10, outlook.start.p50, outlook.start.p90
        assert low is not None
        assert middle is not None
        assert high is not None
        wait = (started[id] - now) / timedelta(seconds=1)
        if wait > 0:
            errors.append(abs((middle - started[id]) / timedelta(seconds=1)) / wait)
            slack = timedelta(milliseconds=10)
            inside.append(low - slack <= started[id] <= high + slack)
    return Result(errors, inside)


async def results_of(name: str, rounds: Iterable[int]) -> Result:
    found = Result([], [])
    for seed in rounds:
        one = await measured(WORKLOADS[name], seed)
        found.errors.extend(one.errors)
        found.inside.extend(one.inside)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WORKLOADS)
async def test_predicted_starts_are_near_the_real_ones(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    result = await results_of(name, ROUNDS)
    error, share = median(result.errors), sum(result.inside) / len(result.inside)
    record_property(name, f"error {error:.0%}, inside {share:.0%} of {len(result.inside)}")
    print(f"| {name} | {error:.0%} | {share:.0%} | {len(result.inside)} |")
    assert error <= (0.35 if name == "heavy-tailed" else 0.30)
    assert share >= 0.45


@pytest.mark.timeout(600)
async def test_ranges_hold_most_of_the_real_starts() -> None:
    inside = [each for name in WORKLOADS for each in (await results_of(name, seeds(1))).inside]
    assert 0.70 <= sum(inside) / len(inside) <= 0.98, sum(inside) / len(inside)
