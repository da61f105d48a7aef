"""With fixed durations, simulated tasks start when, and in the order in which, a dispatcher starts them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from taskmill import Aging, Context, Domain, Group, RateLimit, Scheduler, StoreError, Submission
from taskmill.model.turn import Turn, TurnResult
from taskmill.testing import ManualClock
from tests.both_engines import Engine
from tests.repetition import often, seeds

DURATIONS = {"short": 1, "middle": 3, "long": 10}
GROUPS = ["", "a", "b", "c"]

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"max_concurrency": 3},
    "one slot": {"max_concurrency": 1},
    "caps": {"max_concurrency": 4, "groups": {"a": Group(cap=1), "b": Group(cap=2)}},
    "weights": {"max_concurrency": 5, "groups": {"a": Group(weight=3), "b": Group(weight=2, min_slots=1)}},
    "more groups than slots": {"max_concurrency": 2, "groups": {"a": Group(weight=5)}},
    "rates": {
        "max_concurrency": 4,
        "groups": {"a": Group(rate=RateLimit(1, 4)), "b": Group(rate=RateLimit.per_minute(10, burst=2))},
    },
    "aging": {"max_concurrency": 2, "aging": Aging(grace=10, interval=5, step=40)},
    "aging and weights": {
        "max_concurrency": 3,
        "aging": Aging(grace=10, interval=5, step=40, urgent=64),
        "groups": {"a": Group(weight=4), "b": Group(cap=1)},
    },
}


class Bench:
    """A scheduler whose tasks take fixed times, and a record of their starts."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.domain = Domain("work")
        self.started: dict[int, datetime] = {}
        self.tasks: dict[str, Any] = {}
        for name, seconds in DURATIONS.items():
            self._define(name, seconds)
        self.scheduler = Scheduler(
            domains=[self.domain], clock=self.clock, preempt_at=None, shutdown_grace=0, **settings
        )

    def _define(self, name: str, seconds: float) -> None:
        async def handler(ctx: Context) -> None:
            self.started.setdefault(ctx.task.id, self.clock.now())
            await self.clock.sleep(seconds)

        self.tasks[name] = self.domain.task(name=name)(handler)

    async def learn(self) -> None:
        """Run one task of each type, so that their durations are known."""
        async with self.scheduler.running():
            await self.scheduler.submit_many([task.prepare() for task in self.tasks.values()])
            await self.clock.advance(60)
        assert await self.scheduler.count() == 0
        self.started.clear()

    def batch(self, chance: random.Random, count: int, *, deadlines: bool = False) -> list[Submission]:
        found: list[Submission] = []
        for number in range(count):
            options: dict[str, Any] = {"priority": chance.choice([100, 128, 192]), "ref": f"r{number}"}
            if group := chance.choice(GROUPS):
                options["group"] = group
            if chance.random() < 0.2:
                options["run_after"] = chance.choice([2, 5, 17])
            if chance.random() < 0.15 and number:
                options["depends_on"] = [f"r{chance.randrange(number)}"]
            if deadlines and chance.random() < 0.1:
                options["ttl"] = chance.choice([4, 9, 30])
            found.append(chance.choice(list(self.tasks.values())).options(**options).prepare())
        return found


def random_settings(chance: random.Random) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_concurrency": chance.randint(1, 6)}
    groups: dict[str, Group] = {}
    for name in "abc":
        options: dict[str, Any] = {"weight": chance.choice([1, 1, 1, 2, 5])}
        if chance.random() < 0.3:
            options["cap"] = chance.randint(1, 3)
        elif chance.random() < 0.3:
            options["min_slots"] = 1
        if chance.random() < 0.25:
            options["rate"] = RateLimit(chance.randint(1, 2), chance.choice([2, 4, 7]))
        groups[name] = Group(**options)
    if chance.random() < 0.7:
        settings["groups"] = groups
    if chance.random() < 0.35:
        settings["aging"] = Aging(grace=chance.choice([5, 10]), interval=5, step=40)
    return settings


