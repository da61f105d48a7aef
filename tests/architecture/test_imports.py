"""Imports point downward only: the folder list is the architecture."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.architecture.sources import PACKAGE, Source, package_sources

# The folders of taskmill that each folder may import, besides itself.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "model": {"errors"},
    "policy": {"errors", "model"},
    "core": {"errors", "model"},
    "define": {"errors", "model", "handle"},
    "handle": {"errors", "model"},
    "events": {"model"},
    "store": {"errors", "model", "policy", "define", "core"},
    "execute": {"errors", "model", "define", "handle", "core"},
    "observe": {"errors", "model", "policy", "define", "core"},
    "resources": {"errors", "model", "policy", "core"},
    "dispatch": {"errors", "model", "policy"},
    "simulation": {"errors", "model", "policy", "dispatch"},
    "runtime": {"errors", "model", "policy", "dispatch", "define", "handle", "core", "execute", "observe"},
}
DOORS = {"cli", "web", "metrics"}
PUBLIC = {"taskmill", "taskmill.events", "taskmill.cron", "taskmill.blocking", "taskmill.metrics", "taskmill.moving"}
PUBLIC |= {"taskmill.backup", "taskmill.doctor", "taskmill.reading", "taskmill.web"}
PUBLIC |= {"taskmill.model.durations"}  # one parser for the API and the command line
PUBLIC |= {"taskmill.model.json_text"}  # one JSON form for the API and the command line

PURE = ("policy", "model", "dispatch", "simulation")
IMPURE = {"asyncio", "logging", "os", "pathlib", "pysqlite3", "random", "secrets", "socket", "sqlite3", "threading"}
IMPURE |= {"time"}


class Import(NamedTuple):
    """One name that a module needs when it runs."""

    file: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def folder(module: str) -> str:
    """Return the folder of a module: ``store`` for ``taskmill.store.sqlite.rows``, ``taskmill`` for itself."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "taskmill"


