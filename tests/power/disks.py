"""The possible contents of a disk after a power cut, derived from a recording that is cut at some moment.

The rules for every disk that is derived:

- Everything that a completed ``fsync`` or ``fdatasync`` covers is there: the content, and the size needed to read it.
- Every other write may be there or not, sector by sector and in any order, and in any of the versions it
  had since. A size may have grown without its content, and content may be there without the size.
- A name that was created, removed or renamed is certain only after a sync of the folder.
- After a failed sync the pages it should have written are marked clean: a later sync does not write them, unless they
  were written again.

A sector of 512 bytes is written as a whole or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from tests.power.recording import FOLDER, Kind, Record, Synced

T = TypeVar("T")

SECTOR = 512
PAGE = 8
"""Sectors in a page of the operating system's cache."""
NOTHING = bytes(SECTOR)

Disk = Mapping[str, bytes]
"""File names and their contents."""


@dataclass(slots=True)
class Versions(Generic[T]):
    """A value that was certain at some time, and every later one with its position in the recording."""

    certain: T
    later: list[tuple[int, T]] = field(default_factory=list)

    @property
    def newest(self) -> T:
        return self.later[-1][1] if self.later else self.certain

    def add(self, at: int, value: T) -> None:
        self.later.append((at, value))

    def settle(self, until: int) -> None:
        """Make everything before ``until`` certain."""
        settled = 0
        while settled < len(self.later) and self.later[settled][0] < until:
            settled += 1
        if settled:
            self.certain = self.later[settled - 1][1]
            del self.later[:settled]

    def as_of(self, at: int) -> T:
        """Return the value if everything before ``at`` reached the disk, and nothing after it."""
        value = self.certain
        for came, later in self.later:
            if came >= at:
                break
            value = later
        return value


