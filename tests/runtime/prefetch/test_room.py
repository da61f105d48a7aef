"""How many tasks are prefetched: as many as keep the slots busy for the horizon."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmill.dispatch.prefetch import HORIZON, LEAST_COST, LONGEST, Room

pytestmark = pytest.mark.one_engine("the room is computed without a store")


def takes(room: Room, type: str) -> int:
    count = 0
    while room.take(type):
        count += 1
    return count


@given(
    slots=st.integers(1, 200),
    seconds=st.one_of(st.just(0.0), st.floats(LEAST_COST, LONGEST * HORIZON), st.just(LONGEST * HORIZON)),
)
def test_every_slot_has_tasks_for_the_whole_horizon(slots: int, seconds: float) -> None:
    def room() -> Room:
        return Room({"d::short": seconds}, slots, HORIZON, 128)

    most = round(HORIZON / LEAST_COST)
    wanted = slots * math.ceil(HORIZON / max(seconds, LEAST_COST))
    assert takes(room(), "d::short") == room().most("d::short") == min(wanted, most)


@given(slots=st.integers(1, 200), seconds=st.floats(LONGEST * HORIZON, 10, exclude_min=True))
def test_there_is_no_room_for_tasks_that_take_longer(slots: int, seconds: float) -> None:
    room = Room({"d::long": seconds}, slots, HORIZON, 128)
    assert takes(room, "d::long") == room.most("d::long") == 0
    assert takes(room, "d::unknown") == 0


def test_tasks_of_several_types_share_the_room() -> None:
    room = Room({"d::short": HORIZON / 4, "d::long": 1.25 * HORIZON}, 4, HORIZON, 128)
    assert [room.take("d::long") for _ in range(2)] == [True, True]
    assert takes(room, "d::short") == 8
