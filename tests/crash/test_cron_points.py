"""Cron tasks on one file, killed at each point of declaring, firing and ending: no occurrence is lost or doubled."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from taskmill.model.cron import CronState
from tests.crash.children import Child, was_killed
from tests.crash.contents import Contents
from tests.crash.evidence import SEED, kept_when_it_fails
from tests.crash.journal import JournalReader
from tests.crash.points import CRON_POINTS, CRON_RECOVERY_POINTS, Point

LONGEST_LIFE = 20.0
"""Seconds within which a child must reach its point, or its end."""
MINUTE_MS = 60_000


class CronChild(Child):
    program = "tests.crash.cron_life"


class CronContents(Contents):
    """All rows of the file, with the states of cron tasks and the cron task of each firing."""

    def _read(self, connection: sqlite3.Connection) -> None:
        super()._read(connection)
        rows = [dict(row) for row in connection.execute("SELECT * FROM taskmill_cron")] if self.sequence else []
        self.rows = {row["name"]: row for row in rows}
        self.states = {row["name"]: msgspec.json.decode(row["state"], type=CronState) for row in rows}
        tags = [*self.active_tags, *self.ended_tags]
        self.firings = {id: value for id, name, value in tags if name == "cron"}


class Audit:
    """Checks one file from process to process."""

    def __init__(self, file: Path, journal: Path, scratch: Path) -> None:
        self._file = file
        self._journal = JournalReader(journal)
        self._scratch = scratch
        self._announced: dict[int, tuple[str, int]] = {}
        self._succeeded: set[int] = set()
        self._forgotten: set[int] = set()
        """The firings of cron tasks that were removed after them, with their state."""
        self.facts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def check(self) -> CronContents:
        """Check the file after all processes that used it have ended."""
        contents = CronContents(self._file, self._scratch)
        self._hold(contents.integrity == "ok", contents.integrity)
        self._hear(self._journal.news())
        self._rows_agree(contents)
        self._occurrences_are_single(contents)
        self._succeeded = {id for id, row in contents.ended.items() if row["ending"] == "completed"}
        return contents

    def check_finished(self) -> None:
        contents = self.check()
        self._hold(not contents.active, f"{contents.active} have not ended")
        for id, what in self._announced.items():
            self._hold(id in contents.ended, f"{what} was announced as task {id} and has not ended")
        outcomes = {state.last_outcome for state in contents.states.values()}
        self._hold(outcomes == {"succeeded"}, f"the last outcomes are {outcomes}")

    def _hear(self, lines: list[dict[str, Any]]) -> None:
        """Read the journal of one process that has ended."""
        at_work: dict[str, int] = {}
        ended: set[int] = set()
        for line in lines:
            fact, name, id = line["fact"], line["name"], line["id"]
            self.facts[fact] += 1
            if fact == "fired":
                self._hold(id not in self._announced, f"task {id} of {name} was announced twice")
                self._announced[id] = (name, line["occurrence"])
            elif fact == "begin":
                self._hold(name not in at_work, f"task {id} of {name} runs beside task {at_work.get(name)}")
                self._hold(id not in self._succeeded | ended, f"task {id} of {name} has succeeded and runs again")
                at_work[name] = id
            else:
                self._hold(at_work.pop(name, None) == id, f"task {id} of {name} ends and does not run")
                ended.update([id] if fact == "end" else [])

    def _rows_agree(self, contents: CronContents) -> None:
        for id in contents.active:
            self._hold(contents.firings.get(id) in contents.rows, f"task {id} is a firing of nothing")
        for name, state in contents.states.items():
            id = contents.rows[name]["task_id"]
            active = [task["id"] for task in contents.active.values() if task["cron"] == name]
            self._hold(active == ([] if id is None else [id]), f"{name} is at work as {id}, and its tasks are {active}")
            self._hold((state.firing is None) == (id is None), f"task {id} is the firing of {state}")
            if id in contents.active:
                task = contents.active[id]
                # A task that waits after an attempt failed or was interrupted.
                is_at_work = task["status"] == "running" or task["attempt"] == 0
                self._hold(state.is_running == is_at_work, f"{task} is not as {state} says")
                is_later = task["status"] == "scheduled"
                self._hold(not is_later or task["due_at"] == state.retry_at, f"{task} is not due when {state} is")
            if name != "guest":  # removed now and then, with its counters
                fired = sum(of == name for of in contents.firings.values())
                self._hold(contents.rows[name]["runs"] == fired, f"{name} has {fired} tasks: {contents.rows[name]}")

    def _occurrences_are_single(self, contents: CronContents) -> None:
        """At most one firing is stored for an occurrence: the latest whole minute before it was created.

        A task that was removed and declared again within one minute is new, and fires again in that minute.
        """
        made: dict[tuple[str, int], int] = {}
        self._forgotten.update(id for id, name in contents.firings.items() if name not in contents.rows)
        for id, name in contents.firings.items():
            row = contents.active.get(id) or contents.ended[id]
            of = (name, row["created_at"] // MINUTE_MS * MINUTE_MS)
            if id not in self._forgotten:
                self._hold(of not in made, f"tasks {made.get(of)} and {id} are both for {of}")
                made[of] = id
            self._hold(
                self._announced.get(id, of) == of, f"task {id} for {of} was announced as {self._announced.get(id)}"
            )
        for id, what in self._announced.items():
            self._hold(id in contents.firings, f"{what} was announced as task {id}, which is not there")

    def _hold(self, truth: bool, otherwise: str) -> None:
        if not truth:
            self.wrong.append(otherwise)


class Lives:
    """The processes that work on one file, one after the other."""

    def __init__(self, folder: Path, journal: Path) -> None:
        self.random = random.Random(SEED)
        self.audit = Audit(folder / "tasks.db", journal, folder)
        self._folder = folder
        self._journal = journal
        self._number = 0

    def end_at(self, point: Point) -> None:
        nth = self.random.randint(1, point.most)
        with self._child("work", point=point.name, nth=nth) as child:
            assert child.ends_within(LONGEST_LIFE), f"{child.who} never came to its point: {point.name}"
            code = child.wait()
            assert was_killed(code), f"{child.who} ended with {code}:\n{child.complaint()}"
        self.audit.check()
        self._hold_to_account(point.name)

    def calm_down(self) -> None:
        with self._child("calm") as child:
            assert child.ends_within(LONGEST_LIFE), "the next occurrences should have fired and ended"
            assert child.wait() == 0, child.complaint()
        self.audit.check_finished()
        self._hold_to_account("the last life")

    def _child(self, role: str, **order: Any) -> Child:
        self._number += 1
        return CronChild(
            who=f"{role}{self._number}",
            folder=self._folder,
            role=role,
            file=str(self._folder / "tasks.db"),
            journal=str(self._journal),
            seed=self._number,
            **order,
        )

    def _hold_to_account(self, after: str) -> None:
        wrong = self.audit.wrong
        assert not wrong, "\n".join([f"{len(wrong)} promises are broken after {after!r}", *wrong[:20]])


@pytest.mark.timeout(120)
def test_cron_tasks_outlive_kills_at_every_named_point(tmp_path: Path) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal:
        lives = Lives(tmp_path, journal)
        for point in lives.random.sample(CRON_POINTS, len(CRON_POINTS)):
            lives.end_at(point)
        # A task is running when this process ends; the next two processes recover it.
        lives.end_at(next(point for point in CRON_POINTS if point.name == "firing begun, unannounced"))
        for point in CRON_RECOVERY_POINTS:
            lives.end_at(point)
        lives.calm_down()
        assert all(lives.audit.facts[fact] for fact in ("fired", "begin", "end", "fail"))
