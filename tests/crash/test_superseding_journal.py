"""Three processes supersede, requeue, cancel and expire each other's tasks on a few keys, and are killed meanwhile.

The journals of the handlers show that no two tasks of a key ever ran at once, and that every hook
ended before the replacement began; the file shows that each superseded task is in history once, as superseded.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.children import LONGEST, Child, was_killed
from tests.crash.contents import Contents
from tests.crash.evidence import SEED, kept_when_it_fails, rounds_or
from tests.crash.intervals import Trial, Witnesses
from tests.crash.journal import JournalReader
from tests.crash.points import POINTS

OPERATIONS = max(1_200, 100 * rounds_or(0))
"""The least number of operations of the rivals; the long run makes many more."""
RIVALS = 3


class Rival(Child):
    program = "tests.crash.rivals"


class Fight:
    """Three rivals on one file; each dead one is replaced."""

    def __init__(self, folder: Path, journals: Path, stack: ExitStack) -> None:
        self.random = random.Random(SEED)
        self.file = folder / "tasks.db"
        self.witnesses = Witnesses()
        self.ways: Counter[str] = Counter()
        """Number of processes by how they ended."""
        self._folder = folder
        self._journals = journals
        self._stack = stack
        self._readers: dict[str, JournalReader] = {}
        self._number = 0
        self._rivals: list[Child] = []
        self._dispatcher: str | None = None

    def go_on_for(self, operations: int) -> None:
        self._rivals = [self._start("rival") for _ in range(RIVALS)]
        while self.witnesses.operations < operations:
            self._lose(self._victim())
            for fallen in [rival for rival in self._rivals if rival.ends_within(0.001)]:
                # It reached its point and died meanwhile.
                self._bury(fallen)
                self._rivals.append(self._start("rival"))
            self._listen()

    def finish(self) -> Trial:
        """End the remaining rivals, each in a random way, and run everything to its end in a last process."""
        while self._rivals:
            self._end(self._victim())
        with self._start("drain") as drain:
            assert drain.ends_within(2 * LONGEST), "everything should have come to its end"
            self._bury(drain)
        self._listen()
        return Trial(self.witnesses, Contents(self.file, self._folder))

    def _start(self, role: str) -> Child:
        self._number += 1
        who = f"{role}{self._number}"
        self._readers[who] = JournalReader(self._journals / who)
        point, nth = None, 1
        if role == "rival" and self.random.random() < 0.4:
            chosen = self.random.choice(POINTS)
            point, nth = chosen.name, self.random.randint(1, 2 * chosen.most)
        child = Rival(
            who=who,
            folder=self._folder,
            role=role,
            file=str(self.file),
            journal=str(self._journals / who),
            seed=self.random.randrange(10**9),
            point=point,
            nth=nth,
        )
        return self._stack.enter_context(child)

    def _victim(self) -> Child:
        """Choose a rival to end; more often than not, the dispatcher."""
        dispatchers = [rival for rival in self._rivals if rival.who == self._dispatcher]
        if dispatchers and self.random.random() < 0.6:
            return dispatchers[0]
        return self.random.choice(self._rivals)

    def _lose(self, rival: Child) -> None:
        """Let a rival do some work, then end it and start another."""
        for _ in range(self.random.randint(1, 8)):
            if not rival.hear("more"):
                break
        rival.ends_within(self.random.uniform(0.001, 0.05))
        self._end(rival)
        self._rivals.append(self._start("rival"))

    def _end(self, rival: Child) -> None:
        if not rival.ends_within(0.001):
            if self.random.random() < 0.8:
                rival.kill()
            else:
                rival.tell("leave")
        self._bury(rival)

    def _bury(self, child: Child) -> None:
        code = child.wait()
        assert was_killed(code) or code == 0, f"{child.who} ended with {code}:\n{child.complaint()}"
        assert "database is locked" not in child.complaint()
        if was_killed(code):
            self.witnesses.deaths[child.who] = child.killed_at or 0.0
        self.ways["left" if code == 0 else "killed" if child.killed_at else "died at a named point"] += 1
        if child in self._rivals:
            self._rivals.remove(child)

    def _listen(self) -> None:
        alive = {rival.who for rival in self._rivals}
        for who, reader in list(self._readers.items()):
            news = reader.news()
            if who not in alive:
                del self._readers[who]
            self.witnesses.hear(news)
            if starts := [line["who"] for line in news if line["fact"] == "start"]:
                self._dispatcher = starts[-1]

    def summary(self, trial: Trial) -> str:
        facts = self.witnesses.facts
        endings = Counter(row["ending"] for row in trial.rows.values())
        return "\n".join(
            [
                f"{self.witnesses.operations} operations of {self._number} processes on {len(trial.intervals)} keys:"
                f" {facts['ask']} submissions, {facts['cancelling']} cancellations, {facts['reviving']} revivals",
                f"{facts['start']} attempts and {facts['hook']} hooks, never two of a key at once; {facts['refused']}"
                " refusals",
                "endings: " + ", ".join(f"{ending} {n}" for ending, n in endings.most_common()),
                "processes: " + ", ".join(f"{way} {n}" for way, n in self.ways.most_common()),
            ]
        )


@pytest.mark.timeout(120 + OPERATIONS // 20)
def test_no_two_of_a_key_are_at_work_at_once_and_nothing_acknowledged_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal, ExitStack() as stack:
        fight = Fight(tmp_path, journal.parent, stack)
        fight.go_on_for(OPERATIONS)
        trial = fight.finish()
        wrong = trial.hold()
        assert not wrong, "\n".join([f"{len(wrong)} promises are broken", *wrong[:20]])
    with capsys.disabled():
        print(f"\nseed {SEED}\n{fight.summary(trial)}")
