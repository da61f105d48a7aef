"""Laws of families and dependencies, on random programs: trees, dependencies, keys, endings of every kind, crashes.

No task is left waiting: once handlers may finish, every task ends, with one row of history; children end before
their parents, hooks run from the leaves up, ``finalize`` runs after the last child, and a dependent starts after its
dependencies. ``TASKMILL_FAMILY_PROGRAMS`` is the number of programs to run, ``TASKMILL_FAMILY_SEED`` the first seed;
a failure prints its seed and its program.
"""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.both_engines import Engine
from tests.repetition import often
from tests.runtime.families.world import World

PROGRAMS = int(os.environ.get("TASKMILL_FAMILY_PROGRAMS", often(12)))
FIRST_SEED = int(os.environ.get("TASKMILL_FAMILY_SEED", "0"))


async def run_program(seed: int, folder: Path | None) -> None:
    world = World(seed, folder)
    try:
        await world.play()
    except BaseException as wrong:
        world.wrong.append(f"{type(wrong).__name__}: {wrong}")
        raise AssertionError(_report(world)) from wrong
    assert not world.wrong, _report(world)


def _report(world: World) -> str:
    where = "a file" if world.folder else "memory"
    return "\n".join([f"seed {world.seed} in {where}: " + "; ".join(world.wrong), *world.told])


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Silence the log: programs fail on purpose all the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(60 + PROGRAMS * 3)
async def test_families_in_memory_keep_the_laws(engine: Engine) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + engine.fewer(PROGRAMS)):
        await run_program(seed, None)


@pytest.mark.timeout(60 + PROGRAMS * 3)
async def test_families_in_a_file_keep_the_laws_through_crashes_and_restarts(engine: Engine) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + engine.fewer(max(1, PROGRAMS // 2))):
        with tempfile.TemporaryDirectory() as folder:
            await run_program(seed, Path(folder))
