"""Nodes are killed at random while they work: every task ends once, and none has two live attempts at a time."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from taskmill import Scheduler, Submission
from tests.postgres.chaos_node import domain
from tests.warm_python import Popen

LEASE = 4.0
ROUNDS = int(os.environ.get("TASKMILL_CRASH_ROUNDS", "6"))


def _overlaps(evidence: Path, killed: dict[int, float]) -> list[str]:
    """Return attempts of one task that were alive at the same time; the attempts of a killed process ended with it."""
    spans: dict[int, list[tuple[float, float, int]]] = {}
    begun: dict[tuple[int, int], tuple[float, int]] = {}
    for line in evidence.read_text().splitlines():
        at, what, id, attempt, process = json.loads(line)
        if what == "begins":
            begun[id, attempt] = at, process
        else:
            since, _ = begun.pop((id, attempt))
            spans.setdefault(id, []).append((since, at, attempt))
    for (id, attempt), (since, process) in begun.items():
        spans.setdefault(id, []).append((since, killed.get(process, time.monotonic()), attempt))
    wrong: list[str] = []
    for id, each in spans.items():
        each.sort()
        for (_, end, one), (start, _, other) in pairwise(each):
            if start < end:
                wrong.append(f"task {id}: attempts {one} and {other} by {end - start:.3f} s")
    return wrong


@pytest.mark.timeout(300)
async def test_nodes_killed_at_random_lose_nothing_and_repeat_nothing_at_the_same_time(
    postgres_store: str, tmp_path: Path
) -> None:
    chance = random.Random(7)
    evidence = tmp_path / "evidence"
    evidence.touch()
    killed: dict[int, float] = {}

    def start() -> subprocess.Popen[bytes]:
        words = [postgres_store, str(evidence), str(LEASE)]
        return Popen([sys.executable, "-m", "tests.postgres.chaos_node", *words], stderr=subprocess.DEVNULL)

    async with Scheduler(postgres_store, domains=[domain], retention=None) as scheduler:
        wanted = [Submission("d::plain", {"n": n}) for n in range(150)]
        wanted += [Submission("d::family", {"n": n}) for n in range(40)]
        for n in range(30):
            wanted.append(Submission("d::plain", {"n": n}, ref=f"first {n}"))
            wanted.append(Submission("d::family", {"n": n}, depends_on=[f"first {n}"]))
        handles = await scheduler.submit_many(wanted)
        nodes = [start() for _ in range(3)]
        try:
            for _ in range(ROUNDS):
                await asyncio.sleep(chance.uniform(0.5, 1.5))
                victim = nodes.pop(chance.randrange(3))
                victim.kill()
                victim.wait()
                killed[victim.pid] = time.monotonic()
                nodes.append(start())
            results = [await handle.result(timeout=120) for handle in handles]
        finally:
            for node in nodes:
                node.kill()
                node.wait()
                killed[node.pid] = time.monotonic()
        left = await scheduler.count()
        counts = (await scheduler.snapshot()).counts
    assert left == 0
    assert results[:150] == list(range(150))
    families = [*results[150:190], *results[191::2]]
    # Each run of a family has three children. A run that was killed after it spawned them runs again, with three more.
    assert all(children >= 3 and children % 3 == 0 for children in families)
    assert counts["completed"] == len(handles) + sum(families)
    assert _overlaps(evidence, killed) == []
    with psycopg.connect(postgres_store) as connection:
        query = "SELECT (SELECT count(*) FROM taskmill_task), (SELECT count(*) FROM taskmill_dependency WHERE open)"
        assert connection.execute(query).fetchone() == (0, 0)
