"""Several processes on one file: one dispatches, the others submit, and a standby takes over when it is killed."""

from __future__ import annotations

import random
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.crash.audit import Auditor
from tests.crash.children import Child, was_killed
from tests.crash.evidence import SEED, kept_when_it_fails, rounds_or
from tests.crash.journal import boot_time
from tests.crash.points import MIGRATION

TAKEOVERS = max(4, rounds_or(0) // 15)
STANDBY_TAKES = 10.0
"""Seconds within which a standby must dispatch; it checks once a second, and this machine may be busy."""
OPENINGS = 20


class Neighbourhood:
    """Starts and kills processes on one file."""

    def __init__(self, folder: Path, journal: Path, stack: ExitStack) -> None:
        self.file = folder / "tasks.db"
        self.random = random.Random(SEED)
        self.auditor = Auditor(self.file, journal, folder)
        self._folder = folder
        self._journal = journal
        self._stack = stack
        self._number = 0

    def start(self, role: str, **more: Any) -> Child:
        self._number += 1
        order = {"file": str(self.file), "journal": str(self._journal), "seed": self.random.randrange(10**9)}
        child = Child(who=f"{role}{self._number}", folder=self._folder, role=role, **order, **more)
        self._stack.enter_context(child)
        if "point" not in more:
            assert child.hear("open"), child.complaint()
        return child

    def kill(self, child: Child) -> None:
        child.kill()
        assert was_killed(child.wait()), child.complaint()
        assert child.killed_at is not None
        self.auditor.deaths[child.who] = child.killed_at

    def stop(self, child: Child, word: str = "stop") -> None:
        child.tell(word)
        code = child.wait()
        assert code == 0, f"{child.who} ended with {code}:\n{child.complaint()}"
        assert "locked" not in child.complaint()

    def check(self) -> None:
        self.auditor.check(clean=True, alone=False)
        assert not self.auditor.wrong, "\n".join(self.auditor.wrong[:20])


@pytest.mark.timeout(120 + 10 * TAKEOVERS)
def test_a_standby_takes_over_and_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slowest = 0.0
    with kept_when_it_fails(tmp_path, SEED) as journal, ExitStack() as stack:
        them = Neighbourhood(tmp_path, journal, stack)
        dispatcher = them.start("dispatch")
        clients = [them.start("client"), them.start("client")]
        assert dispatcher.hear("working"), dispatcher.complaint()
        for number in range(TAKEOVERS):
            standby = them.start("standby")
            assert not dispatcher.ends_within(them.random.uniform(0, 0.5)), dispatcher.complaint()
            if number % 2:
                # A client that dies in the middle of its own transaction blocks no other process.
                them.kill(clients.pop(0))
                clients.append(them.start("client"))
            them.kill(dispatcher)
            began = boot_time()
            assert standby.hear("working", STANDBY_TAKES), f"the standby did not take over\n{standby.complaint()}"
            slowest = max(slowest, boot_time() - began)
            dispatcher = standby
        for child in clients:
            them.stop(child)
        # No process opens the file after this: the last standby must have recovered the tasks of the dead.
        them.stop(dispatcher, "finish")
        them.check()
        them.auditor.check_finished()
        assert not them.auditor.wrong, "\n".join(them.auditor.wrong[:20])
    with capsys.disabled():
        print(
            f"\n{TAKEOVERS} takeovers, the slowest after {slowest:.1f} s; {them.auditor.contents.sequence} tasks,"
            f" {them.auditor.facts['cancelled']} cancellations from other processes, seed {SEED}"
        )


def test_a_second_dispatcher_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal, ExitStack() as stack:
        them = Neighbourhood(tmp_path, journal, stack)
        first = them.start("dispatch")
        client = them.start("client")
        assert first.hear("working"), first.complaint()
        second = them.start("dispatch")
        assert second.hear("already running"), second.complaint()
        them.stop(second)
        them.kill(first)
        third = them.start("dispatch")
        assert third.hear("working"), third.complaint()
        them.stop(client)
        # A task that the first had prefetched keeps the number of that attempt; it must have run before the audit.
        them.stop(third, "finish")
        them.check()


def test_opening_the_file_keeps_no_other_process_from_dispatching(tmp_path: Path) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal, ExitStack() as stack:
        them = Neighbourhood(tmp_path, journal, stack)
        openers = [them.start("open"), them.start("open"), them.start("run")]
        for _ in range(OPENINGS):
            for opener in openers:
                opener.tell(str(them.file))
            for opener in openers:
                assert opener.hear("done"), opener.complaint()
        for opener in openers:
            them.stop(opener)


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal, ExitStack() as stack:
        them = Neighbourhood(tmp_path, journal, stack)
        openers = [them.start("open") for _ in range(3)]
        for number in range(OPENINGS):
            file = tmp_path / f"new{number}.db"
            for opener in openers:
                opener.tell(str(file))
            for opener in openers:
                assert opener.hear("done"), opener.complaint()
            assert _schema(file) == _schema(tmp_path / "new0.db")
            assert _tasks(file) == {f"{opener.who}-{number}" for opener in openers}
        for opener in openers:
            them.stop(opener)


def test_a_migration_that_is_killed_leaves_a_file_that_opens(tmp_path: Path) -> None:
    with kept_when_it_fails(tmp_path, SEED) as journal, ExitStack() as stack:
        them = Neighbourhood(tmp_path, journal, stack)
        other = them.start("open")
        other.tell(str(tmp_path / "whole.db"))
        assert other.hear("done"), other.complaint()
        statements = len(_schema(tmp_path / "whole.db"))
        for nth in sorted(them.random.sample(range(1, statements - 2), 5)):
            file = tmp_path / f"broken{nth}.db"
            victim = them.start("open", point=MIGRATION.name, nth=nth)
            assert victim.hear("open"), victim.complaint()
            # Both open the file at once: the other may be first, wait for the lock, or find what the killed one left.
            for opener in (victim, other):
                opener.tell(str(file))
            assert other.hear("done"), other.complaint()
            survived = victim.hear("done")
            other.tell(str(file))
            assert other.hear("done"), other.complaint()
            assert _schema(file) == _schema(tmp_path / "whole.db")
            if survived:
                them.stop(victim)
            else:
                assert was_killed(victim.wait()), victim.complaint()
        them.stop(other)


def _schema(file: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def _tasks(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT payload ->> 'marker' FROM taskmill_task").fetchall()
    assert len(rows) == len(set(rows))
    return {marker for (marker,) in rows}
