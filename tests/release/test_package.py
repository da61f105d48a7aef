"""The package that users install: it builds, has every file, and works in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import taskmill
from tests.architecture.sources import PACKAGE, ROOT

# All tests here share one build, so they run in one process.
pytestmark = [
    pytest.mark.xdist_group("package"),
    pytest.mark.skipif(os.name == "nt", reason="the paths of the environment are those of POSIX"),
]

PROGRAM = """
import asyncio, sys
from taskmill import Domain, Scheduler

domain = Domain("shop")

@domain.task
async def double(number: int) -> int:
    return 2 * number

async def main():
    async with Scheduler(sys.argv[1], domains=[domain]) as scheduler:
        handle = await double.submit(21)
        await scheduler.run_until_idle()
        print(await handle.result())

asyncio.run(main())
"""


def run(command: Sequence[str | Path], **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment}, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from it; nothing is downloaded for it."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT])
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheel, msgspec and nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, symlinks=True)
    own = folder / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", own, "install", "--quiet", "--no-index", "--no-deps", wheel])
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (site / "msgspec").symlink_to(Path(msgspec.__file__).parent, target_is_directory=True)
    return own


def test_the_names_of_the_files_have_the_version(built: Path) -> None:
    version = taskmill.__version__
    assert {file.name for file in built.iterdir()} == {
        f"taskmill-{version}-py3-none-any.whl",
        f"taskmill-{version}.tar.gz",
    }


def test_the_description_can_be_shown_on_the_package_index(built: Path) -> None:
    shown = run([sys.executable, "-m", "twine", "check", "--strict", *sorted(built.iterdir())])
    assert shown.count("PASSED") == 2


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    ours = {
        file.relative_to(PACKAGE.parent).as_posix()
        for file in PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc"
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == ours
    assert {Path(name).suffix for name in packed} >= {".py", ".sql", ".typed"}


def test_the_source_archive_has_what_a_packager_needs(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "tests/conftest.py"} <= names
    assert [name for name in names if name.startswith((".venv", "dist/")) or name.endswith(".db")] == []


def test_an_empty_environment_can_run_tasks_in_a_file(python: Path, tmp_path: Path) -> None:
    assert run([python, "-I", "-c", PROGRAM, tmp_path / "tasks.db"]) == "42\n"


def test_the_command_is_installed_and_works_without_extras(python: Path, tmp_path: Path) -> None:
    command = python.with_name("taskmill")
    assert run([command, "--version"]) == f"taskmill {taskmill.__version__}\n"
    run([python, "-I", "-c", PROGRAM, tmp_path / "tasks.db"])
    assert "completed" in run([command, "status", tmp_path / "tasks.db"])


def test_an_extra_that_is_missing_is_named(python: Path) -> None:
    code = "import taskmill.metrics; from taskmill import Scheduler; taskmill.metrics.collector(Scheduler())"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "taskmill[metrics]" in done.stderr
