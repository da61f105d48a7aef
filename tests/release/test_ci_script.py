"""``.ci/run`` installs a browser if it can, and does not fail if it cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell script")

SCRIPT = ROOT / ".ci" / "run"


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs, the only one on PATH: those that the script needs, and a ``make`` that notes its target."""
    for name in ("bash", "sh", "dirname", "timeout"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    program(tmp_path, "make", 'echo "make $1"')
    program(tmp_path, "id", "echo 0")
    return tmp_path


def output_of(machine: Path) -> list[str]:
    environment = {**os.environ, "PATH": str(machine)}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


SKIPPED = "no Chromium: the tests in a browser are skipped"


def test_a_machine_without_a_package_manager_runs_the_checks(machine: Path) -> None:
    assert output_of(machine) == [SKIPPED, "make check", "make test"]


def test_a_failed_installation_does_not_stop_the_run(machine: Path) -> None:
    program(machine, "apt-get", 'echo "$@" >> "${0%/*}/asked"; echo noise; exit 100')
    assert output_of(machine) == [SKIPPED, "make check", "make test"]
    assert (machine / "asked").read_text() == "-qq update\n"


def test_a_missing_browser_is_installed_quietly(machine: Path) -> None:
    program(machine, "apt-get", 'echo "$@" >> "${0%/*}/asked"; echo noise')
    assert output_of(machine) == ["make check", "make test"]
    assert "install --yes --no-install-recommends chromium" in (machine / "asked").read_text()


def test_a_browser_that_is_there_is_left_alone(machine: Path) -> None:
    program(machine, "chromium", "exit 1")
    program(machine, "apt-get", "exit 1")
    assert output_of(machine) == ["make check", "make test"]


def test_a_failed_check_fails_the_run(machine: Path) -> None:
    program(machine, "make", "exit 3")
    with pytest.raises(subprocess.CalledProcessError):
        output_of(machine)
