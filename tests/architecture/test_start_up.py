"""A program that defines tasks, and a command, import only what they need to start."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import taskmill
from taskmill import blocking
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
LOADED_LATER = {
    "cli",
    "dispatch",
    "execute",
    "observe",
    "policy",
    "resources",
    "runtime",
    "simulation",
    "store",
    "testing",
}
NAMED_BY_FEW = {
    "taskmill.core.logs",
    "taskmill.define.kept_values",
    "taskmill.define.parameters",
    "taskmill.define.pydantic_models",
    "taskmill.define.settings",
    "taskmill.define.unstorable",
    "taskmill.model.attempt",
    "taskmill.model.browsing",
    "taskmill.model.cron",
    "taskmill.model.explanation",
    "taskmill.model.looking_ahead",
    "taskmill.model.machine",
    "taskmill.model.snapshot",
    "taskmill.model.task",
}
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


IMPORTS = "from taskmill import Context, Domain, Priority, Retry, Scheduler"
"""The names that a program needs to define and run tasks."""


def test_defining_tasks_imports_no_heavy_module() -> None:
    assert imported_by(IMPORTS) & HEAVY == set()


def test_defining_tasks_imports_no_adapter() -> None:
    folders = {name.split(".")[1] for name in imported_by(IMPORTS) if name.startswith("taskmill.")}
    assert "scheduler" in folders
    assert folders & LOADED_LATER == set()


def test_defining_tasks_imports_no_values_that_most_programs_never_name() -> None:
    assert imported_by(IMPORTS) & NAMED_BY_FEW == set()
    assert "taskmill.model.snapshot" in imported_by("from taskmill import Snapshot")


def test_every_public_name_is_listed_before_its_module_is_imported() -> None:
    modules = imported_by("import taskmill; assert set(taskmill.__all__) <= set(dir(taskmill))")
    assert "taskmill.scheduler" not in modules


def test_every_public_name_is_imported_when_it_is_used() -> None:
    imported_by("import taskmill; assert all(getattr(taskmill, name) is not None for name in taskmill.__all__)")


def test_type_checkers_and_programs_import_the_same_names_from_the_same_modules() -> None:
    (block,) = [node for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.If)]
    checked = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    used = {name: f"taskmill.{module}" for name, module in vars(taskmill)["_MODULE_OF"].items()}
    used |= dict.fromkeys(vars(taskmill)["_PUBLIC_MODULES"], "taskmill")
    assert checked == used


def test_public_modules_can_be_used_after_import_taskmill_and_load_only_then() -> None:
    assert "taskmill.blocking" not in imported_by("import taskmill")
    imported_by("import taskmill; taskmill.blocking.Scheduler, taskmill.cron.Cron, taskmill.events.TaskCompleted")


def test_every_module_beside_the_scheduler_is_public() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__", "handle", "scheduler"}
    assert vars(taskmill)["_PUBLIC_MODULES"] == {*modules, "testing", "web"}


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


MOST_CPU = 0.2
"""Seconds of CPU for ``taskmill status`` on a small file, on an idle machine of today."""
GENEROUS = 3
"""The factor for a slow machine that other tests keep busy."""


def test_status_of_a_small_file_needs_little_cpu(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    with blocking.Scheduler(file):
        pass
    # Use compiled modules, as an installed program does.
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    spent: list[float] = []
    for _ in range(4):
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "taskmill", "status", str(file)], env=environment, check=True, capture_output=True
        )
        after = os.times()
        spent.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(spent[1:]) < MOST_CPU * GENEROUS


def test_a_command_that_looks_loads_nothing_that_dispatches_or_writes(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    with blocking.Scheduler(file):
        pass
    modules = imported_by_command("status", str(file))
    assert "taskmill.store.sqlite.reading" in modules
    assert not {"asyncio", "concurrent.futures", "logging", "shutil", "ssl", "taskmill.scheduler"} & modules
    for heavy in ("runtime", "dispatch", "execute", "observe", "resources"):
        assert not {name for name in modules if name.startswith(f"taskmill.{heavy}")}, heavy
    assert not {"taskmill.store.sql.write_side", "taskmill.store.sqlite.writer", "rich"} & modules
    assert not {"taskmill.store.sql.endings", "taskmill.store.sqlite.backup", "taskmill.core.ports"} & modules
