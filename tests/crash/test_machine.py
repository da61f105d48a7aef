"""A killed dispatcher leaves the capacities that it learned, and no task is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taskmill import Domain, IoBudget, Reading, Resources, Scheduler
from tests.acceptance.command_line import ENVIRONMENT, answer, taskmill
from tests.crash.machine_victim import MB
from tests.warm_python import Popen

ROOT = Path(__file__).parents[2]


class Idle:
    def sample(self) -> Reading:
        return Reading()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.crash.machine_victim", str(tmp_path / "tasks.db")]
    with Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


async def test_after_a_kill_capacity_is_known_and_nothing_is_lost(
    victim: subprocess.Popen[str], tmp_path: Path
) -> None:
    victim.kill()
    victim.wait()
    domain = Domain("work")
    most, now = 0, 0
    ran: list[int] = []

    @domain.task(io=lambda mb: IoBudget(disk_write=mb * MB))
    async def write(mb: int) -> None:
        nonlocal most, now
        now += mb
        most = max(most, now)
        ran.append(mb)
        now -= mb

    async with Scheduler(tmp_path / "tasks.db", domains=[domain], resources=Resources(Idle())) as scheduler:
        seen = await scheduler._store.machine()
        await scheduler.run_until_idle(timeout=30)
        after = await scheduler._store.machine()
        left = await scheduler.count()
    assert seen is not None
    assert seen.known.disk_write == pytest.approx(50 * MB)
    assert sorted(ran) == [0, 60, 60]
    assert left == 0
    assert after is not None
    assert after.known == seen.known
    assert after.limits == (), "no task is held any more, and none is reported as held"


def test_another_process_can_explain_why_tasks_wait_for_the_machine(
    victim: subprocess.Popen[str], tmp_path: Path
) -> None:
    file = tmp_path / "tasks.db"
    tasks = {task["id"]: task for task in answer("ls", file)}
    waiting = [id for id, task in tasks.items() if task["status"] == "pending"]
    said = {id: answer("why", file, id) for id in waiting}
    text = taskmill("why", file, waiting[-1]).stdout
    assert victim.poll() is None
    reasons = {id: [hold["reason"] for hold in document["holds"]] for id, document in said.items()}
    assert sorted(found[0] for found in reasons.values()) == ["io", "pressure"]
    assert "0.60 (disk)" in text
    assert "at most 0.50" in text


def test_a_dead_dispatcher_holds_no_task_back(victim: subprocess.Popen[str], tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    victim.kill()
    victim.wait()
    documents = [answer("why", file, task["id"]) for task in answer("ls", file)]
    status = answer("status", file)
    assert {hold["reason"] for document in documents for hold in document["holds"]} <= {"ahead", "no_dispatcher"}
    assert status["dispatching"] is False
