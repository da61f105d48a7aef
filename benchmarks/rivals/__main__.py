"""``python -m benchmarks.rivals``: run every contestant, then write the table and the chart of the documentation.

The rivals are installed into an environment of their own, ``.venvs/rivals`` (``--install``). One that cannot be
installed, or fails, is reported with the reason. Contestants take turns: each round runs all of them once, in an order
that is reversed from round to round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import taskmill
from benchmarks.measuring import ROOT, flush_to_disk, significant
from benchmarks.pg_server import bench_server, new_database
from benchmarks.rivals.contestants import CONTESTANTS, SLOTS, WORKLOADS, Contestant, Workload
from benchmarks.rivals.results import RAW, key_of, write_all

ENVIRONMENT = ROOT / ".venvs" / "rivals"
ORIGINAL = Path(__file__).with_name("original")
LIMIT = 150
"""Seconds that one program may take."""


class Run:
    """One run of all contestants."""

    def __init__(self, python: Path, folder: Path, server: Any, *, quick: bool) -> None:
        self._python = python
        self._folder = folder
        self._server = server
        self._tasks: dict[Workload, int] = {
            "drain": 400 if quick else 4_000,
            "submit": 100 if quick else 1_000,
            "latency": 15 if quick else 60,
        }
        self._number = 0
        self._program: Path | None = None
        self.results: dict[str, dict[str, Any]] = {key_of(one): {} for one in CONTESTANTS}

    def look_up(self, *, build: bool) -> None:
        """Note the version of each contestant, or why it is absent."""
        for one in CONTESTANTS:
            found = self.results[key_of(one)]
            try:
                found["version"] = self._original(build=build) if one.module is None else self._version(one)
            except (subprocess.SubprocessError, OSError) as wrong:
                found["absent"] = _reason(wrong)

    def _version(self, one: Contestant) -> str:
        if one.package == "taskmill":
            return taskmill.__version__
        ask = f"from importlib.metadata import version; print(version({one.package!r}))"
        return self._output([self._python, "-c", ask])

    def _original(self, *, build: bool) -> str:
        """Build the program that runs the Rust original and return the version of its crate."""
        if shutil.which("cargo") is None:
            raise FileNotFoundError("cargo is not installed")
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / ".venvs" / "original"))
        program = target / "release" / "original"
        if build:
            command = ["cargo", "build", "--release", "--quiet", "--target-dir", str(target)]
            subprocess.run(command, cwd=ORIGINAL, check=True, capture_output=True, text=True, timeout=1800)
        if not program.exists():
            raise FileNotFoundError("its program was not built; run with --install")
        self._program = program
        line = next(line for line in (ORIGINAL / "Cargo.toml").read_text().splitlines() if "taskmill" in line)
        return line.split('"')[1].removeprefix("=")

    def measure(self, one: Contestant, workload: Workload) -> None:
        """Run one contestant once, unless it is absent or has failed before."""
        found = self.results[key_of(one)]
        if "absent" in found or isinstance(found.get(workload), str):
            return
        tasks = max(5, round(self._tasks[workload] * (1 if workload == "latency" else one.share)))
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        where = one.prefix + str(folder / "tasks.db") if one.place == "file" else new_database(self._server)
        program = (
            [self._program] if one.module is None else [self._python, "-m", "benchmarks.rivals.program", one.module]
        )
        flush_to_disk()
        try:
            value = float(self._output([*program, workload, where, str(tasks), str(SLOTS)]).split()[-1])
        except (subprocess.SubprocessError, ValueError, IndexError) as wrong:
            found[workload] = f"failed: {_reason(wrong)}"
            print(f"{key_of(one)} {workload}: {found[workload]}", file=sys.stderr)
        else:
            found.setdefault(workload, []).append(significant(value))
            print(f"{key_of(one)} {workload}: {value:.4g}", flush=True)
        finally:
            shutil.rmtree(folder)

    def _output(self, command: list[Any]) -> str:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=LIMIT, cwd=ROOT, env=environment
        )
        return done.stdout.strip()


def _reason(wrong: Exception) -> str:
    """Return the last line that a failed program has printed, or what else went wrong."""
    if isinstance(wrong, subprocess.TimeoutExpired):
        return f"no result within {wrong.timeout:g} s"
    if isinstance(wrong, subprocess.CalledProcessError) and wrong.stderr and wrong.stderr.strip():
        return str(wrong.stderr).strip().splitlines()[-1][:120]
    return str(wrong)[:120]


def install(python: Path) -> None:
    """Install each rival on its own, so that one that cannot be installed leaves the others."""
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "-e", f"{ROOT}[rivals]"], check=False).returncode == 0:
        return
    subprocess.run([*pip, "-e", f"{ROOT}[postgres]"], check=True)
    for package in sorted({one.package for one in CONTESTANTS if one.module and one.package != "taskmill"}):
        if subprocess.run([*pip, "--pre", package], check=False).returncode:
            print(f"{package} cannot be installed", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description="Compare taskmill with rivals.")
    parser.add_argument("--quick", action="store_true", help="few tasks and rounds; numbers are rough")
    parser.add_argument("--rounds", type=int, help="rounds; 5, or 2 with --quick")
    parser.add_argument("--install", action="store_true", help="install the rivals and build the Rust original first")
    parser.add_argument("--python", type=Path, default=ENVIRONMENT / "bin" / "python", help="the rivals' interpreter")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), help="where the files go for the time being")
    parser.add_argument("--draw", action="store_true", help="only write the page and the chart again")
    arguments = parser.parse_args()
    if arguments.draw:
        write_all(json.loads(RAW.read_text(encoding="utf-8")))
        return 0
    load_at_start = os.getloadavg()[0]
    if arguments.install:
        install(arguments.python)
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "quick": arguments.quick,
        "rounds": rounds,
        "load_at_start": load_at_start,
        "processors": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    folder = Path(tempfile.mkdtemp(prefix="rivals-", dir=arguments.dir))
    try:
        with bench_server() as server:
            run = Run(arguments.python, folder, server, quick=arguments.quick)
            run.look_up(build=arguments.install)
            for number in range(rounds):
                for workload in WORKLOADS:
                    for one in CONTESTANTS if number % 2 == 0 else reversed(CONTESTANTS):
                        run.measure(one, workload)
    finally:
        shutil.rmtree(folder)
    write_all({"about": about, "results": run.results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
