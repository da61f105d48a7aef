"""The journal of the children of the crash tests: one JSON line per fact, on disk before the next step.

The journal is a separate file, so that no fault of the store can affect its evidence. Lines of several processes and
threads are appended whole; their order in the file is the order in which they were written. Only a kill in the middle
of a write leaves a part of a line. That process took no further step, so what it was about to write is left out.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def boot_time() -> float:
    """Return the seconds of a clock that all processes of this machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Journal:
    """The writing end, one per process."""

    def __init__(self, path: Path, who: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self.who = who

    def write(self, fact: str, **details: Any) -> None:
        line = json.dumps({"fact": fact, "who": self.who, "at": boot_time(), **details})
        # The first line break ends the part of a line that a killed process may have left.
        os.write(self._file, f"\n{line}\n".encode())
        os.fsync(self._file)


class JournalReader:
    """The reading end: each call returns the lines that are new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def news(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        # A line still being written by a living process is left for the next time.
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return [fact for line in whole.splitlines() if (fact := _fact(line)) is not None]


def _fact(line: bytes) -> dict[str, Any] | None:
    """Return the fact of a line; None for an empty line or a part of one."""
    try:
        fact: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return None
    return fact
