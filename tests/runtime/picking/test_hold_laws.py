"""One rule for holds: the picker starts a task exactly when ``explain`` names no hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill.dispatch.hold_counter import HoldCounter
from taskmill.model.controls import Controls, Declared
from taskmill.model.explanation import Reason, Surroundings
from taskmill.model.machine import Machine, NodeMachine
from taskmill.model.task import Lane, Place
from taskmill.policy.explaining import explain
from taskmill.policy.rules import Rules
from tests.policy.explaining_world import PENDING
from tests.repetition import often
from tests.runtime.picking.stories import Step, declarations, stories
from tests.runtime.picking.world import Look, World

pytestmark = pytest.mark.one_engine("no store is opened")

worlds = st.tuples(declarations, st.lists(st.sampled_from([0.0, 0.5, 0.8, 0.95]), min_size=1))
"""The declarations, and the pressure at each step of a story."""


def holds_on(world: World, lane: Lane, place: Place) -> set[Reason]:
    """Return the holds that ``explain`` gives for a waiting task, from a snapshot of the world."""
    situation = msgspec.structs.replace(
        PENDING,
        id=place.id,
        type=lane.type,
        group=lane.group,
        priority=lane.urgency,
        urgency=lane.urgency,
        created_at=place.queued_at,
        queued_at=place.queued_at,
        renewed_at=place.renewed_at,
        clock_from=place.queued_at,
        place_id=place.place_id,
    )
    seen = world.seen
    machine = Machine() if seen is None else world.backpressure.report(seen)
    around = Surroundings(
        running=Counter((task.group, task.type) for task in world.running),
        waiting=Counter((lane.group, lane.type) for lane, _ in world.waiting()),
        unknown_types=world.unknown,
        machines=[NodeMachine(None, machine, is_here=True)],
    )
    buckets = dict(world.picker.limits.buckets._buckets)
    controls = Controls(0, None, dict(world.changes), dict(world.pauses), buckets=buckets)
    explained = explain(situation, around, Rules(world.declared, controls), world.now)
    return {hold.reason for hold in explained.holds}


def told(declared: Declared, pressures: list[float], story: list[Step]) -> Iterator[World]:
    """Yield the world after each step of a story, before the picker fills its slots."""
    world = World(declared)
    for number, step in enumerate(story):
        step(world)
        world.survey()
        # A snapshot does not say how many tasks of a group the pressure holds: no pressure while slots are shared.
        pressure = 0.0 if world.rules.is_shared else pressures[number % len(pressures)]
        world.see(Look(pressure=pressure, pressures={"disk": pressure}))
        yield world
        world.fill()


@settings(max_examples=often(15))
@given(worlds, stories)
def test_a_waiting_task_is_picked_exactly_when_it_has_no_hold(
    declared_and_pressed: tuple[Declared, list[float]], story: list[Step]
) -> None:
    for world in told(*declared_and_pressed, story):
        other = world.afresh()
        picks = other.picker.pick(other.slots, other.slots - len(other.running), other.now)
        holds = {place.id: holds_on(world, lane, place) for lane, place in world.waiting()}
        if picks:
            assert holds[picks[0].id] == set()
        else:
            assert all(holds.values()), {id: reasons for id, reasons in holds.items() if not reasons}


@settings(max_examples=often(10))
@given(worlds, stories)
def test_the_metric_counts_only_what_explain_says(
    declared_and_pressed: tuple[Declared, list[float]], story: list[Step]
) -> None:
    counted: list[Reason] = []
    counter: HoldCounter | None = None
    for world in told(*declared_and_pressed, story):
        if counter is None:
            counter = HoldCounter(counted.append, world.picker, world.front)
        world.fill()
        counted.clear()
        counter.count(world.slots - len(world.running), world.now)
        said: set[Reason] = set().union(*(holds_on(world, lane, place) for lane, place in world.waiting()))
        assert set(counted) <= said
