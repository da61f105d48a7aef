"""A change that is applied does what its simulation has shown, task by task."""

from __future__ import annotations

import random
from typing import Any

import pytest

from taskmill import Aging, Group, RateLimit
from tests.both_engines import Engine
from tests.repetition import often
from tests.runtime.ahead.test_same_starts import SETTINGS, Bench, order

CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "more slots": ("plain", {"max_concurrency": 5}),
    "fewer slots": ("caps", {"max_concurrency": 2}),
    "a larger cap": ("caps", {"groups": {"a": {"cap": 3}}}),
    "no cap": ("caps", {"groups": {"a": {"cap": None}}}),
    "a weight": ("weights", {"groups": {"c": {"weight": 6}}}),
    "a first weight": ("plain", {"groups": {"b": {"weight": 4}}}),
    "a higher rate": ("rates", {"groups": {"a": {"rate": RateLimit(3, 4)}}}),
    "a lower rate": ("rates", {"groups": {"b": {"rate": RateLimit(1, 11, burst=4)}}}),
    "no rate": ("rates", {"groups": {"a": {"rate": None}}}),
    "a whole group": ("rates", {"groups": {"a": Group(cap=1, rate=RateLimit(2, 5))}}),
    "a rate of a type": ("plain", {"rates": {"work::short": RateLimit(1, 5)}}),
    "a default group": ("plain", {"default_group": {"cap": 1}}),
    "aging": ("one slot", {"aging": Aging(grace=5, interval=5, step=40)}),
    "no aging": ("aging", {"aging": None}),
    "resumption": ("plain", {"resume": ["a"]}),
    "several": ("aging and weights", {"max_concurrency": 5, "groups": {"b": {"cap": 2}}, "resume": ["a"]}),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_that_is_applied_does_what_its_simulation_has_shown(name: str, engine: Engine) -> None:
    settings, changes = CHANGES[name]
    for seed in range(engine.fewer(often(2))):
        bench, chance = Bench(**SETTINGS[settings]), random.Random(f"{name} {seed}")
        async with bench.scheduler as scheduler:
            await bench.learn()
            async with scheduler.running():
                await scheduler.submit_many(bench.batch(chance, 40))
                await bench.clock.advance(2)
                if "resume" in changes:
                    await scheduler.group("a").pause()
                await bench.clock.advance(5.5)
                since, before = bench.clock.now(), set(bench.started)
                comparison = await scheduler.simulate(changes, horizon=3600)
                await scheduler.apply(changes)
                await bench.clock.advance(500)
            really = {id: at for id, at in bench.started.items() if id not in before}
            assert order(really, since, engine) == order(comparison.after.starts, since, engine)
            assert len(really) > 10
