"""The documentation is true: its programs run, its names are complete, its links lead somewhere.

A Python block of a page is run as part of that page's program, all blocks in order, in an empty folder. A program that
leaves a database behind is run a second time with it. A comment right before a block changes this:
``<!-- file: app.py -->`` saves it beside the program, to be imported or, if its name starts with ``test_``, to be run
by pytest; ``<!-- cell -->`` makes it a cell of the page's notebook; ``<!-- not run: reason -->`` only compiles it.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest

import taskmill
import taskmill.blocking
import taskmill.events
import taskmill.pressure
from taskmill import (
    Context,
    Handle,
    HistoryRecord,
    IoBudget,
    NodeSnapshot,
    Reading,
    Resources,
    Scheduler,
    Snapshot,
    Task,
    TaskProgress,
    TaskRecord,
    ThrottlePolicy,
    TypeStats,
)
from taskmill.cli import parser
from taskmill.model.explanation import Reason
from taskmill.model.filters import FilterOptions
from taskmill.model.options import CallOptions, DomainOptions, TypeOptions
from tests.warm_python import run as warm_run

pytestmark = pytest.mark.one_engine("a page names its own store, as a reader would")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
OUTSIDE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
ALL_PAGES = [*PAGES, *(ROOT / name for name in OUTSIDE)]
DECISIONS = sorted((DOCS / "decisions").glob("0*.md"))

BLOCK = re.compile(r"(?:^<!-- (?P<note>[^\n]+) -->\n)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PYTEST_SETTINGS = [
    *("-p", "no:cacheprovider", "-p", "no:schemathesis"),
    *("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A piece of Python on a page."""

    code: str
    line: int
    note: str | None

    @property
    def file(self) -> str | None:
        """The name of the file to save it as."""
        return self.note.removeprefix("file: ") if self.note and self.note.startswith("file: ") else None

    @property
    def is_run(self) -> bool:
        return self.note is None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks_of(text: str) -> list[Block]:
    return [
        Block(found["code"], text.count("\n", 0, found.start("code")) + 1, found["note"])
        for found in BLOCK.finditer(text)
    ]


