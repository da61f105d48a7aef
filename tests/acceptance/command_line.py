"""Calling the command line, in a process of its own or in this one.

Starting a process costs a third of a second, so the many small variations of one command call ``main`` instead. Where
the test runs on PostgreSQL, a command is given an address in place of the path of a database.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from taskmill.cli import main
from tests.both_engines import name_of

SOURCE = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
ENVIRONMENT.pop("TASKMILL_STORE", None)


def taskmill(
    *arguments: object, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "taskmill", *map(name_of, arguments)],
        check=False,
        cwd=cwd,
        env={**ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


def answer(*arguments: object, code: int = 0) -> Any:
    """The JSON document a command prints."""
    done = taskmill(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


class Here:
    """Commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object, code: int = 0) -> str:
        found, out, wrong = self._call(arguments)
        assert found == code, wrong
        return out

    def answer(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", code=code))

    def refusal(self, *arguments: object, code: int) -> str:
        """The one sentence a command refuses with."""
        found, out, wrong = self._call(arguments)
        assert found == code, wrong
        assert out == ""
        assert wrong.startswith("taskmill: ")
        assert wrong.count("\n") == 1, wrong
        return wrong.removeprefix("taskmill: ").strip()

    def _call(self, arguments: Sequence[object]) -> tuple[int, str, str]:
        try:
            code = main([*map(name_of, arguments)])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        said = self._capsys.readouterr()
        return code, said.out, said.err
