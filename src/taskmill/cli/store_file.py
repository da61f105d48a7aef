"""The FILE of a command: finds, checks and opens it, and never creates one.

A scheduler creates a missing database, which is right for programs and wrong here: a mistyped name must not create a
new database, and another program's database must not gain our tables.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taskmill.cli.output import WRONG, Refusal
from taskmill.reading import Reader

if TYPE_CHECKING:
    from taskmill import Scheduler

VARIABLE = "TASKMILL_STORE"
SCHEMA_TABLE = "taskmill_schema"


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help=f"the database (default: ${VARIABLE})")


def add_file_and_ids(parser: argparse.ArgumentParser, ids: str) -> None:
    parser.add_argument(
        "file_and_ids",
        nargs="+",
        metavar="FILE ID" if ids == "one" else "FILE ID...",
        help=f"the database (may be left out when ${VARIABLE} is set), then the id{'' if ids == 'one' else 's'}",
    )


def chosen_file(given: str | None) -> str:
    """Return the given FILE, else the environment's; raise ``Refusal`` unless it is a taskmill database."""
    file = given or os.environ.get(VARIABLE, "")
    if not file:
        raise Refusal(f"no store is given: name a FILE or an address, or set {VARIABLE}", WRONG)
    if "://" not in file:
        _check(file)
    return file


def chosen_file_and_ids(words: list[str]) -> tuple[str, list[int]]:
    """Split FILE and ids: a first word that is not a number is the FILE. A file named ``12`` is written ``./12``."""
    given = None if words[0].isascii() and words[0].isdigit() else words[0]
    ids = words if given is None else words[1:]
    for word in ids:
        if not (word.isascii() and word.isdigit()):
            raise Refusal(f"an id is a whole number, got {word!r}", WRONG)
    if not ids:
        raise Refusal("give the id of a task after FILE", WRONG)
    if any(int(word) > 2**63 - 1 for word in ids):
        raise Refusal("an id has at most 19 digits", WRONG)
    return chosen_file(given), [int(word) for word in ids]


def chosen_file_and_id(words: list[str], verb: str, takes: str = "one id") -> tuple[str, int]:
    """Split FILE and id, for a command about one task."""
    file, ids = chosen_file_and_ids(words)
    if len(ids) != 1:
        raise Refusal(f"{verb} takes {takes}", WRONG)
    return file, ids[0]


def shown(file: str) -> str:
    """Return an address without its password; a file name as it is."""
    if "://" not in file:
        return file
    return re.sub(r"(?<=[?&])(password|sslpassword)=[^&]*", r"\1=***", re.sub(r"(://[^:/@]*):[^@/]*@", r"\1@", file))


@contextlib.asynccontextmanager
async def looking(file: str) -> AsyncGenerator[Reader]:
    """Open a store for reading: nothing in it changes, not even by being opened."""
    async with Reader(file) as reader:
        yield reader


@contextlib.asynccontextmanager
async def opened(file: str) -> AsyncGenerator[Scheduler]:
    """Open a scheduler that changes tasks or settings; it does not dispatch, and it does not prune history."""
    from taskmill import Scheduler

    async with Scheduler(_existing(file), retention=None) as scheduler:
        yield scheduler


def _existing(file: str) -> str:
    """Return the store's name, with ``create=off`` for a database; a file was checked before."""
    return f"{file}{'&' if '?' in file else '?'}create=off" if "://" in file else file


async def dispatcher_of(reader: Reader | Scheduler) -> str | None:
    """Return the process that dispatches the store, or ``None``."""
    process = (await reader.facts())["dispatcher"]
    return None if process is None else f"process {process}"


def _check(file: str) -> None:
    path = Path(file)
    if path.is_dir():
        raise Refusal(f"{file} is a folder, not a database file", WRONG)
    try:
        with path.open("rb") as reading:
            header = reading.read(16)
    except FileNotFoundError:
        raise Refusal(f"{file} does not exist", WRONG) from None
    except OSError as wrong:
        raise Refusal(f"{file} cannot be read: {wrong.strerror}", WRONG) from None
    if header != b"SQLite format 3\0":
        raise Refusal(f"{file} is not an SQLite database", WRONG)
    if not _has_our_tables(path):
        raise Refusal(f"{file} is an SQLite database, but taskmill's tables are not in it", WRONG)


def _has_our_tables(path: Path) -> bool:
    """True if the name of our schema table is in the file, or in the write-ahead log beside it.

    Reading bytes takes no lock and changes nothing. A taskmill file has the name in its first pages; only a file of
    another program is read to its end.
    """
    needles = [SCHEMA_TABLE.encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be")]
    log = path.with_name(path.name + "-wal")
    return any(_contains(file, needles) for file in (path, log) if file.exists())


def _contains(file: Path, needles: Sequence[bytes]) -> bool:
    overlap = max(map(len, needles)) - 1
    kept = b""
    with file.open("rb") as reading:
        while piece := reading.read(1 << 20):
            text = kept + piece
            if any(needle in text for needle in needles):
                return True
            kept = text[-overlap:]
    return False