def words_in_code(*pages: Path) -> set[str]:
    """Return every identifier in code on these pages."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    spans = FENCE.findall(text) + re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    return {word for span in spans for word in re.findall(r"[A-Za-z_]\w*", span)}


def public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Programs


def test_the_reader_of_pages_finds_blocks_their_lines_and_their_notes() -> None:
    page = "# A\n\n```python\na = 1\n```\n\n<!-- file: b.py -->\n```python\nb = 2\n```\n\n```\nnot python\n```\n"
    first, second = blocks_of(page)
    assert (first.code, first.line, first.is_run, first.file) == ("a = 1\n", 4, True, None)
    assert (second.code, second.line, second.is_run, second.file) == ("b = 2\n", 9, False, "b.py")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_compiles_and_its_note_is_understood(page: Path) -> None:
    for block in blocks_of(page.read_text(encoding="utf-8")):
        where = f"{name_of(page)}:{block.line}"
        compile(block.code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if block.note is not None:
            assert re.fullmatch(r"file: \w+\.py|cell|not run: .+", block.note), f"{where}: {block.note}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page.read_text(encoding="utf-8"))], ids=name_of)
def test_the_program_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if "PySide6" in text and not _can_import("PySide6.QtWidgets"):
        pytest.skip("Qt cannot be loaded here; on Linux it needs the system's libEGL and libGL")
    blocks = blocks_of(text)
    tests = []
    for block in blocks:
        if block.file is not None:
            (tmp_path / block.file).write_text(block.code, encoding="utf-8")
            tests += [block.file] if block.file.startswith("test_") else []
    if any(block.is_run for block in blocks):
        (tmp_path / "page.py").write_text(_program(blocks), encoding="utf-8")
        _run(["page.py"], tmp_path)
        if list(tmp_path.glob("*.db")):  # a reader runs it again, with the file that it has left behind
            _run(["page.py"], tmp_path, start=warm_run)
    for file in {block.file for block in blocks if block.file} - set(tests):
        _run(["-c", f"import {file.removesuffix('.py')}"], tmp_path)
    if tests:
        said = _run(["-m", "pytest", *PYTEST_SETTINGS, *tests], tmp_path)
        assert "passed" in said
    if cells := [block.code for block in blocks if block.note == "cell"]:
        run_notebook(cells, tmp_path)


def run_notebook(cells: list[str], folder: Path) -> list[Any]:
    """Run these cells as a notebook in a real kernel; return their outputs."""
    import nbclient
    import nbformat

    cell, new_notebook = nbformat.v4.new_code_cell, nbformat.v4.new_notebook
    notebook = new_notebook(cells=[cell(code) for code in cells])  # type: ignore[no-untyped-call]
    nbclient.NotebookClient(notebook, timeout=30, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


def _can_import(module: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def _program(blocks: list[Block]) -> str:
    """Return the blocks that are run, each on the lines it has on its page, so that a traceback points there."""
    lines: list[str] = []
    for block in blocks:
        if block.is_run:
            lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    return "\n".join(lines) + "\n"


def _run(arguments: list[str], folder: Path, start: Callable[..., Any] = subprocess.run) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TASKMILL_", "PYTEST_"))}
    environment["QT_QPA_PLATFORM"] = "offscreen"  # windows without a screen
    done = start(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return str(done.stdout)


# Names


def test_every_public_name_is_in_the_reference() -> None:
    assert set(taskmill.__all__) - words_in_code(*REFERENCE.glob("*.md")) == set()


def test_every_event_and_its_fields_are_in_the_reference() -> None:
    kinds = [getattr(taskmill.events, name) for name in taskmill.events.__all__]
    wanted = set(taskmill.events.__all__) | {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert wanted - words_in_code(REFERENCE / "events.md") == set()


def test_every_setting_verb_and_filter_of_a_scheduler_is_in_the_reference() -> None:
    settings = set(inspect.signature(Scheduler).parameters)
    wanted = settings | public_names(Scheduler) | public_names(Handle) | set(FilterOptions.__annotations__)
    wanted |= public_names(taskmill.blocking.Scheduler)
    assert wanted - words_in_code(REFERENCE / "scheduler.md") == set()


def test_every_option_is_in_the_reference() -> None:
    wanted = {name for options in (CallOptions, TypeOptions, DomainOptions) for name in options.__annotations__}
    assert wanted - words_in_code(REFERENCE / "options.md") == set()


def test_the_names_that_handlers_use_are_in_the_reference() -> None:
    wanted = public_names(Context) | public_names(Task) - {"type", "domain"}
    assert wanted - words_in_code(REFERENCE / "handlers.md") == set()


@pytest.mark.parametrize("kind", [TaskRecord, HistoryRecord, TaskProgress, TypeStats, Snapshot, NodeSnapshot])
def test_every_field_of_a_record_is_in_the_reference(kind: Any) -> None:
    assert set(kind.__struct_fields__) - words_in_code(REFERENCE / "records.md") == set()


def test_every_source_and_sampler_is_in_the_reference() -> None:
    wanted = {*taskmill.pressure.__all__, *Reading.__struct_fields__}
    assert wanted - words_in_code(REFERENCE / "pressure.md") == set()


@pytest.mark.parametrize(
    ("kind", "page"), [(Resources, "scheduler.md"), (ThrottlePolicy, "scheduler.md"), (IoBudget, "options.md")]
)
def test_every_field_of_a_setting_about_the_machine_is_in_the_reference(kind: Any, page: str) -> None:
    assert set(kind.__struct_fields__) - words_in_code(REFERENCE / page) == set()


def test_every_reason_to_wait_is_in_the_reference() -> None:
    assert set(get_args(Reason)) - words_in_code(REFERENCE / "records.md") == set()


def test_every_error_is_explained_where_errors_are() -> None:
    errors = {
        name
        for name in taskmill.__all__
        if isinstance(value := getattr(taskmill, name), type) and issubclass(value, Exception)
    }
    assert len(errors) > 15
    assert errors - words_in_code(REFERENCE / "errors.md") == set()


def test_every_command_and_each_of_its_options_is_in_the_reference() -> None:
    page = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
    commands = _commands(parser())
    assert commands
    missing = [name for name in commands if f"`taskmill {name}" not in page]
    for one in [parser(), *commands.values()]:
        options = {option for action in one._actions for option in action.option_strings if option.startswith("--")}
        missing += [f"{one.prog} {option}" for option in sorted(options) if not re.search(rf"{option}(?![\w-])", page)]
    assert missing == []


def test_no_command_is_documented_that_does_not_exist() -> None:
    commands = set(_commands(parser()))
    for page in ALL_PAGES:
        text = page.read_text(encoding="utf-8")
        spoken = re.findall(r"`(?:python -m )?taskmill ([a-z]+)\b", text)
        assert set(spoken) <= commands, name_of(page)


def _commands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {
        name: one
        for action in top._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, one in action.choices.items()
    }


# Links and form


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{name_of(page)} links to {link}"
        if anchor:
            assert anchor in anchors_of(target), f"{name_of(page)} links to {link}"


def test_the_life_of_a_task_is_drawn_from_its_table() -> None:
    drawing = [sys.executable, str(ROOT / "tools" / "draw_lifecycle.py"), "--check"]
    assert subprocess.run(drawing, check=False).returncode == 0, "run tools/draw_lifecycle.py"


def test_every_page_can_be_reached_from_the_index() -> None:
    index, decisions = DOCS / "index.md", DOCS / "decisions" / "index.md"
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in (index, decisions)
        for link in LINK.findall(page.read_text(encoding="utf-8"))
    }
    assert {page.resolve() for page in DOCS.rglob("*.md")} - linked - {index.resolve()} == set()


def test_decisions_are_numbered_without_gaps() -> None:
    assert [page.name[:5] for page in DECISIONS] == [f"{number:04}-" for number in range(1, len(DECISIONS) + 1)]


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_has_its_number_and_its_four_headings(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.name[:4]} ")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences", "Rejected"]


def test_the_source_names_only_decisions_that_exist() -> None:
    numbers = {page.name[:4] for page in DECISIONS}
    for file in sorted((ROOT / "src").rglob("*.py")):
        named = set(re.findall(r"docs/decisions/(\d{4})", file.read_text(encoding="utf-8")))
        assert named <= numbers, file.name


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


def test_the_readme_says_how_to_try_and_test_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {"pip install taskmill", "make demo", "make test"} <= set(re.findall(r"pip install taskmill|make \w+", text))


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_every_extra_that_is_named_exists(page: Path) -> None:
    declared = re.search(
        r"^\[project.optional-dependencies\]\n(.*?)^\[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL
    )
    assert declared is not None
    extras = set(re.findall(r"^(\w+) = \[", declared[1], re.MULTILINE))
    assert set(re.findall(r"taskmill\[(\w+)\]", page.read_text(encoding="utf-8"))) <= extras


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_every_source_file_that_is_named_exists(page: Path) -> None:
    """Paths in code spans are relative to the package or to the repository; NNNN stands for a future number."""
    package = Path(taskmill.__file__).parent
    named = re.findall(r"`([\w./-]+(?:\.(?:py|sql|md|toml)|/))`", FENCE.sub("", page.read_text(encoding="utf-8")))
    assert named
    missing = [
        path for path in named if "NNNN" not in path and not (package / path).exists() and not (ROOT / path).exists()
    ]
    assert missing == []
