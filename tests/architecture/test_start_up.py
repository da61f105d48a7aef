"""A program that defines tasks, and a command, import only what they need to start."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from taskmill.cli.commands import SUMMARIES
from tests.architecture.sources import PACKAGE, ROOT

# asyncio itself imports ssl, and msgspec imports decimal, uuid and, if it is installed, typing_extensions.
HEAVY = {
    "argparse",
    "email",
    "http",
    "importlib.metadata",
    "multiprocessing",
    "prometheus_client",
    "psutil",
    "psycopg",
    "pysqlite3",
    "pytest",
    "rich",
    "sqlite3",
    "tempfile",
    "unittest",
    "zoneinfo",
}
LOADED_LATER = {"cli", "dispatch", "execute", "observe", "policy", "resources", "runtime", "store", "testing"}
TWO_IN_ONE = {"resume": "pause"}
NEEDED = {"demo": ["tempfile"]}

PROGRAM = """
import json, sys
before = set(sys.modules)
{code}
print()
print(json.dumps(sorted(set(sys.modules) - before)))
"""
COMMAND = """
import contextlib
with contextlib.suppress(SystemExit):
    from taskmill.cli import main
    main({words})
"""


def imported_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter imports to run this code."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        cwd=ROOT,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def imported_by_command(*words: str) -> set[str]:
    return imported_by(COMMAND.format(words=list(words)))


def commands_among(modules: set[str]) -> set[str]:
    folder = "taskmill.cli.commands."
    return {name.removeprefix(folder) for name in modules if name.startswith(folder)}


def test_importing_taskmill_imports_no_heavy_module() -> None:
    assert imported_by("import taskmill") & HEAVY == set()


def test_importing_taskmill_imports_no_adapter() -> None:
    rooms = {name.split(".")[1] for name in imported_by("import taskmill") if name.startswith("taskmill.")}
    assert "scheduler" in rooms
    assert rooms & LOADED_LATER == set()


def test_the_search_for_heavy_modules_finds_them() -> None:
    assert imported_by("import sqlite3, zoneinfo") & HEAVY == {"sqlite3", "zoneinfo"}


@pytest.mark.parametrize("command", SUMMARIES)
def test_a_command_imports_only_its_own_module(command: str) -> None:
    modules = imported_by_command(command, "--help")
    assert commands_among(modules) == {TWO_IN_ONE.get(command, command)}
    assert modules & HEAVY <= {"argparse", *NEEDED.get(command, ())}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_without_a_command_no_module_of_a_command_is_imported(option: str) -> None:
    assert commands_among(imported_by_command(option)) == set()
