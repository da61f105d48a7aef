"""A simulation gives the same answer in every process, whatever order Python's sets have there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio

from taskmill import Domain, Group, Scheduler
from taskmill.testing import ManualClock

domain = Domain("d")
NAMES = ["alpha", "beta", "gamma", "delta", "epsilon"]


@domain.task
async def work(n: int) -> None: ...


async def main() -> None:
    groups = {name: Group(weight=n % 2 + 1) for n, name in enumerate(NAMES)}
    async with Scheduler(domains=[domain], max_concurrency=4, clock=ManualClock(), groups=groups) as scheduler:
        await scheduler.submit_many([work.options(group=NAMES[n * 7 % 5]).prepare(n) for n in range(60)])
        compared = await scheduler.simulate({"max_concurrency": 3}, seed=1)
        print([*compared.before.starts], [*compared.after.starts])


asyncio.run(main())
"""


@pytest.mark.one_engine("the order of sets does not depend on the store")
def test_a_seed_gives_the_same_starts_in_every_process() -> None:
    starts = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        for seed in range(1, 5)
    }
    assert len(starts) == 1
