"""Type checkers use the handler's own signature: they report wrong calls."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import taskmill
from tests.typing.conftest import KeptCache

HERE = Path(__file__).parent
SOURCE = Path(taskmill.__file__).parents[1]
ACCEPTED = HERE / "accepted.py"
REJECTED = sorted((HERE / "rejected").glob("*.py"))
MARK = re.compile(r"# refused$")

Found = dict[str, dict[int, str]]
"""The reported errors: file name → line → message."""


def _mypy(folder: Path, kept_cache: KeptCache) -> Found:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            "--python-version=3.11",
            "--output=json",
            f"--cache-dir={kept_cache('mypy_calls')}",
            ACCEPTED,
            *REJECTED,
        ],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: Found = {}
    for line in done.stdout.splitlines():
        report = json.loads(line)
        if report["severity"] == "error":
            found.setdefault(Path(report["file"]).name, {})[report["line"]] = report["message"]
    return found


def _pyright(folder: Path, _kept_cache: KeptCache) -> Found:
    # Pyright checks only files below the folder of its settings.
    for file in (ACCEPTED, *REJECTED):
        shutil.copy(file, folder)
    settings = {
        "extraPaths": [str(SOURCE)],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
    }
    config = folder / "pyrightconfig.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--project", config, "--pythonpath", sys.executable, "--outputjson"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1 + len(REJECTED)
    found: Found = {}
    for one in report["generalDiagnostics"]:
        if one["severity"] == "error":
            line = one["range"]["start"]["line"] + 1
            found.setdefault(Path(one["file"]).name, {})[line] = one["message"]
    return found


CHECKERS: dict[str, Callable[[Path, KeptCache], Found]] = {"mypy": _mypy, "pyright": _pyright}


@pytest.fixture(scope="module", params=sorted(CHECKERS))
def reported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, kept_cache: KeptCache) -> Found:
    return CHECKERS[request.param](tmp_path_factory.mktemp(request.param), kept_cache)


def test_right_calls_are_accepted_with_the_handlers_types(reported: Found) -> None:
    assert reported.get(ACCEPTED.name, {}) == {}


@pytest.mark.parametrize("file", REJECTED, ids=lambda file: file.stem)
def test_wrong_calls_are_reported_at_their_lines_and_nothing_else_is(reported: Found, file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    marked = {number for number, line in enumerate(lines, start=1) if MARK.search(line)}
    assert len(marked) > 10
    found = reported.get(file.name, {})
    missed = {number: lines[number - 1] for number in marked - set(found)}
    assert missed == {}
    unexpected = {number: message for number, message in found.items() if number not in marked}
    assert unexpected == {}
