"""The table of transitions is true: every change of a task is in the table, and everything in the table happens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from taskmill.execute import in_threads
from taskmill.model.lifecycle import TRANSITIONS, Standing, transitions
from taskmill.model.status import Ending, Status
from tests.architecture.sources import ROOT
from tests.both_engines import Engine
from tests.repetition import often
from tests.runtime.lifecycle.journal import Change
from tests.runtime.lifecycle.walk import Node, Walk

STEPS = 60
SLOTS = 2
FEWEST_WALKS = often(5)
MOST_WALKS = 60
"""Walks after which every transition without a scene must have been seen; ten to fifteen are usually enough."""
RICH_WALKS = (25, 20, 17)
"""Seeds of walks that show many transitions. They come first, so that a few walks show all of them."""

Edge = tuple[str, Standing, Standing]

ELSEWHERE: dict[str, str] = {
    "is preempted by another node": (
        "tests/postgres/test_nodes.py::test_nodes_that_ask_at_once_preempt_one_task_for_one_that_must_not_wait"
    ),
    "is claimed and not started": (
        "tests/postgres/test_suspended.py::test_a_claim_that_is_given_back_late_takes_the_task_from_no_node"
    ),
}
"""Transitions that need two nodes, and the tests that cover them."""


def edges(changes: Iterable[Change], *, certain: bool = False) -> set[Edge]:
    """Return the edges of the table that explain these changes; with ``certain`` only those without an alternative."""
    found: set[Edge] = set()
    for change in changes:
        explanations = transitions(change.before, change.after, used_retry=change.used_retry)
        assert explanations, f"{change}: the table has no such transition"
        if not certain or len(explanations) == 1:
            found |= {(transition.event, change.before.standing, change.after.standing) for transition in explanations}
    return found


async def test_whatever_happens_to_a_task_is_a_move_in_the_table_and_every_move_happens(
    tmp_path: Path, engine: Engine
) -> None:
    scenes = set[Edge]().union(*SCENES.values())
    events = {transition.event for transition in TRANSITIONS} - ELSEWHERE.keys() - {event for event, _, _ in scenes}
    drawn = {
        (transition.event, *edge) for transition in TRANSITIONS for edge in transition.edges() if edge[0] != edge[1]
    } - scenes
    walks = [*RICH_WALKS, *(seed for seed in range(max(MOST_WALKS, FEWEST_WALKS)) if seed not in RICH_WALKS)]
    for count, seed in enumerate(walks, start=1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        changes = await Walk(seed, folder).play(STEPS)
        drawn -= edges(changes)
        events -= {event for event, _, _ in edges(changes, certain=True)}
        if count >= engine.fewer(FEWEST_WALKS) and (engine.is_postgres or not (drawn or events)):
            # A walk is slow on a server, so a few must suffice there; the files show that every transition happens.
            return
    pytest.fail(f"not seen in {len(walks)} walks: {sorted(map(str, drawn | events))}")


@pytest.mark.one_engine("it only reads the names of tests")
def test_a_move_that_is_made_elsewhere_has_a_test_there() -> None:
    for name in ELSEWHERE.values():
        file, _, test = name.partition("::")
        assert f"async def {test}(" in (ROOT / file).read_text(encoding="utf-8")


# Scenes for transitions that walks seldom find


async def fill_slots(walk: Walk) -> None:
    """Preempt everything that runs, for six seconds."""
    for _ in range(SLOTS):
        await walk.add(Node("plain", ["hang"]), priority=0)


async def paused_series(walk: Walk) -> None:
    """Interrupt, preempt and fail an attempt, each while its series is paused."""
    id = await walk.add(Node("plain", ["hang", "hang", "fail late", "ok"]), every=60)
    await walk.scheduler.pause_recurring(id)
    await walk.restart()
    await walk.scheduler.resume_recurring(id)
    await walk.clock.advance(0)
    await walk.scheduler.pause_recurring(id)
    await fill_slots(walk)
    await walk.clock.advance(8)
    await walk.scheduler.resume_recurring(id)
    await walk.clock.advance(0.5)
    await walk.scheduler.pause_recurring(id)
    await walk.clock.advance(2)


async def killed_while_stopping(walk: Walk) -> None:
    id = await walk.add(Node("parent", ["stubborn"], [Node("plain", ["stubborn"])]))
    await walk.clock.advance(1)
    await walk.scheduler.cancel(id)
    await walk.kill()


async def stopped_while_preempted(walk: Walk) -> None:
    id = await walk.add(Node("parent", ["hang"], [Node("hooked", ["hang"])]))
    await walk.clock.advance(1)
    await fill_slots(walk)
    await walk.clock.advance(1)
    await walk.scheduler.cancel(id)
    await walk.clock.advance(10)


async def stopped_before_finalize(walk: Walk) -> None:
    """Cancel a parent that waits for a place among its siblings before it finalizes."""
    grandchild = Node("plain", ["fail late", "ok"])
    await walk.add(Node("patient", ["ok"], [Node("parent", ["ok"], [grandchild]), Node("plain", ["hang"])]))
    await walk.clock.advance(3)
    (held,) = await walk.scheduler.tasks(status="blocked")
    await walk.scheduler.cancel(held.id)


async def stopped_before_finalize_with_a_revived_child(walk: Walk) -> None:
    child = Node("plain", ["fail", "fail", "fail", "stubborn"])
    await walk.add(Node("patient", ["ok"], [Node("patient", ["ok"], [child]), Node("plain", ["hang"])]))
    await walk.clock.advance(1)
    (held,) = await walk.scheduler.tasks(status="blocked")
    (dead,) = await walk.scheduler.history(status="dead_letter")
    await walk.scheduler.retry_dead(dead.id)
    await walk.clock.advance(1)
    await walk.scheduler.cancel(held.id)
    await walk.clock.advance(5)


async def expired_while_preempted(walk: Walk) -> None:
    await walk.add(Node("parent", ["later"], [Node("plain", ["hang"])]), ttl=2)
    await walk.clock.advance(1)
    await fill_slots(walk)
    await walk.clock.advance(4)


async def no_thread_is_left(walk: Walk) -> None:
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_threads, "_Worker", refuse)
        patch.setattr(in_threads, "HOLD", 0)
        await walk.add(Node("threaded", []))


async def dependency_failed_while_paused(walk: Walk) -> None:
    on = await walk.add(Node("plain", ["hang"]))
    await walk.add(Node("plain", ["ok"]), every=60, run_after=60, key="a")
    id = await walk.add(Node("plain", ["ok"]), key="a", on_duplicate="supersede", depends_on=[on])
    await walk.scheduler.pause_recurring(id)
    await walk.scheduler.cancel(on)
    await walk.clock.advance(1)


SCENES: dict[Any, set[Edge]] = {
    paused_series: {
        ("is interrupted and paused with its series", Status.RUNNING, Status.PAUSED),
        ("stays paused with its series", Status.PAUSED, Status.PAUSED),
        ("is retried with its series", Status.RUNNING, Status.PAUSED),
    },
    killed_while_stopping: {("is interrupted and waits for its children", Status.RUNNING, Status.WAITING)},
    stopped_while_preempted: {("is asked to stop after its children", Status.PAUSED, Status.WAITING)},
    stopped_before_finalize: {("is asked to stop and has a hook", Status.BLOCKED, Status.PENDING)},
    stopped_before_finalize_with_a_revived_child: {
        ("is asked to stop after its children", Status.BLOCKED, Status.WAITING)
    },
    expired_while_preempted: {("passes its deadline, or expires with its parent", Status.PAUSED, Ending.EXPIRED)},
    no_thread_is_left: {("cannot be started now", Status.RUNNING, Status.SCHEDULED)},
    dependency_failed_while_paused: {("depends on a task that failed", Status.PAUSED, Ending.DEPENDENCY_FAILED)},
}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_a_rare_move_happens(scene: Any, tmp_path: Path) -> None:
    walk = Walk(0, tmp_path)
    walk.slots = SLOTS
    await walk.open()
    try:
        await scene(walk)
    finally:
        await walk.close()
    assert SCENES[scene] <= edges(walk.changes, certain=True), "\n".join(map(str, walk.changes))