def order(starts: Mapping[int, datetime], since: datetime, engine: Engine) -> list[tuple[float, int]]:
    """Return the starts in their order.

    PostgreSQL claims the tasks of one commit lane by lane, so those of one instant have no order there.
    """
    found = [((at - since) / timedelta(seconds=1), id) for id, at in starts.items()]
    return sorted(found) if engine.is_postgres else found


@pytest.mark.parametrize("name", SETTINGS)
async def test_a_queue_that_is_not_dispatched_yet_starts_as_simulated(name: str, engine: Engine) -> None:
    for seed in range(engine.fewer(often(2))):
        bench = Bench(**SETTINGS[name])
        async with bench.scheduler as scheduler:
            await bench.learn()
            since = bench.clock.now()
            await scheduler.submit_many(bench.batch(random.Random(seed), 40))
            comparison = await scheduler.simulate({}, horizon=3600)
            assert comparison.before == comparison.after
            async with scheduler.running():
                await bench.clock.advance(300)
            assert order(bench.started, since, engine) == order(comparison.before.starts, since, engine)
            assert len(bench.started) == 40


@pytest.mark.one_engine("the planner is the same, and a server gives the tasks of one instant no order")
@pytest.mark.parametrize("seed", seeds(8))
async def test_a_queue_with_deadlines_and_random_settings_starts_as_simulated(seed: int, engine: Engine) -> None:
    chance = random.Random(seed)
    bench = Bench(**random_settings(chance))
    async with bench.scheduler as scheduler:
        await bench.learn()
        since = bench.clock.now()
        await scheduler.submit_many(bench.batch(chance, 30, deadlines=True))
        comparison = await scheduler.simulate({}, horizon=3600)
        async with scheduler.running():
            await bench.clock.advance(260)
        assert order(bench.started, since, engine) == order(comparison.before.starts, since, engine)


@pytest.mark.parametrize("name", SETTINGS)
async def test_a_queue_at_work_continues_as_simulated(name: str, engine: Engine) -> None:
    """The simulation begins with the turns and permits of the dispatcher, and with tasks that run."""
    bench, chance = Bench(**SETTINGS[name]), random.Random(f"{name} at work")
    async with bench.scheduler as scheduler:
        await bench.learn()
        async with scheduler.running():
            await scheduler.submit_many(bench.batch(chance, 30))
            await bench.clock.advance(7)
            await scheduler.submit_many(bench.batch(chance, 20))
            await bench.clock.advance(4.5)
            since, before = bench.clock.now(), set(bench.started)
            comparison = await scheduler.simulate({}, horizon=3600)
            assert comparison.is_exact
            assert comparison.notes == []
            await bench.clock.advance(400)
        really = {id: at for id, at in bench.started.items() if id not in before}
        assert order(really, since, engine) == order(comparison.before.starts, since, engine)
        assert len(really) > 10


@pytest.mark.parametrize("name", ["plain", "weights"])
async def test_turns_that_the_store_refuses_do_not_change_the_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(**SETTINGS[name] | {"max_concurrency": 1})
    async with bench.scheduler as scheduler:
        await bench.learn()
        await scheduler.submit_many([bench.tasks["long"].options(group=group).prepare() for group in "aabbcc" * 2])
        simulated = (await scheduler.simulate({}, horizon=3600)).before.starts
        whole, claiming = scheduler._store.turn, 0

        async def turn(turn: Turn) -> TurnResult:
            nonlocal claiming
            claiming += bool(turn.starts.claims)
            if turn.starts.claims and claiming % 2:
                raise StoreError("refused")
            return await whole(turn)

        monkeypatch.setattr(scheduler._store, "turn", turn)
        async with scheduler.running():
            await bench.clock.advance(300)
        assert list(bench.started) == list(simulated)
