"""Families, chains and series on one file, killed again and again: each ends as it should."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.crash.children import LONGEST, Child, was_killed
from tests.crash.evidence import SEED, kept_when_it_fails, rounds_or
from tests.crash.family_trial import FamilyTrial
from tests.crash.points import FAMILY_POINTS

ROUNDS = rounds_or(12)
POISON_EVERY = 12
MOST_DRAINS = 200
MOST_TOURS = 10
LONGEST_ROUND = 8.0
"""Seconds after which a child that has not reached its named point is killed anyway."""


class FamilyChild(Child):
    program = "tests.crash.family_victim"


class Generations:
    """One file, and the processes that use it one after the other."""

    def __init__(self, folder: Path, journal: Path) -> None:
        self.random = random.Random(SEED)
        self.trial = FamilyTrial(folder / "tasks.db", journal, folder)
        self.kills: Counter[str] = Counter()
        self._folder = folder
        self._journal = journal
        self._number = 0
        # A few rounds do not reach every point; then the choice is random.
        self._points = self.random.sample(FAMILY_POINTS, len(FAMILY_POINTS))

    def run(self, number: int) -> None:
        """Run one round. Of three rounds, one ends at a random moment and two at named points, in order.

        Sometimes a round submits poison, which also kills the next two processes.
        """
        if number % POISON_EVERY == POISON_EVERY - 1:
            self._poison()
        elif number % 3 == 0:
            self._kill_by_chance()
        else:
            point = self._points[(number - number // 3 - 1) % len(self._points)]
            self._kill_at(point.name, self.random.randint(1, point.most))

    def _kill_by_chance(self) -> None:
        """Kill at a random moment; sometimes let it leave instead, or let another process submit beside it."""
        moment, later = self.random.uniform(0, 0.7), self.random.uniform(0, 0.1)
        leaves, neighbour_leaves, has_neighbour = (self.random.random() < share for share in (0.2, 0.2, 0.3))
        with ExitStack() as stack:
            child = stack.enter_context(self._child("work", actions=30))
            neighbour = stack.enter_context(self._child("neighbour")) if has_neighbour else None
            if neighbour is not None:
                neighbour.hear("open")
            child.hear("open")
            if not child.ends_within(moment):
                self._send_away(child, leaves)
            if neighbour is not None:
                neighbour.ends_within(later)
                self._send_away(neighbour, neighbour_leaves)
                self._note_death(neighbour)
            self._bury(child, "by chance")

    def _send_away(self, child: Child, leaves: bool) -> None:
        if not leaves:
            child.kill()
            return
        with suppress(BrokenPipeError):  # it may have ended by itself just now
            child.tell("leave")

    def _poison(self) -> None:
        with self._child("work", poison=True) as child:
            assert child.ends_within(LONGEST), "the poison did not work"
            self._bury(child, "poison")

    def _kill_at(self, point: str, nth: int) -> None:
        with self._child("work", actions=8, point=point, nth=nth) as child:
            reached = child.ends_within(LONGEST_ROUND)
            if not reached:
                child.kill()
            self._bury(child, point if reached else "too late for its point")

    def drain(self) -> None:
        """Run to the end; poison may also kill this process, three times for each poison task."""
        for _ in range(MOST_DRAINS):
            with self._child("drain") as child:
                assert child.ends_within(2 * LONGEST), "everything should have come to its end"
                if not self._bury(child, "poison"):
                    return
        raise AssertionError("it never comes to an end")

    def tour(self, actions: int) -> dict[str, int]:
        """Work without a kill; return how often the child reached each point."""
        with self._child("tour", actions=actions) as child:
            assert child.ends_within(2 * LONGEST), "everything should have come to its end"
            assert not self._bury(child, "never")
        *_, line = self.trial.witnesses.of("reached")
        reached: dict[str, int] = line["points"]
        return reached

    def _child(self, role: str, **order: Any) -> Child:
        self._number += 1
        return FamilyChild(
            who=f"{role}{self._number}",
            folder=self._folder,
            role=role,
            file=str(self._folder / "tasks.db"),
            journal=str(self._journal),
            seed=self.random.randrange(10**9),
            **order,
        )

    def _bury(self, child: Child, cause: str) -> bool:
        """Check what a dead child left; return True if it was killed."""
        killed = self._note_death(child)
        self.trial.check()
        if any(line["who"] == child.who for line in self.trial.witnesses.of("poisoned")):
            cause = "poison"
        self.kills[cause if killed else "none, it had finished or left"] += 1
        self._hold_to_account(self.trial.wrong)
        return killed

    def _note_death(self, child: Child) -> bool:
        code = child.wait()
        assert was_killed(code) or code == 0, f"{child.who} ended with {code}:\n{child.complaint()}"
        assert "database is locked" not in child.complaint()
        if was_killed(code):
            self.trial.witnesses.deaths[child.who] = child.killed_at or 0.0
        return was_killed(code)

    def judge(self) -> None:
        self._hold_to_account(self.trial.hold())

    def _hold_to_account(self, wrong: list[str]) -> None:
        assert not wrong, "\n".join([f"{len(wrong)} promises are broken", *wrong[:20]])

    def summary(self) -> str:
        trial, facts = self.trial, self.trial.witnesses.facts
        rows = trial.contents.ended.values()
        parts = Counter(interval.what for interval in trial.intervals)
        killed = Counter(interval.what for interval in trial.intervals if interval.how == "killed")
        endings = Counter(row["ending"] for row in rows)
        return "\n".join(
            [
                f"{self.kills.total()} processes on one file, {len(rows)} tasks, {len(trial.contents.edges)}"
                f" dependencies, {len({row['series_id'] for row in rows} - {None})} series,"
                f" {len({row['parent_id'] for row in rows} - {None})} parents, {facts['cancelled']} cancellations",
                ", ".join(f"{n} of {what} ({killed[what]} killed)" for what, n in parts.most_common()),
                "endings: " + ", ".join(f"{ending} {n}" for ending, n in endings.most_common()),
                "killed:",
                *(f"  {n:4} {cause}" for cause, n in self.kills.most_common()),
            ]
        )


def test_families_come_to_every_named_point(tmp_path: Path) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal:
        generations = Generations(tmp_path, journal)
        reached: Counter[str] = Counter()
        while len(reached) < len(FAMILY_POINTS) and generations.kills.total() < MOST_TOURS:
            reached.update(generations.tour(actions=3))
        assert [point.name for point in FAMILY_POINTS if point.name not in reached] == []
        generations.judge()


@pytest.mark.timeout(120 + 5 * ROUNDS)
def test_families_chains_and_series_outlive_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal:
        generations = Generations(tmp_path, journal)
        for number in range(ROUNDS):
            generations.run(number)
        generations.drain()
        generations.judge()
    with capsys.disabled():
        print(f"\n{ROUNDS} rounds, seed {SEED}\n{generations.summary()}")
