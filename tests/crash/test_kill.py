"""One file, killed again and again: every guarantee holds."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash.audit import CRASHED, Auditor
from tests.crash.children import LONGEST as LONGEST_CHILD
from tests.crash.children import Child, was_killed
from tests.crash.evidence import SEED, kept_when_it_fails, rounds_or
from tests.crash.points import POINTS, missing_places

ROUNDS = rounds_or(14)
POISON_EVERY = 12
LONGEST_ROUND = 8.0
"""Seconds after which a child that has not reached its named point is killed anyway."""
MOST_DRAINS = 200


class Rounds:
    """One file through all rounds."""

    def __init__(self, folder: Path, journal: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.file = folder / "tasks.db"
        self.auditor = Auditor(self.file, journal, folder)
        self.kills: Counter[str] = Counter()
        self._folder = folder
        self._journal = journal
        self._number = 0
        # A few rounds do not reach every point; then the first one is random.
        self._first_point = self.random.randrange(len(POINTS))

    def run(self, number: int) -> None:
        """Run one round. Half of the rounds end at a random moment, the others at a named point, in order.

        Sometimes a round submits poison, which also kills the next two processes.
        """
        if number % POISON_EVERY == POISON_EVERY - 1:
            self._poison()
        elif number % 2:
            self._kill_by_chance()
        else:
            point = POINTS[(self._first_point + number // 2) % len(POINTS)]
            self._kill_at(point.name, self.random.randint(1, point.most))

    def _kill_by_chance(self) -> None:
        with self._child("work", actions=60) as child:
            if self.random.random() < 0.8:
                child.hear("open")
                moment = self.random.uniform(0, 0.6)
            else:
                # Perhaps the kill comes before the process has opened the file.
                moment = self.random.uniform(0, 0.5)
            if not child.ends_within(moment):
                child.kill()
            self._bury(child, "by chance")

    def _kill_at(self, point: str, nth: int) -> None:
        with self._child("work", point=point, nth=nth) as child:
            reached = child.ends_within(LONGEST_ROUND)
            if not reached:
                child.kill()
            self._bury(child, point if reached else "too late for its point")

    def _poison(self) -> None:
        with self._child("work", poison=True) as child:
            assert child.ends_within(LONGEST_CHILD), "the poison did not work"
            self._bury(child, "poison")

    def drain(self) -> None:
        """Run to the end; poison tasks may also kill this process, three times each."""
        for _ in range(MOST_DRAINS):
            with self._child("drain") as child:
                assert child.ends_within(2 * LONGEST_CHILD), "everything should have come to its end"
                if not self._bury(child, "poison"):
                    return
        raise AssertionError("it never comes to an end")

    def _child(self, role: str, **order: Any) -> Child:
        self._number += 1
        return Child(
            who=f"{role}{self._number}",
            folder=self._folder,
            role=role,
            file=str(self.file),
            journal=str(self._journal),
            seed=self.random.randrange(10**9),
            **order,
        )

    def _bury(self, child: Child, cause: str) -> bool:
        """Check what a dead child left; return True if it was killed."""
        code = child.wait()
        killed = was_killed(code)
        assert killed or code == 0, f"{child.who} ended with {code}:\n{child.complaint()}"
        assert "database is locked" not in child.complaint()
        self.auditor.deaths[child.who] = child.killed_at or 0.0
        self.auditor.check(clean=not killed)
        if killed and child.who in self.auditor.poisoned:
            cause = "poison"
        self.kills[cause if killed else "none, it had finished"] += 1
        assert not self.auditor.wrong, "\n".join(self.auditor.wrong[:20])
        return killed

    def summary(self) -> str:
        facts, contents = self.auditor.facts, self.auditor.contents
        endings = Counter(row["ending"] for row in contents.ended.values())
        quarantined = sum(row["error"] == CRASHED for row in contents.ended.values())
        return "\n".join(
            [
                f"{self.kills.total()} processes on one file, {contents.sequence} tasks,"
                f" {facts['start']} attempts, {facts['ack']} submissions acknowledged, {facts['refused']} refused",
                f"{facts['saved']} states saved, {facts['cancelled']} cancellations, {facts['hook']} on_cancel"
                f" hooks, {facts['revived']} dead letters revived, {quarantined} tasks quarantined",
                "endings: " + ", ".join(f"{ending} {n}" for ending, n in endings.most_common()),
                "killed:",
                *(f"  {n:4} {cause}" for cause, n in self.kills.most_common()),
            ]
        )


def test_the_engine_has_every_named_point() -> None:
    assert missing_places() == []


@pytest.mark.timeout(120 + 5 * ROUNDS)
def test_no_promise_is_broken_by_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal:
        rounds = Rounds(tmp_path, journal, SEED)
        for number in range(ROUNDS):
            rounds.run(number)
        rounds.drain()
        rounds.auditor.check_finished()
        assert not rounds.auditor.wrong, "\n".join(rounds.auditor.wrong[:20])
    with capsys.disabled():
        print(f"\n{ROUNDS} rounds, seed {SEED}\n{rounds.summary()}")
