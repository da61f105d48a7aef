"""Over time, with more groups than slots, each group gets its share, whatever its tasks, its past or its name.

``TASKMILL_DISPATCHES`` sets how many starts the longest of these tests makes.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sized
from heapq import heappop, heappush
from itertools import count

import pytest

from taskmill import Group
from taskmill.dispatch.backpressure import Backpressure
from taskmill.dispatch.front import Front
from taskmill.dispatch.limits import Load
from taskmill.dispatch.picker import Picker
from taskmill.model.controls import Controls, Declared
from taskmill.model.machine import ThrottlePolicy
from taskmill.model.task import Lane, Place, Waiting
from taskmill.policy.rules import Rules

pytestmark = pytest.mark.one_engine("no store is opened")

DISPATCHES = int(os.environ.get("TASKMILL_DISPATCHES", "30000"))
TYPE = "d::t"


class Mill:
    """Groups that never run out of tasks; each has its own length of task; time jumps from ending to ending."""

    def __init__(self, slots: int, groups: Mapping[str, Group], length: Callable[[str], int] = lambda _: 100) -> None:
        self.now = 0
        self.slots = slots
        self.length = length
        self.started: Counter[str] = Counter()
        self.held_ms: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.busy: set[str] = set()
        self._ends: list[tuple[int, int, Waiting]] = []
        self._numbers = count()
        self._load = Load()
        self.front = Front()
        self.picker = Picker(self.front, self._load, lambda _: True, Backpressure(self._load, ThrottlePolicy()))
        self.rule(groups)

    def rule(self, groups: Mapping[str, Group]) -> None:
        declared = Declared(max_concurrency=self.slots, groups=groups)
        self.picker.rule(Rules(declared, Controls()), (), self.now)

    def keep_busy(self, *groups: str) -> None:
        for group in groups:
            self.busy.add(group)
            for _ in range(self.slots + 1):
                self.submit(group)

    def submit(self, group: str) -> None:
        self.front.add(Lane(group, 128, TYPE), Place(self.now, number := next(self._numbers), number))

    def fill(self) -> list[Waiting]:
        picks = self.picker.pick(self.slots, self.slots - len(self._ends), self.now)
        for pick in picks:
            self.started[pick.group] += 1
            self.running[pick.group] += 1
            heappush(self._ends, (self.now + self.length(pick.group), next(self._numbers), pick))
            if pick.group in self.busy:
                self.submit(pick.group)
        return picks

    def refuse(self) -> None:
        """Pick tasks, as in a turn whose starts the store refuses."""
        picks = self.picker.pick(self.slots, self.slots - len(self._ends), self.now)
        for pick in picks:
            self._load.end(pick.group, TYPE)
            self.front.add(pick.lane, pick.place)
        self.picker.not_started(picks)
        self.picker.turn_over((), all_started=False)

    def pass_on(self) -> None:
        """Advance the time to the end of the next task."""
        self.now, _, pick = heappop(self._ends)
        length = self.length(pick.group)
        self.held_ms[pick.group] += length
        self.running[pick.group] -= 1
        self._load.end(pick.group, TYPE)
        self.picker.shares.ended(pick.group, length)

    def run(self, dispatches: int, watch: Callable[[], None] = lambda: None) -> None:
        until = self.started.total() + dispatches
        while self.started.total() < until:
            self.fill()
            watch()
            self.pass_on()

    def parts(self) -> dict[str, float]:
        """Return the fraction of all slot time that each group has had."""
        return {group: held / self.held_ms.total() for group, held in self.held_ms.items()}


def assert_by_weight(parts: Mapping[str, float], weights: Mapping[str, float], within: float) -> None:
    total = sum(weights.values())
    off = {group: parts.get(group, 0) * total / weight for group, weight in weights.items()}
    worst = max(off, key=lambda group: abs(off[group] - 1))
    assert abs(off[worst] - 1) <= within, f"{worst} had {off[worst]:.3f} of its share"


def test_each_of_500_groups_on_16_slots_gets_its_weight_within_5_percent() -> None:
    weights = {f"g{number}": 1 + number % 3 for number in range(500)}
    mill = Mill(16, {name: Group(weight=weight) for name, weight in weights.items()})
    mill.keep_busy(*weights)
    mill.run(DISPATCHES)
    assert_by_weight(mill.parts(), weights, 0.05)


def test_no_name_is_better_than_another() -> None:
    names = ["", "a", "zz", "Ä", *(f"group {number}" for number in range(46))]
    parts: list[dict[str, float]] = []
    for order in (names, names[::-1]):
        mill = Mill(4, {name: Group(weight=2) for name in order})
        mill.keep_busy(*order)
        mill.run(5_000)
        parts.append(mill.parts())
    for each in parts:
        assert_by_weight(each, dict.fromkeys(names, 1), 0.05)


@pytest.mark.parametrize("slots", [1, 4, 16])
def test_groups_of_long_tasks_get_no_more_of_the_slots(slots: int) -> None:
    weights = {f"{kind} {number}": 1 + number % 3 for kind in ("short", "long", "endless") for number in range(20)}
    lengths = {"short": 50, "long": 500, "endless": 2_000}
    # A task shorter than the minimum charge counts as that.
    mill = Mill(slots, {name: Group(weight=w) for name, w in weights.items()}, lambda name: lengths[name.split()[0]])
    mill.keep_busy(*weights)
    mill.run(8_000)
    parts = {name: max(lengths[name.split()[0]], 100) * started for name, started in mill.started.items()}
    total = sum(parts.values())
    assert_by_weight({name: part / total for name, part in parts.items()}, weights, 0.12)


def test_an_idle_group_gains_nothing_by_it() -> None:
    names = [f"g{number}" for number in range(20)]
    mill = Mill(4, {name: Group(weight=2) for name in [*names, "idler"]})
    mill.keep_busy(*names)
    mill.run(5_000)
    mill.keep_busy("idler")
    mill.started.clear()
    mill.run(210)
    assert 8 <= mill.started["idler"] <= 12
    assert max(mill.started[name] for name in names) <= 12
    assert min(mill.started[name] for name in names) >= 8


@pytest.mark.parametrize("weight", [1, 5])
def test_a_newcomer_is_served_within_one_round_however_long_the_others_were_there(weight: int) -> None:
    names = [f"g{number}" for number in range(50)]
    mill = Mill(4, {name: Group(weight=weight) for name in names} | {"late": Group(weight=2)})
    mill.keep_busy(*names)
    mill.run(4_000)
    mill.keep_busy("late")
    before = mill.started.total()
    while not mill.started["late"]:
        mill.fill()
        mill.pass_on()
    assert mill.started.total() - before <= len(names) + mill.slots


def test_a_stream_of_newcomers_starves_no_group() -> None:
    """Each newcomer may start at once and leaves after one task; groups that stay still get their turns."""
    mill = Mill(4, {"steady": Group(weight=2)})
    mill.keep_busy("steady")
    for number in range(2_000):
        mill.submit(f"newcomer {number}")
        mill.fill()
        mill.pass_on()
    # One more newcomer waits after each turn of the group, and its share is that of one group among them.
    assert mill.started["steady"] >= 60


def test_the_memory_of_groups_that_left_does_not_pile_up() -> None:
    mill = Mill(4, {"steady": Group(weight=2)})
    for number in range(2_000):
        mill.submit(f"passing {number}")
        mill.fill()
        mill.pass_on()
    picker = mill.picker
    kept: list[Sized] = [picker._versions, picker._next_of, picker._queue, picker._urgent, picker._pressing]
    kept += [picker._round_robin._last, picker.shares._virtual_time._due, picker.shares._demands]
    assert all(len(each) < 200 for each in kept)


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_a_light_group_beside_one_100_times_heavier_gets_its_part(slots: int) -> None:
    weights = {"heavy": 100, "light": 1}
    mill = Mill(slots, {name: Group(weight=weight) for name, weight in weights.items()})
    mill.keep_busy(*weights)
    mill.run(6_000)
    assert_by_weight(mill.parts(), weights, 0.05)


def test_minimums_and_caps_hold_at_every_moment_and_the_rest_is_shared() -> None:
    names = [f"g{number}" for number in range(30)]
    groups = {name: Group(weight=2) for name in names} | {
        "sure": Group(min_slots=2),
        "capped": Group(weight=100, cap=1),
    }
    mill = Mill(8, groups)
    mill.keep_busy(*groups)
    least: list[int] = []
    most: list[int] = []

    def watch() -> None:
        least.append(mill.running["sure"])
        most.append(mill.running["capped"])

    mill.run(8_000, watch)
    assert min(least) >= 2
    assert max(most) <= 1
    assert min(mill.started[name] for name in names) >= 0.95 * max(mill.started[name] for name in names)


def test_more_minimums_than_slots_are_served_in_turns() -> None:
    names = [f"g{number}" for number in range(10)]
    mill = Mill(4, {name: Group(min_slots=2) for name in names})
    mill.keep_busy(*names)
    mill.run(5_000)
    assert_by_weight(mill.parts(), dict.fromkeys(names, 1), 0.05)


def test_weights_that_change_count_from_then_on() -> None:
    names = [f"g{number}" for number in range(20)]
    mill = Mill(4, {name: Group(weight=2) for name in names})
    mill.keep_busy(*names)
    mill.run(4_000)
    weights = {name: 2 + 6 * (name == "g7") for name in names}
    mill.rule({name: Group(weight=weight) for name, weight in weights.items()})
    mill.held_ms.clear()
    mill.run(8_000)
    assert_by_weight(mill.parts(), weights, 0.05)


@pytest.mark.parametrize("seed", range(5))
def test_starts_do_not_depend_on_when_and_in_which_order_groups_are_examined(seed: int) -> None:
    groups = {name: Group(weight=weight) for name, weight in zip("abcdef", (1, 1, 2, 2, 3, 3), strict=True)}

    def starts(look: Callable[[Front], None]) -> list[str]:
        mill, found = Mill(4, groups), list[str]()
        mill.keep_busy(*groups)
        for _ in range(300):
            look(mill.front)
            found += [pick.group for pick in mill.fill()]
            mill.pass_on()
        return found

    def look_at_some(front: Front) -> None:
        front.touch(chance.sample(sorted(groups), chance.randrange(len(groups))))

    chance = random.Random(seed)
    assert starts(look_at_some) == starts(lambda _: None)


@pytest.mark.parametrize("weights", [(1, 1, 1, 1), (1, 2, 3, 3)], ids=["turns", "shares"])
def test_picked_tasks_that_do_not_start_cost_their_groups_nothing(weights: tuple[int, ...]) -> None:
    groups = {name: Group(weight=weight) for name, weight in zip("abcd", weights, strict=True)}

    def starts(*, refused: int) -> list[str]:
        mill, found = Mill(3, groups), list[str]()
        mill.keep_busy(*groups)
        for number in range(200):
            if number % 3 < refused:
                mill.refuse()
            found += [pick.group for pick in mill.fill()]
            mill.pass_on()
        return found

    assert starts(refused=2) == starts(refused=0)
