"""A trial: record processes, cut the recording at many moments, derive disks from each, and judge them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.power.disks import WAYS, Disk, Folder, develop, found
from tests.power.judge import lay_out
from tests.power.promises import Promises
from tests.power.recorder import ROOT, SYNC_DELAY_US, environment
from tests.power.recording import Kind, records

DISKS_OF_A_RECORDING = 60
LONGEST_LIFE = 60
Judge = Callable[[Path, Promises], list[str]]
"""Returns what is wrong with a store, given the guarantees."""
ANSWERS = {"ack", "granted", "cancelled", "ended"}


@dataclass
class Figures:
    """The numbers of recordings, cuts, disks and guarantees that were checked, and the complaints."""

    recordings: int = 0
    cuts: int = 0
    disks: int = 0
    promises: int = 0
    complaints: list[str] = field(default_factory=list)

    def add(self, others: Figures) -> None:
        self.recordings += others.recordings
        self.cuts += others.cuts
        self.disks += others.disks
        self.promises += others.promises
        self.complaints += others.complaints

    def __str__(self) -> str:
        return (
            f"{self.recordings} recordings, {self.cuts} cuts, {self.disks} disks, "
            f"{self.promises} promises checked, {len(self.complaints)} broken"
        )


class Trial:
    """One recording and its disks. The disks are laid out where the recorded files were: stores know their paths."""

    def __init__(self, place: Path, seed: int) -> None:
        self.figures = Figures()
        self.chance = random.Random(seed)
        self.folder = Path(os.path.realpath(place)) / "disk"
        self.folder.mkdir()
        self.file = self.folder / "tasks.db"
        self._recording = self.folder.with_name("recording")
        self._start: Folder | None = None

    def record(self, *lives: Sequence[tuple[str, Any]], delay_us: int = SYNC_DELAY_US, fail: str = "") -> None:
        """Run groups of programs one after the other; the programs of one group run at the same time."""
        self._start, followed = Folder(self.folder), Folder(self.folder)
        recorded = environment(self.folder, self._recording, delay_us=delay_us, fail=fail)
        for life in lives:
            started = [_started(program, order, recorded) for program, order in life]
            for process in started:
                _, complaint = process.communicate(timeout=LONGEST_LIFE)
                assert process.returncode == 0, complaint
                assert "never retrieved" not in complaint, complaint
        for record in records(self._recording):
            followed.apply(record)
        assert develop(followed, "kept", self.chance) == found(self.folder), "the recording is incomplete"
        self.figures.recordings += 1

    def moments(self, number: int) -> set[int]:
        """Choose where to cut: two of three cuts right after an answer, the others anywhere."""
        answers = self.after(lambda note: note["fact"] in ANSWERS)
        chosen = set(self._some(sorted(answers), number * 2 // 3))
        others = [record.at for record in records(self._recording) if record.at not in chosen]
        return chosen | set(self._some(others, number - len(chosen)))

    def after(self, is_meant: Callable[[dict[str, Any]], bool]) -> set[int]:
        """Return the moments right after some notes."""
        return {record.at for record in records(self._recording) if record.kind is Kind.NOTE and is_meant(record.note)}

    def cuts(self, moments: set[int]) -> Iterator[tuple[Folder, Promises]]:
        """Replay the recording, and yield at each of the moments."""
        folder, self._start = self._start, None
        assert folder is not None, "a recording can be replayed only once"
        promises = Promises()
        for record in records(self._recording):
            folder.apply(record)
            if record.kind is Kind.NOTE:
                promises.hear(record.note)
            if record.at in moments:
                self.figures.cuts += 1
                yield folder, promises

    def _some(self, things: Sequence[Any], number: int) -> list[Any]:
        return self.chance.sample(things, min(number, len(things)))

    def disks(self, folder: Folder, ways: Sequence[str]) -> Iterator[tuple[str, Disk]]:
        """Derive a disk in each way, without duplicates at this cut."""
        seen: set[bytes] = set()
        for way in ways:
            disk = develop(folder, way, self.chance)
            print_of = hashlib.sha256(repr(sorted(disk.items())).encode()).digest()
            if print_of not in seen:
                seen.add(print_of)
                self.figures.disks += 1
                yield way, {**disk, **self._leftovers(disk)}

    def _leftovers(self, disk: Disk) -> Disk:
        """Add, sometimes, a file of shared memory with random content."""
        if self.chance.random() < 0.5:
            return {}
        return {f"{name}-shm": self.chance.randbytes(32 * 1024) for name in disk if name.endswith(".db")}

    def some_ways(self) -> list[str]:
        """Return the strictest way, which loses everything unsynced, and a random one."""
        return ["lost", self.chance.choice([way for way in WAYS if way != "lost"])]

    def judge_some(self, disks: int, judged: Judge) -> Figures:
        """Judge about so many disks, spread over as many cuts as needed."""
        return self.judge_at(self.moments(-(-disks // len(self.some_ways()))), self.some_ways, judged)

    def judge_at(self, moments: set[int], ways: Callable[[], Sequence[str]], judged: Judge) -> Figures:
        for folder, promises in self.cuts(moments):
            for way, disk in self.disks(folder, ways()):
                lay_out(disk, self.folder)
                for complaint in judged(self.file, promises):
                    self.figures.complaints.append(f"cut {self.figures.cuts}, {way}: {complaint}")
            self.figures.promises, promises.checked = self.figures.promises + promises.checked, 0
        return self.figures


def tried(
    place: Path,
    seed: int,
    disks: int,
    record: Callable[[Trial, int], Judge],
) -> Figures:
    """Judge so many disks of as many recordings as needed; ``record`` makes one, and returns its judge."""
    figures = Figures()
    for number in range(-(-disks // DISKS_OF_A_RECORDING)):
        own = place / str(number)
        own.mkdir()
        trial = Trial(own, seed + number)
        judged = record(trial, seed + number)
        figures.add(trial.judge_some(min(disks, DISKS_OF_A_RECORDING), judged))
        if figures.complaints:
            break
        shutil.rmtree(own)
    return figures


def _started(program: str, order: Any, recorded: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", program, json.dumps(order)], cwd=ROOT, env=recorded, stderr=subprocess.PIPE, text=True
    )
