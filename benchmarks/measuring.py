"""The parts that all measurements share: settings, targets, interleaved rounds, medians, percentiles, scratch files.

A number from one machine says little; a ratio of two numbers measured side by side says more. So the sides
of a comparison run alternately in one process, the order is reversed each round, and the median of the
rounds counts.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Target:
    """The value that a number should have, or its bound."""

    relation: Literal[">=", "<=", "<"]
    limit: float

    def is_met_by(self, value: float) -> bool:
        match self.relation:
            case ">=":
                return value >= self.limit
            case "<=":
                return value <= self.limit
            case "<":
                return value < self.limit

    def __str__(self) -> str:
        return f"{self.relation} {self.limit:g}"


@dataclass(slots=True)
class Report:
    """The numbers of one measurement, their targets, and the raw values behind them."""

    numbers: dict[str, float] = field(default_factory=dict[str, float])
    targets: dict[str, Target] = field(default_factory=dict[str, Target])
    about: dict[str, Any] = field(default_factory=dict[str, Any])

    def add(self, name: str, value: float, target: Target | None = None) -> None:
        self.numbers[name] = significant(value)
        if target is not None:
            self.targets[name] = target

    def add_ratio(
        self, name: str, above: Sequence[float], below: Sequence[float], target: Target | None = None
    ) -> None:
        """Add the median of the rounds' own ratios as a number, and their spread to ``about``."""
        self.add(name, median_ratio(above, below), target)
        self.about[name] = summary(ratios(above, below))


class Settings:
    """How much to measure, and where."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.quick = quick
        self.tasks = 4_000 if quick else 20_000
        self.rounds = 3 if quick else 5
        self.backlog = 100_000 if quick else 1_000_000
        self.samples = 200 if quick else 600
        self._count = itertools.count(1)

    def new_file(self, stem: str) -> Path:
        """Return an unused name of a database, in a folder of its own."""
        folder = self.folder / f"{stem}-{next(self._count)}"
        folder.mkdir()
        return folder / "tasks.db"

    def discard(self, file: Path) -> None:
        shutil.rmtree(file.parent)


def interleaved(rounds: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run every side once per round, in alternating order; return the results of each, round by round."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        names = list(sides) if turn % 2 == 0 else list(reversed(list(sides)))
        for name in names:
            gc.collect()
            found[name].append(sides[name]())
    return found


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return the ratio of each round: a disturbance of a whole round slows both of its sides."""
    return [a / b for a, b in zip(above, below, strict=True)]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median of the rounds' own ratios."""
    return statistics.median(ratios(above, below))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least ``percent`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return the values of all rounds for the ``about`` part, behind their median and spread."""
    return {**spread(values), "rounds": [significant(value) for value in values]}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the quartiles and the extremes of values that are too many to list."""
    return {
        "median": significant(statistics.median(values)),
        "min": significant(min(values)),
        "p25": significant(percentile(values, 25)),
        "p75": significant(percentile(values, 75)),
        "max": significant(max(values)),
    }


def significant(value: float) -> float:
    """Round to four digits: more would suggest a precision that is not there."""
    return float(f"{value:.4g}")


def flush_to_disk() -> None:
    """Write everything that earlier steps left in the system's cache, so that the next step does not pay for it."""
    os.sync()


def run_child(arguments: Sequence[str], **environment: str) -> str:
    """Run a fresh interpreter with the same taskmill; return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**child_environment(), **environment},
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def child_environment() -> dict[str, str]:
    """Return the environment of a fresh interpreter; it uses compiled modules, as an installed program does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.setdefault("PYTHONPYCACHEPREFIX", os.path.join(tempfile.gettempdir(), "taskmill-compiled"))
    return environment