def _only_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node except those that only type checkers read; imports inside functions do run."""
    for child in ast.iter_child_nodes(tree):
        if _only_for_type_checkers(child):
            assert isinstance(child, ast.If)
            for other in child.orelse:
                yield other
                yield from _running_nodes(other)
            continue
        yield child
        yield from _running_nodes(child)


@cache
def imports_of(source: Source) -> list[Import]:
    found: list[Import] = []
    for node in _running_nodes(source.tree):
        if isinstance(node, ast.Import):
            found += [Import(source.name, node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source.name}:{node.lineno} is a relative import; write the full name"
            module = node.module or ""
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                is_module = _is_our_module(whole)
                found.append(Import(source.name, node.lineno, whole if is_module else module))
    return found


@cache
def _is_our_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return name.startswith("taskmill.") and (path.with_suffix(".py").exists() or path.is_dir())


def _all_imports(of_folder: str) -> list[Import]:
    return [found for source in package_sources() if folder(source.module) == of_folder for found in imports_of(source)]


def _ours(imports: list[Import]) -> list[Import]:
    return [found for found in imports if found.module.split(".")[0] == "taskmill"]


def _shown(imports: list[Import]) -> str:
    return "\n".join(map(str, imports))


def test_the_reader_of_imports_sees_what_runs_and_only_that() -> None:
    tree = ast.parse(
        "if TYPE_CHECKING:\n    import a\nelse:\n    import b\ndef f():\n    import c\ntry:\n    import d\n"
        "except ImportError:\n    import e\n"
    )
    names = [alias.name for node in _running_nodes(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert names == ["b", "c", "d", "e"]


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_folder_imports_only_from_folders_below_it(name: str) -> None:
    imports = _all_imports(name)
    assert any(folder(source.module) == name for source in package_sources()), f"there is no folder {name}"
    wrong = [found for found in _ours(imports) if folder(found.module) not in ALLOWED[name] | {name}]
    assert wrong == [], _shown(wrong)


def test_policy_model_dispatch_and_simulation_have_no_clock_no_chance_no_io_and_no_log() -> None:
    wrong = [found for of in PURE for found in _all_imports(of) if found.module.split(".")[0] in IMPURE]
    assert wrong == [], _shown(wrong)


def test_policy_never_asks_what_time_it_is() -> None:
    asked = [
        f"{source.name}:{node.lineno} {node.attr}"
        for source in package_sources()
        if folder(source.module) in ("policy", "model")
        for node in source.nodes
        if isinstance(node, ast.Attribute) and node.attr in ("now", "utcnow", "today", "time_ns", "monotonic")
    ]
    assert asked == []


def test_only_the_store_knows_sqlite() -> None:
    wrong = [
        found
        for source in package_sources()
        if folder(source.module) != "store"
        for found in imports_of(source)
        if found.module.split(".")[0] in ("sqlite3", "pysqlite3", "psycopg")
    ]
    assert wrong == [], _shown(wrong)


def test_one_file_chooses_the_sqlite_library() -> None:
    choosing = {
        found.file
        for source in package_sources()
        for found in imports_of(source)
        if found.module.split(".")[0] in ("sqlite3", "pysqlite3")
    }
    assert choosing == {"taskmill/store/sqlite/connection.py"}


def test_only_the_composition_root_knows_the_store() -> None:
    wrong = [
        found
        for source in package_sources()
        if folder(source.module) not in ("store", "scheduler", "moving", "backup", "reading")
        for found in _ours(imports_of(source))
        if folder(found.module) == "store"
    ]
    assert wrong == [], _shown(wrong)


def test_only_the_composition_root_knows_where_readings_come_from() -> None:
    wrong = [
        found
        for source in package_sources()
        if folder(source.module) not in ("resources", "scheduler", "pressure")
        for found in _ours(imports_of(source))
        if folder(found.module) == "resources"
    ]
    assert wrong == [], _shown(wrong)


def test_the_random_numbers_of_the_program_are_left_alone() -> None:
    """A program that has seeded ``random`` gets the expected numbers, whatever taskmill's threads do."""
    drawing = [
        f"{source.name}:{node.lineno}"
        for source in package_sources()
        for node in source.nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "random"
        and node.attr != "Random"
        and any(found.module == "random" for found in imports_of(source))
    ]
    assert drawing == []


def test_one_file_makes_loggers() -> None:
    """Any other logger may raise in the middle of other work; the command line sets logging up for a program."""
    making = {
        source.module
        for source in package_sources()
        if folder(source.module) not in DOORS and "getLogger(" in source.text
    }
    assert making == {"taskmill.core.logs"}


def test_one_file_loads_psutil() -> None:
    loading = {
        found.file
        for source in package_sources()
        for found in imports_of(source)
        if found.module.split(".")[0] == "psutil"
    }
    assert loading == {"taskmill/resources/samplers.py"}


def test_nothing_below_the_composition_root_imports_it() -> None:
    wrong = [
        found
        for source in package_sources()
        if folder(source.module) in ALLOWED
        for found in _ours(imports_of(source))
        if folder(found.module)
        in {"scheduler", "taskmill", "testing", "blocking", "cron", "moving", "backup", "reading", *DOORS}
    ]
    assert wrong == [], _shown(wrong)


def test_peoples_doors_use_only_the_public_names() -> None:
    wrong = [
        found
        for source in package_sources()
        if folder(source.module) in DOORS
        for found in _ours(imports_of(source))
        if found.module not in PUBLIC and folder(found.module) != folder(source.module)
    ]
    assert wrong == [], _shown(wrong)


def test_nothing_shipped_imports_the_help_for_tests() -> None:
    wrong = [
        found
        for source in package_sources()
        if folder(source.module) != "testing"
        for found in _ours(imports_of(source))
        if folder(found.module) == "testing"
    ]
    assert wrong == [], _shown(wrong)
