"""The coding rules that a machine can check."""

from __future__ import annotations

import ast
import re
from typing import get_args

import pytest

from taskmill.store.sql.statements import SHARED, Engine, named
from tests.architecture.sources import PACKAGE, ROOT, package_sources

LONGEST_FILE = 400
VAGUE = {"manager", "util", "utils", "helper", "helpers", "common", "base", "misc"}


def test_there_are_files_to_check() -> None:
    assert len(package_sources()) > 20


def test_a_file_fits_in_a_readers_head() -> None:
    lengths = {source.name: len(source.text.splitlines()) for source in package_sources()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_a_module_says_what_it_is_for() -> None:
    unexplained = [source.name for source in package_sources() if not (ast.get_docstring(source.tree) or "").strip()]
    assert unexplained == []


def test_no_error_is_swallowed_in_silence() -> None:
    silent = [
        f"{source.name}:{node.lineno}"
        for source in package_sources()
        for node in source.nodes
        if (isinstance(node, ast.ExceptHandler) and _is_silent(node))
        or (isinstance(node, ast.Call) and _suppresses_everything(node))
    ]
    assert silent == []


def _is_silent(handler: ast.ExceptHandler) -> bool:
    return all(
        isinstance(step, ast.Pass)
        or (isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant) and step.value.value is ...)
        for step in handler.body
    )


def _suppresses_everything(node: ast.Call) -> bool:
    if ast.unparse(node.func) not in ("suppress", "contextlib.suppress"):
        return False
    return any(ast.unparse(given) in ("Exception", "BaseException") for given in node.args)


def test_the_search_for_silence_finds_it() -> None:
    tree = ast.parse("try:\n    a\nexcept:\n    pass\ntry:\n    a\nexcept E:\n    ...\ntry:\n    a\nexcept E:\n    b\n")
    found = [_is_silent(node) for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
    assert sorted(found) == [False, True, True]
    calls = [ast.parse(f"contextlib.suppress({kind})", mode="eval").body for kind in ("Exception", "OSError")]
    assert [_suppresses_everything(call) for call in calls if isinstance(call, ast.Call)] == [True, False]


def test_files_are_named_for_what_they_hold() -> None:
    names = [source.path.relative_to(PACKAGE).with_suffix("") for source in package_sources()]
    assert [str(name) for name in names if VAGUE & set(name.parts)] == []


def test_type_checkers_may_trust_the_annotations() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_migrations_are_numbered_without_gaps() -> None:
    found = sorted(entry.name for entry in (PACKAGE / "store" / "sqlite" / "migrations").glob("*.sql"))
    assert found
    numbers = []
    for name in found:
        assert re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name)
        numbers.append(int(name[:4]))
    assert numbers == list(range(1, len(found) + 1))


ENGINES: tuple[Engine, ...] = get_args(Engine)


def _statements(engine: Engine) -> list[str]:
    files = [*SHARED.glob("*.sql"), *(PACKAGE / "store" / engine).glob("*.sql")]
    return [name for file in sorted(files) for name, _ in named(engine, file)]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_by_name_has_a_name_of_its_own(engine: Engine) -> None:
    names = _statements(engine)
    assert names
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_statement_that_is_called_exists_in_every_engine(engine: Engine) -> None:
    texts = [file.read_text(encoding="utf-8") for file in (PACKAGE / "store" / "sql").glob("*.py")]
    called = {name for text in texts for name in re.findall(r'SQL\["(\w+)"\]', text)}
    assert len(called) > 100
    assert called <= set(_statements(engine))


def test_the_makefile_has_the_promised_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert {"demo", "test", "versions", "check", "bench", "rivals", "crash", "clean", "help"} <= targets
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    assert targets <= set(phony[1].split())


def test_the_command_and_the_plugin_that_are_declared_exist() -> None:
    declared = re.findall(
        r'^taskmill = "([\w.]+)(?::\w+)?"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(declared) == 2
    for module in declared:
        path = PACKAGE.parent.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__init__.py").is_file(), module


def test_a_test_that_runs_on_one_engine_says_why() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))]
    nodes = [node for text in texts if "one_engine" in text for node in ast.walk(ast.parse(text))]
    marks = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == "one_engine"]
    reasons = [
        ast.literal_eval(node.args[0])
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.one_engine"
    ]
    assert len(marks) == len(reasons) > 0
    assert [reason for reason in reasons if len(reason.split()) < 3] == []
