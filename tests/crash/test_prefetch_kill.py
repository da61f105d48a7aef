"""A process that drains short tasks, killed again and again: none is lost, and prefetched ones count no crash."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from taskmill import Scheduler
from taskmill.store.sqlite.dispatch_lock import beginnings_in
from tests.crash.children import ROOT
from tests.crash.draining_victim import domain, short
from tests.crash.evidence import SEED, rounds_or
from tests.warm_python import Popen
from tests.warm_python import run as warm_run

ROUNDS = rounds_or(8)
MOST_ROUNDS = 5 * ROUNDS
"""A busy disk makes it rare that a process dies between a claim and the beginning of the last task."""
BATCH = 400
MOST_CRASHES = 3


def _begun(journal: Path) -> tuple[Counter[int], Counter[tuple[int, int]]]:
    """Return how often each task has begun, and how often each attempt."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    tokens = [(int(id), int(attempt)) for id, attempt in (line.split() for line in lines)]
    return Counter(id for id, _ in tokens), Counter(tokens)


def _check(file: Path, journal: Path, total: int, blamed: set[tuple[int, int]]) -> int:
    """Check the file as a killed process has left it; return how many tasks were prefetched and had not begun.

    ``blamed`` has the tokens that earlier processes left running; those of this one are added.
    """
    starts, tokens = _begun(journal)
    known = {(id, attempt) for id, attempt, _ in beginnings_in(Path(f"{file}-dispatch").read_bytes())}
    assert max(tokens.values(), default=0) <= 1, "an attempt has begun twice"
    with closing(sqlite3.connect(file)) as rows:
        active = rows.execute("SELECT id, status, started_at, attempt, crashes FROM taskmill_task").fetchall()
        ended = rows.execute("SELECT id, ending, attempt FROM taskmill_history").fetchall()
    assert len(active) + len(ended) == total
    crashed = Counter(id for id, _ in blamed)
    prefetched = 0
    for id, status, started_at, attempt, crashes in active:
        is_left = (id, attempt) in blamed
        assert crashes == crashed[id] - (is_left and status == "running"), f"task {id} counts {crashes} crashes"
        assert starts[id] <= attempt
        if status == "running" and (started_at is not None or (id, attempt) in known):
            blamed.add((id, attempt))
        elif status == "running":
            assert not tokens[id, attempt], f"attempt {attempt} of task {id} began without a record"
            prefetched += 1
    for id, ending, attempt in ended:
        assert starts[id] <= attempt
        assert starts[id] if ending == "completed" else crashed[id] == MOST_CRASHES
    return prefetched


@pytest.mark.timeout(120 + 5 * MOST_ROUNDS)
async def test_no_short_task_is_lost_or_blamed_when_its_process_is_killed(tmp_path: Path) -> None:
    file, journal, chance = tmp_path / "tasks.db", tmp_path / "journal", random.Random(SEED)
    total = prefetched = 0
    blamed: set[tuple[int, int]] = set()
    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and prefetched:
            break
        async with Scheduler(file, domains=[domain]) as scheduler:
            if await scheduler.count() < BATCH:
                await scheduler.submit_many([short.prepare() for _ in range(BATCH)])
                total += BATCH
        victim = Popen(
            [sys.executable, "-m", "tests.crash.draining_victim", str(file), str(journal)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"open\n"
        time.sleep(chance.uniform(0, 0.1))
        victim.kill()
        victim.wait()
        victim.stdout.close()
        prefetched += _check(file, journal, total, blamed)
    assert prefetched, "no process died with prefetched tasks"
    warm_run([sys.executable, "-m", "tests.crash.draining_victim", file, journal], cwd=ROOT, check=True)
    _check(file, journal, total, blamed)
    with closing(sqlite3.connect(file)) as rows:
        assert rows.execute("SELECT count(*) FROM taskmill_task").fetchone() == (0,)
