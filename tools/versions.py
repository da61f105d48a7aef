"""Run the tests with every version of Python from 3.11 on that is on this machine.

    python tools/versions.py [--only "3.12 3.13"] [--workers 2] [pytest arguments]

Interpreters are looked for on PATH and among the versions of pyenv and uv. Each gets an environment of its own in
``.venvs/``, which is installed again when ``pyproject.toml`` changes. The summary at the end also lists versions that
``pyproject.toml`` names and that were not found. The exit status is 0 if the tests passed with each version that was
found.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venvs"
EXTRAS = "dev,bench"
KNOWN = [f"3.{minor}" for minor in range(11, 20)]
MANAGED = ("~/.pyenv/versions/*/bin/python", "~/.local/share/uv/python/cpython-*/bin/python3")
_ASK = "import sys; print(*sys.version_info[:3], sys.version_info.releaselevel, sys.implementation.name)"


class Interpreter(NamedTuple):
    """One installed interpreter."""

    release: tuple[int, int, int]
    path: Path

    @property
    def version(self) -> str:
        """Return the version without the patch level, such as ``3.12``."""
        return f"{self.release[0]}.{self.release[1]}"


class Result(NamedTuple):
    """The result of one version."""

    version: str
    passed: bool | None
    """None if there is no interpreter for it."""
    text: str


def supported_versions(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the versions of Python that the classifiers name."""
    classifiers: list[str] = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["classifiers"]
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in classifiers]
    return sorted((match[1] for match in found if match), key=_as_numbers)


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def candidates(versions: Iterable[str], path: str) -> Iterator[Path]:
    """Yield files that may be interpreters: ``python3.x`` in each folder of PATH, then those of pyenv and uv."""
    for folder in path.split(os.pathsep):
        for version in versions:
            if folder and (file := Path(folder) / f"python{version}").exists():
                yield file
    for pattern in MANAGED:
        start = Path(pattern).expanduser()
        above = Path(*start.parts[: start.parts.index(next(part for part in start.parts if "*" in part))])
        yield from sorted(above.glob(str(start.relative_to(above))))


def examined(file: Path) -> Interpreter | None:
    """Return the interpreter in a file; None if it does not run, such as a shim, or is not a released CPython."""
    try:
        done = subprocess.run([file, "-c", _ASK], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    if done.returncode or len(words) != 5 or words[3:] != ["final", "cpython"]:
        return None
    return Interpreter((int(words[0]), int(words[1]), int(words[2])), file)


def newest_of_each(found: Iterable[Interpreter]) -> dict[str, Interpreter]:
    """Return the interpreter with the highest patch level of each version."""
    return {interpreter.version: interpreter for interpreter in sorted(found)}


def prepared(interpreter: Interpreter) -> Path:
    """Create or update the environment of an interpreter and return its Python."""
    folder = ENVIRONMENTS / interpreter.version
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / ".installed"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + str(interpreter).encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([interpreter.path, "-m", "venv", "--clear", folder], check=True)
        install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-e", f"{ROOT}[{EXTRAS}]"], check=True)
        stamp.write_text(wanted)
    return python


def tested(interpreter: Interpreter, arguments: Sequence[str]) -> Result:
    """Run the tests with an interpreter and show what they print."""
    name = ".".join(map(str, interpreter.release))
    print(f"== Python {name} ({interpreter.path})", flush=True)
    began = time.monotonic()
    try:
        python = prepared(interpreter)
    except subprocess.CalledProcessError as wrong:
        return Result(name, passed=False, text=f"not installed: exit status {wrong.returncode} of {wrong.cmd[0]}")
    done = subprocess.Popen([python, "-m", "pytest", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    last = ""
    assert done.stdout is not None
    for line in done.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    return Result(name, passed=done.wait() == 0, text=f"{last} (with installation {time.monotonic() - began:.0f} s)")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests with every version of Python on this machine.")
    parser.add_argument("--only", default="", help='versions, such as "3.12 3.13"; all by default')
    parser.add_argument("--workers", default="auto", help="processes that pytest uses")
    parser.add_argument("tests", nargs="*", help="arguments of pytest; the whole suite by default")
    arguments, more = parser.parse_known_args()
    only = re.findall(r"[^\s,]+", arguments.only)
    if unknown := [version for version in only if version not in KNOWN]:
        parser.error(f"not supported: {', '.join(unknown)}; give versions from {KNOWN[0]} on, without a patch level")
    found = newest_of_each(filter(None, map(examined, candidates(only or KNOWN, os.environ.get("PATH", "")))))
    wanted = only or sorted({*supported_versions(), *found} & set(KNOWN), key=_as_numbers)
    options = ["-n", arguments.workers, "--dist", "worksteal", *more, *arguments.tests]
    results = [
        tested(found[version], options) if version in found else Result(version, passed=None, text="not found")
        for version in wanted
    ]
    print("\n== Summary")
    for result in results:
        word = {True: "passed", False: "FAILED", None: "-"}[result.passed]
        print(f"{result.version:<8} {word:<7} {result.text}")
    return 0 if any(result.passed for result in results) and not any(r.passed is False for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
