"""The front never misses a waiting task, whatever is added, read and taken."""

from __future__ import annotations

import random
from bisect import bisect_left, insort

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmill.dispatch.front import Front, LaneFront
from taskmill.dispatch.prefetch import Room
from taskmill.model.task import Lane, Place
from taskmill.policy import aging
from tests.repetition import often
from tests.runtime.picking.world import World

pytestmark = pytest.mark.one_engine("no store is opened")

FRONT = 200
LANES = [Lane("", 1, "d::t"), Lane("", 2, "d::t"), Lane("g", 1, "d::t")]


class Disk:
    """The stored state: all waiting rows by lane."""

    def __init__(self) -> None:
        self.rows: dict[Lane, list[Place]] = {lane: [] for lane in LANES}
        self.ids = 0

    def add(self, lane: Lane, queued_at: int) -> Place:
        self.ids += 1
        place = Place(queued_at, self.ids, self.ids)
        insort(self.rows[lane], place)
        return place

    def front(self, lane: Lane) -> list[Place]:
        return self.rows[lane][:FRONT]

    def holds(self, lane: Lane, place: Place) -> bool:
        at = bisect_left(self.rows[lane], place)
        return self.rows[lane][at : at + 1] == [place]


def rank(lane: Lane, place: Place) -> tuple[int, int, int]:
    """Return the rank of a place among the places of all lanes; a smaller rank starts sooner."""
    return lane.urgency, place.queued_at, place.place_id


@settings(max_examples=often(20), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 30))
def test_every_waiting_task_is_found_in_order(random_: random.Random, rounds: int) -> None:
    disk, front = Disk(), Front()
    now = 0
    for _ in range(rounds):
        action = random_.choice(["add", "many", "old", "due", "take", "take", "foreign", "stale"])
        lane = random_.choice(LANES)
        now += random_.randint(0, 3)
        if action == "add":
            front.add(lane, disk.add(lane, now))
        elif action == "many":
            for _ in range(random_.randint(1, 1500)):
                front.add(lane, disk.add(lane, now))
        elif action == "old":
            front.add(lane, disk.add(lane, random_.randint(0, now)))
        elif action == "due":
            promote(disk, front, [(random_.choice(LANES), random_.randint(0, now)) for _ in range(5)])
        elif action == "foreign":
            disk.add(lane, now)
            front.survey([known for known in LANES if disk.rows[known]])
            front.doubt([known for known in LANES if disk.rows[known]])
        elif action == "stale" and disk.rows[lane]:
            del disk.rows[lane][random_.randrange(len(disk.rows[lane]))]
        else:
            take(disk, front, random_.randint(1, 300))
        nothing_is_unseen(disk, front)
    while any(disk.rows.values()):
        take(disk, front, 500)


def promote(disk: Disk, front: Front, due: list[tuple[Lane, int]]) -> None:
    """Let tasks come due in a turn that also reads lanes; the lanes it reads include them already."""
    places = [(lane, disk.add(lane, queued_at)) for lane, queued_at in due]
    front.read({lane: disk.front(lane) for lane in front.unread()}, FRONT)
    for lane, place in places:
        front.add(lane, place)


def nothing_is_unseen(disk: Disk, front: Front) -> None:
    """Check that each lane is known completely, or up to its last known place, or is about to be read."""
    for lane, rows in disk.rows.items():
        known = front.of(lane.group).get(lane)
        if known is None:
            assert not rows, "tasks wait in a lane that is not known"
            continue
        seen = set(known.places)
        assert len(seen) == len(known.places), "a task is twice in its lane"
        assert known.places == sorted(known.places)
        if known.complete:
            assert seen.issuperset(rows)
        elif known.places:
            assert seen.issuperset(row for row in rows if not known.places[-1] < row)
        else:
            assert lane in front.unread()


def take(disk: Disk, front: Front, count: int) -> None:
    """Claim up to ``count`` tasks as the dispatcher does; each must be the most urgent one."""
    for _ in range(count):
        front.read({lane: disk.front(lane) for lane in front.unread()}, FRONT)
        heads = [
            (lane, known.places[0]) for lanes in front.groups.values() for lane, known in lanes.items() if known.places
        ]
        if not heads:
            assert not any(disk.rows.values()), "tasks wait on disk that the front does not know"
            return
        lane, place = min(heads, key=lambda head: rank(*head))
        front.take(lane, place)
        if not disk.holds(lane, place):
            continue  # stale; the claim finds nothing
        best = min(rank(other, disk.rows[other][0]) for other in LANES if disk.rows[other])
        assert rank(lane, place) == best
        disk.rows[lane].remove(place)


def test_memory_stays_bounded() -> None:
    known = LaneFront()
    known.complete = True
    for n in range(100_000):
        known.add(Place(n, n, n), 2048)
    assert len(known.places) <= 2048
    assert not known.complete


def test_memory_stays_bounded_with_many_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aging, "MOST_IN_SIGHT", 4096)
    front = Front()
    for n in range(25_000):
        front.add(Lane(f"g{n % 190}", 1, "d::t"), Place(n, n, n))
    in_sight = sum(len(known.places) for lanes in front.groups.values() for known in lanes.values())
    assert front.lane_count == 190
    assert in_sight <= 4 * aging.MOST_IN_SIGHT


def test_a_group_of_which_nothing_is_picked_takes_no_slots() -> None:
    world = World()
    world.submit("a")
    no_room = Room({}, world.slots, seconds=0.0, least_urgent=0)
    assert world.picker.pick(world.slots, 0, world.now, room=no_room) == []
    assert world.load.groups == {}
