"""``python -m benchmarks``: measure, print a table, write ``bench.json``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import taskmill
from benchmarks.measuring import Report, Settings
from taskmill.store.sqlite.connection import sqlite_module, sqlite_version

MEASUREMENTS = {
    "import": "import_time",
    "e2e": "end_to_end",
    "submit": "concurrent_submit",
    "keyed": "keyed_submit",
    "drain": "drain_against_huey",
    "latency": "latency",
    "waits": "short_waits",
    "urgent": "urgent",
    "busy": "busy_submit",
    "depth": "depth",
    "sweep": "sweep",
    "due": "due_stream",
    "resume": "large_resume",
    "answers": "answers",
    "simulate": "simulate",
    "keyed_depth": "keyed_depth",
    "memory": "memory",
    "open": "opening",
    "chain": "chain",
    "fan": "fan_out",
    "tree": "tree_cancel",
    "fair": "fairness",
    "io": "io_gate",
    "progress": "progress_reports",
    "cron": "cron_idle",
    "web": "web",
    "pg": "postgres",
    "pg_drain": "pg_drain",
    "pg_depth": "pg_depth",
    "pg_answers": "pg_answers",
    "pg_nodes": "pg_nodes",
    "pg_latency": "pg_latency",
    "growth": "growth",
}
"""The name of each measurement and the module whose ``measure`` does it."""
BY_DEFAULT = [name for name in MEASUREMENTS if name != "growth"]
"""The measurements that run if none is named."""
RESULTS = Path("bench.json")


def main() -> int:
    arguments = _arguments()
    parent: Path = arguments.dir
    _refuse_memory_disk(parent)
    folder = Path(tempfile.mkdtemp(prefix="taskmill-bench-", dir=parent))
    settings = Settings(folder, quick=arguments.quick)
    reports: dict[str, Report] = {}
    about: dict[str, Any] = _facts(folder, arguments.quick)
    try:
        for name in arguments.only:
            began = time.perf_counter()
            print(f"{name} …", flush=True)
            module = importlib.import_module(f"benchmarks.{MEASUREMENTS[name]}")
            reports[name] = module.measure(settings)
            took = round(time.perf_counter() - began, 1)
            about[name] = {**reports[name].about, "took_s": took, "date": _now()}
    finally:
        shutil.rmtree(folder)
    _print_table(reports)
    numbers = {key: value for report in reports.values() for key, value in report.numbers.items()}
    before = _measured_before()
    if set(BY_DEFAULT) <= set(arguments.only):
        # Drop the numbers that no measurement returns any more.
        before = {"about": {"growth": before.get("about", {}).get("growth", {})}}
    found = {**before, **numbers, "about": {**before.get("about", {}), **about}}
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _measured_before() -> dict[str, Any]:
    """Return the numbers of earlier runs: a run of some measurements keeps those of the others."""
    if not RESULTS.exists():
        return {}
    before: dict[str, Any] = json.loads(RESULTS.read_text())
    return before


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", type=_names, default=BY_DEFAULT, help=f"some of {','.join(MEASUREMENTS)}")
    parser.add_argument("--quick", action="store_true", help="fewer tasks and rounds; numbers are rough")
    parser.add_argument(
        "--dir", type=Path, default=Path.cwd(), help="where the databases go for the time being; a real disk"
    )
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose from {', '.join(MEASUREMENTS)}")
    return names


def _refuse_memory_disk(folder: Path) -> None:
    if (kind := _filesystem(folder)) in ("tmpfs", "ramfs"):
        sys.exit(f"{folder} is {kind}: an fsync costs nothing there; give --dir on a real disk")


def _filesystem(folder: Path) -> str:
    """Return the type of the file system that holds ``folder``, as far as the kernel reports it."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    here = folder.resolve()
    holding = [fields for fields in mounts if here.is_relative_to(fields[1])]
    return max(holding, key=lambda fields: len(fields[1]))[2] if holding else "unknown"


def _facts(folder: Path, quick: bool) -> dict[str, Any]:
    return {
        "date": _now(),
        "quick": quick,
        "durability": "full",
        "machine": platform.machine(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load_at_start": os.getloadavg()[0],
        "filesystem": _filesystem(folder),
        "python": platform.python_version(),
        "sqlite_module": sqlite_module(),
        "sqlite": ".".join(map(str, sqlite_version())),
        "msgspec": msgspec.__version__,
        "taskmill": taskmill.__version__,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _print_table(reports: dict[str, Report]) -> None:
    print(f"\n{'number':<38}{'value':>10}   {'target':<9}")
    for report in reports.values():
        for name, value in report.numbers.items():
            target = report.targets.get(name)
            judged = "" if target is None else "met" if target.is_met_by(value) else "MISSED"
            print(f"{name:<38}{value:>10.4g}   {target or ''!s:<9} {judged}")


if __name__ == "__main__":
    sys.exit(main())
