"""``make versions`` finds the interpreters of this machine and runs the tests with each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import versions
from tools.versions import Interpreter, candidates, examined, newest_of_each, supported_versions

from tests.architecture.sources import ROOT

OWN = Interpreter(sys.version_info[:3], Path(sys.executable))


def executable(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_the_interpreter_of_these_tests_is_supported() -> None:
    assert OWN.version in supported_versions()


def test_an_interpreter_is_asked_for_its_version() -> None:
    assert examined(Path(sys.executable)) == OWN


@pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts")
@pytest.mark.parametrize("text", ["exit 127", "echo 3 12 1 candidate cpython", "echo 3 12 1 final pypy", "echo hello"])
def test_a_program_that_is_no_released_interpreter_is_skipped(tmp_path: Path, text: str) -> None:
    assert examined(executable(tmp_path / "python3.12", text)) is None


@pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts")
def test_interpreters_are_found_on_the_path_and_in_the_folders_of_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    on_path = executable(tmp_path / "bin" / "python3.12", "echo 3 12 1 final cpython")
    shim = executable(tmp_path / "shims" / "python3.13", "exit 127")
    older = executable(tmp_path / ".pyenv/versions/3.13.0/bin/python", "echo 3 13 0 final cpython")
    newer = executable(tmp_path / ".pyenv/versions/3.13.7/bin/python", "echo 3 13 7 final cpython")
    path = os.pathsep.join([str(tmp_path / "bin"), str(tmp_path / "shims"), str(tmp_path / "nowhere")])
    seen = list(candidates(["3.12", "3.13"], path))
    assert set(seen) == {on_path, shim, older, newer}
    found = newest_of_each(filter(None, map(examined, seen)))
    assert {version: one.path for version, one in found.items()} == {"3.12": on_path, "3.13": newer}


def test_a_version_that_is_not_supported_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, versions.__file__, "--only", "3.9"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 2
    assert "not supported: 3.9; give versions from 3.11 on" in done.stderr
