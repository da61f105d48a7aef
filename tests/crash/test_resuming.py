"""A kill while paused time is given back: this continues after a restart, and no task gets its time twice."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from taskmill import Scheduler
from tests.acceptance.command_line import ENVIRONMENT
from tests.crash.evidence import rounds_or
from tests.crash.resuming_victim import TASKS
from tests.warm_python import Popen

ROOT = Path(__file__).parents[2]
KILLS = max(3, rounds_or(0) // 50)
LONGEST = 120


def victim(file: Path, deed: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.resuming_victim", str(file), deed]
    return Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)


def rows(file: Path) -> dict[int, tuple[int, int]]:
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT id, queued_at, expires_at FROM taskmill_task").fetchall()
        return {id: (queued_at, expires_at) for id, queued_at, expires_at in found}


def reached(file: Path) -> int | None:
    """Return the id down to which the time was given back; None if nothing is owed."""
    with closing(sqlite3.connect(file)) as connection:
        row = connection.execute("SELECT reached FROM taskmill_ended_pause").fetchone()
        return None if row is None else int(row[0])


async def test_a_kill_while_paused_time_is_given_back_loses_none_of_it_and_doubles_none(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    with victim(file, "pause") as child:
        assert child.wait(LONGEST) == 0
    before = rows(file)
    assert len(before) == TASKS
    marks: list[int] = []
    for _ in range(KILLS):
        with victim(file, "resume") as child:
            try:
                assert child.stdout is not None
                assert child.stdout.readline() == "resumed\n"
                start, until = reached(file), time.monotonic() + LONGEST
                while (now := reached(file)) == start and now is not None:
                    assert time.monotonic() < until
                    await asyncio.sleep(0.005)
            finally:
                child.kill()
        marks.append(reached(file) or 0)
    assert marks[0] > 0, "it was killed in the middle"
    assert marks == sorted(marks, reverse=True)
    async with Scheduler(file) as scheduler, scheduler.running():
        until = time.monotonic() + LONGEST
        while reached(file) is not None:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)
    shifts = {(now[0] - before[id][0], now[1] - before[id][1]) for id, now in rows(file).items()}
    # All tasks were submitted before the pause: each gets exactly its duration.
    assert {queued for queued, _ in shifts} == {expires for _, expires in shifts}
    assert len(shifts) == 1
