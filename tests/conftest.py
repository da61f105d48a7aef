"""Shared fixtures and settings: stores of each kind, and Hypothesis without a stopwatch (test machines are busy)."""

from __future__ import annotations

import gc
import os
import signal
import sys
from itertools import chain, groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.both_engines import Engine, engine, pytest_generate_tests, pytest_runtest_call, room_of, schemas
from tests.postgres.fixtures import own_server, postgres_server, postgres_store
from tests.repetition import often
from tests.scratch import disk_path, use_memory

__all__ = [
    "disk_path",
    "engine",
    "own_server",
    "postgres_server",
    "postgres_store",
    "pytest_generate_tests",
    "pytest_runtest_call",
    "schemas",
]

settings.register_profile(
    "taskmill", max_examples=often(30), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("taskmill")

use_memory()

# Collection creates many objects that live until the end of the run: look for no garbage among them, then or later.
gc.disable()

if sys.dont_write_bytecode:
    # The tests start many Python processes, and each would compile the whole package: half a second of CPU. So write
    # bytecode, beside the sources. With a separate folder (PYTHONPYCACHEPREFIX), Python would not find the bytecode of
    # its library and of installed packages, and each process of a first run would compile those too.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored. The commands under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Helpers with assertions explain a failure as fully as a test module does.
pytest.register_assert_rewrite(
    "tests.acceptance.box", "tests.acceptance.command_line", "tests.runtime.records", "tests.store.contract"
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for ``-n auto``: more than cores, because tests wait for servers and processes."""
    return (os.cpu_count() or 1) + 2


LONGEST_FIRST = ("cluster", "typing", "crash", "power", "postgres", "web", "moving", "release")
"""The folders with the longest tests. A worker takes over the last tests of another one; these should be short."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each worker begin with its share of the folders with the longest tests, so that none ends late and alone.

    Each worker is given as many consecutive tests as the others.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    folder = {item: room_of(item.path) for item in items}
    long = sorted((item for item in items if folder[item] in places), key=lambda item: places[folder[item]])
    for _, file in groupby(long, key=lambda item: item.path):
        min(shares, key=len).extend(file)
    others = [item for item in items if folder[item] not in places]
    left = len(items)
    for number, share in enumerate(shares):
        room = max(left // (workers - number) - len(share), 0)
        share.extend(others[:room])
        del others[:room]
        left -= len(share)
    items[:] = [*chain.from_iterable(shares), *others]


def pytest_collection_finish() -> None:
    gc.freeze()
    # Look for garbage after 10,000 new objects instead of 700: it takes half the CPU, and 16 MB more.
    gc.set_threshold(10_000)
    gc.enable()


@pytest.fixture(params=["memory", "file", "postgres"])
def any_store(request: pytest.FixtureRequest, engine: Engine, tmp_path: Path) -> str:
    """Return the name of an empty store; each test that asks for it runs once per kind."""
    if request.param == "postgres":
        return engine.borrow(request.getfixturevalue("schemas"))
    return ":memory:" if request.param == "memory" else str(tmp_path / "tasks.db")
