"""A task that was picked and did not start leaves no trace in the turns of groups."""

from __future__ import annotations

import pytest

from taskmill.policy.fair_queue import RoundRobin, VirtualTime


def test_a_turn_that_is_taken_back_was_never_had() -> None:
    turns = RoundRobin()
    before = {group: turns.last_turn(group) for group in "abc"}
    turns.take_back("a", turns.had_turn("a"), before["a"])
    assert {group: turns.last_turn(group) for group in "abc"} == before


def test_only_the_turns_in_which_nothing_started_are_taken_back() -> None:
    turns = RoundRobin()
    before, first, second = turns.last_turn("a"), turns.had_turn("a"), turns.had_turn("a")
    turns.take_back("a", first, before)
    assert turns.last_turn("a") == second
    turns.take_back("a", second, first)
    assert turns.last_turn("a") == first


@pytest.mark.parametrize("kind", ["begin", "charge"])
def test_a_charge_that_is_taken_back_was_never_made(kind: str) -> None:
    time = VirtualTime()
    time.begin("a", 2, 5)
    time.begin("b", 3, 5)
    before = {group: time.due(group) for group in "ab"}
    charge = time.begin("a", 2, 5) if kind == "begin" else time.charge("a", 2, 5, 700)
    assert time.due("a") > before["a"]
    time.take_back("a", charge)
    assert {group: time.due(group) for group in "ab"} == pytest.approx(before)