def found(folder: Path) -> Disk:
    """Return the content of a folder, without shared memory, which does not outlive its processes."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.endswith("-shm")}


class File:
    """The possible contents of one file on the disk."""

    def __init__(self, content: bytes = b"") -> None:
        self.size = Versions(len(content))
        self.sectors: dict[int, Versions[bytes]] = {}
        for number in range(0, len(content), SECTOR):
            self.sectors[number // SECTOR] = Versions(content[number : number + SECTOR].ljust(SECTOR, b"\0"))
        self._unsynced: set[int] = set()
        self._marked_clean: set[int] = set()
        """Pages that a failed sync has dropped."""

    def write(self, at: int, offset: int, data: bytes) -> None:
        done = 0
        while done < len(data):
            number, begin = divmod(offset + done, SECTOR)
            piece = data[done : done + SECTOR - begin]
            self._change(at, number, begin, piece)
            done += len(piece)
        if offset + len(data) > self.size.newest:
            self.size.add(at, offset + len(data))

    def resize(self, at: int, size: int) -> None:
        if size < self.size.newest:
            number, begin = divmod(size, SECTOR)
            if begin and number in self.sectors:
                self._change(at, number, begin, NOTHING[begin:])
                number += 1
            for later in [sector for sector in self.sectors if sector >= number]:
                self._change(at, later, 0, NOTHING)
        self.size.add(at, size)

    def _change(self, at: int, number: int, begin: int, piece: bytes) -> None:
        sector = self.sectors.setdefault(number, Versions(NOTHING))
        old = sector.newest
        sector.add(at, old[:begin] + piece + old[begin + len(piece) :])
        self._unsynced.add(number)
        self._marked_clean.discard(number // PAGE)

    def synced(self, begun: int) -> None:
        self.size.settle(begun)
        for number in list(self._unsynced):
            if number // PAGE not in self._marked_clean:
                sector = self.sectors[number]
                sector.settle(begun)
                if not sector.later:
                    self._unsynced.discard(number)

    def sync_failed(self, begun: int) -> None:
        written_since = {number // PAGE for number in self._unsynced if self.sectors[number].later[-1][0] >= begun}
        self._marked_clean |= {number // PAGE for number in self._unsynced} - written_since


class Folder:
    """The files of one folder and their names, updated from a recording."""

    def __init__(self, start: Path) -> None:
        """Start with the present content, all of it safely on the disk."""
        self._files: dict[int, File] = {}
        self.names: dict[str, Versions[File | None]] = {}
        for name, content in found(start).items():
            file = self._files.setdefault((start / name).stat().st_ino, File(content))
            self.names[name] = Versions(file)

    def apply(self, record: Record) -> None:
        at = record.at
        match record.kind:
            case Kind.CREATE:
                # The inode may have belonged to a deleted file.
                self._files[record.file] = File()
                self._name(at, record.names[0], self._files[record.file])
            case Kind.WRITE:
                self._files[record.file].write(at, record.first, record.data)
            case Kind.SIZE:
                self._files[record.file].resize(at, record.first)
            case Kind.UNLINK:
                self._name(at, record.names[0], None)
            case Kind.RENAME | Kind.LINK:
                old, new = record.names
                self._name(at, new, self.names[old].newest)
                if record.kind is Kind.RENAME:
                    self._name(at, old, None)
            case Kind.SYNC_ENDS if record.second == Synced.YES:
                if record.file == FOLDER:
                    for versions in self.names.values():
                        versions.settle(record.first)
                else:
                    self._files[record.file].synced(record.first)
            case Kind.SYNC_ENDS if record.second == Synced.LOST:
                self._files[record.file].sync_failed(record.first)
            case _:
                pass

    def _name(self, at: int, name: str, file: File | None) -> None:
        self.names.setdefault(name, Versions(None)).add(at, file)

    def places(self) -> list[int]:
        """Return the positions of the changes that may be lost."""
        found = {at for versions in self.names.values() for at, _ in versions.later}
        for file in self._named():
            found.update(at for at, _ in file.size.later)
            found.update(at for sector in file.sectors.values() for at, _ in sector.later)
        return sorted(found)

    def _named(self) -> Iterable[File]:
        for versions in self.names.values():
            for file in (versions.certain, *(file for _, file in versions.later)):
                if file is not None:
                    yield file


@dataclass(frozen=True)
class Taste:
    """How one disk chooses among the possible versions: by sector, by size, by name."""

    sector: Callable[[File, int, Versions[bytes]], bytes]
    size: Callable[[File, Versions[int]], int]
    name: Callable[[Versions[File | None]], File | None]


def _certain(*given: Any) -> Any:
    return given[-1].certain


def _newest(*given: Any) -> Any:
    return given[-1].newest


def _lost(chance: random.Random, folder: Folder) -> Taste:
    """Lose everything that was not synced."""
    return Taste(_certain, _certain, _certain)


def _kept(chance: random.Random, folder: Folder) -> Taste:
    """Keep everything, synced or not."""
    return Taste(_newest, _newest, _newest)


def _ordered(chance: random.Random, folder: Folder) -> Taste:
    """Keep everything up to some moment, and nothing after it."""
    until = chance.choice([*folder.places(), 1 << 62])

    def as_of(*given: Any) -> Any:
        return given[-1].as_of(until)

    return Taste(as_of, as_of, as_of)


def _torn(chance: random.Random, folder: Folder) -> Taste:
    """Choose for each sector, each size and each name separately."""
    kept = chance.choice([0.1, 0.5, 0.9, 0.98])

    def some(*given: Any) -> Any:
        versions: Versions[Any] = given[-1]
        if not versions.later or chance.random() < kept:
            return versions.newest
        return chance.choice([versions.certain, *(value for _, value in versions.later)])

    return Taste(some, some if chance.random() < 0.5 else _newest, some)


def _reordered(chance: random.Random, folder: Folder) -> Taste:
    """Keep each page as it was at a random moment."""
    moments = [*folder.places(), 1 << 62]
    of_page: dict[tuple[int, int], int] = {}

    def sector(file: File, number: int, versions: Versions[bytes]) -> bytes:
        if not versions.later:
            return versions.certain
        return versions.as_of(of_page.setdefault((id(file), number // PAGE), chance.choice(moments)))

    return Taste(sector, _newest, chance.choice([_newest, _certain]))


def _apart(chance: random.Random, folder: Folder) -> Taste:
    """Keep all writes of some files, and only the synced ones of others."""
    kept: dict[int, bool] = {}

    def of(file: File, *given: Any) -> Any:
        return (_newest if kept.setdefault(id(file), chance.random() < 0.5) else _certain)(*given)

    return Taste(of, of, chance.choice([_newest, _certain]))


def _grown(chance: random.Random, folder: Folder) -> Taste:
    """Give files their new size, with zeros in place of the content."""
    return Taste(_certain, _newest, _newest)


def _short(chance: random.Random, folder: Folder) -> Taste:
    """Write the content, but leave files at their synced size."""
    return Taste(_newest, _certain, _newest)


def _renamed(chance: random.Random, folder: Folder) -> Taste:
    """Keep all content, but each name as it was at some moment."""

    def name(versions: Versions[File | None]) -> File | None:
        return chance.choice([versions.certain, *(file for _, file in versions.later)])

    return Taste(_newest, _newest, name)


WAYS: Mapping[str, Callable[[random.Random, Folder], Taste]] = {
    "lost": _lost,
    "kept": _kept,
    "ordered": _ordered,
    "torn": _torn,
    "reordered": _reordered,
    "apart": _apart,
    "grown": _grown,
    "short": _short,
    "names": _renamed,
}


UNNAMED = " (deleted)"
"""How the system ends the name that it shows for a file without a name."""


def develop(folder: Folder, way: str, chance: random.Random) -> Disk:
    """Choose one of the possible disks."""
    taste = WAYS[way](chance, folder)
    disk: dict[str, bytes] = {}
    for name, versions in folder.names.items():
        file = taste.name(versions)
        # A file that was opened without a name is gone once its process has ended, unless it was given one.
        if file is not None and not name.endswith(UNNAMED):
            disk[name] = _content(file, taste)
    return disk


def _content(file: File, taste: Taste) -> bytes:
    size = taste.size(file, file.size)
    sectors = [NOTHING] * -(-size // SECTOR)
    for number, versions in file.sectors.items():
        if number < len(sectors):
            sectors[number] = taste.sector(file, number, versions)
    return b"".join(sectors)[:size]
