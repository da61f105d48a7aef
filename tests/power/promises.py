"""The guarantees given before a cut, by the notes in the recording, and those that a store breaks.

A complaint begins with ``lost`` if something acknowledged is missing, and with ``broken`` if the stored state is
impossible: a batch in parts, a task that was refused, two active occurrences of a series, or none.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Stored:
    """All rows of a file that is in use."""

    def __init__(self, file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.row_factory = sqlite3.Row
            (self.integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
            self.active = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM taskmill_task")}
            self.ended = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM taskmill_history")}
            self.series = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM taskmill_series")}
        self.rows = {**self.active, **self.ended}
        self.by_marker: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows.values():
            self.by_marker[json.loads(row["payload"])["marker"]].append(row)


@dataclass
class Register:
    """Something that has one value at a time: the last one granted, and those requested since."""

    granted: Any = None
    is_granted: bool = False
    asked_since: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """The settings of the groups in a store."""

    paused: frozenset[str]
    weights: Mapping[str, float]
    caps: Mapping[str, int | None]


class Promises:
    """Reads the notes of a recording one by one; at a cut, it returns what a store breaks."""

    def __init__(self) -> None:
        self.checked = 0
        self.highest_id = 0
        self._open_asks: dict[str, list[str]] = {}
        """Submissions that have not returned yet, by their first marker."""
        self._asked: set[str] = set()
        self._refused: set[str] = set()
        self._acknowledged: dict[str, int] = {}
        self._replaced: dict[int, str] = {}
        """The id of a task, and the marker of its replacement."""
        self._to_cancel: set[int] = set()
        self._cancelled: set[int] = set()
        self._ended: dict[int, tuple[str, Any]] = {}
        self._registers: dict[str, Register] = defaultdict(Register)

    def hear(self, note: Mapping[str, Any]) -> None:
        match note["fact"]:
            case "ask":
                self._open_asks[note["markers"][0]] = note["markers"]
                self._asked.update(note["markers"])
            case "refused":
                del self._open_asks[note["markers"][0]]
                self._refused.update(note["markers"])
            case "ack":
                del self._open_asks[note["markers"][0]]
                self._acknowledged.update(zip(note["markers"], note["ids"], strict=True))
                self.highest_id = max(self.highest_id, *note["ids"])
                for marker, replaced in zip(note["markers"], note["replaced"], strict=True):
                    if replaced is not None:
                        self._replaced[replaced] = marker
            case "cancelling":
                self._to_cancel.add(note["id"])
            case "cancelled":
                if note["answer"]:
                    self._cancelled.add(note["id"])
            case "ended":
                self._ended[note["id"]] = note["ending"], note["result"]
            case "failed":
                pass  # a change without an answer counts as requested
            case "asking":
                self._registers[note["register"]].asked_since.append(note["value"])
            case "granted":
                register = self._registers[note["register"]]
                register.granted, register.is_granted = note["value"], True
                register.asked_since.clear()
            case unknown:
                raise ValueError(f"the recording has an unknown fact: {unknown}")

    def was_granted(self, register: str) -> bool:
        return self._registers[register].is_granted

    # Guarantees as soon as a store is opened

    def broken_by(self, stored: Stored, setting: Setting) -> Iterator[str]:
        yield from self._integrity(stored)
        yield from self._submissions(stored)
        yield from self._replacements(stored)
        yield from self._endings(stored)
        yield from self._values(stored, setting)
        yield from self._occurrences(stored)

    def _integrity(self, stored: Stored) -> Iterator[str]:
        self.checked += 1
        if stored.integrity != "ok":
            yield f"broken: the file is damaged: {stored.integrity}"

    def _submissions(self, stored: Stored) -> Iterator[str]:
        self.checked += len(self._acknowledged) + len(self._refused) + len(self._open_asks)
        for marker, id in self._acknowledged.items():
            row = stored.rows.get(id)
            if row is None:
                yield f"lost: task {id} ({marker}) was acknowledged"
            elif json.loads(row["payload"])["marker"] != marker:
                yield f"broken: task {id} was {marker} and is {row['payload']}"
        for marker, rows in stored.by_marker.items():
            if marker not in self._asked:
                yield f"broken: {marker} was never asked for"
            if marker in self._refused:
                yield f"broken: {marker} was refused, and is stored"
            if len(rows) > 1 and not all(row["series_id"] for row in rows):
                yield f"broken: {marker} is stored {len(rows)} times"
        for markers in self._open_asks.values():
            there = sum(marker in stored.by_marker for marker in markers)
            if there not in (0, len(markers)):
                yield f"broken: {there} of {len(markers)} tasks of one batch are stored"

    def _replacements(self, stored: Stored) -> Iterator[str]:
        """A replaced task is stopping or has ended, and of the tasks with a key at most one holds it."""
        self.checked += len(self._replaced)
        for id, marker in self._replaced.items():
            row = stored.rows.get(id)
            if row is not None and row.get("ending") is None and row["stop"] is None:
                yield f"lost: task {id} was replaced by {marker}, and is still {row['status']}"
        of_key: dict[str, list[Row]] = defaultdict(list)
        for row in sorted(stored.rows.values(), key=lambda row: int(row["id"])):
            if row["key"] is not None:
                of_key[row["key"]].append(row)
        self.checked += len(of_key)
        for key, rows in of_key.items():
            if rows[-1].get("ending") == "superseded":
                yield f"broken: the last task with the key {key} was superseded by none"
            if sum(row.get("ending") is None and row["stop"] is None for row in rows) > 1:
                yield f"broken: two tasks hold the key {key}"

    def _endings(self, stored: Stored) -> Iterator[str]:
        self.checked += len(self._ended) + len(self._cancelled)
        for id, (ending, result) in self._ended.items():
            row = stored.ended.get(id)
            if row is None:
                yield f"lost: task {id} was announced as {ending}"
            elif row["ending"] != ending:
                yield f"broken: task {id} was announced as {ending}, and is {row['ending']}"
            elif ending == "completed" and json.loads(row["result"]) != result:
                yield f"broken: the result of task {id} was {result}, and is {row['result']}"
        for id in self._cancelled:
            row = stored.rows.get(id)
            if row is None:
                yield f"lost: task {id} was cancelled, and is not there"
            elif row["ending"] not in _stopped(row) if "ending" in row else row["stop"] is None:
                yield f"lost: task {id} was cancelled, and is {row.get('ending') or row['status']}"

    def _values(self, stored: Stored, setting: Setting) -> Iterator[str]:
        for name, register in self._registers.items():
            if not register.is_granted:
                continue
            self.checked += 1
            found = _value(name, stored, setting)
            allowed = [register.granted, *register.asked_since]
            if found is not GONE and found not in allowed:
                yield f"lost: {name} was set to {register.granted}, and is {found}"

    def _occurrences(self, stored: Stored) -> Iterator[str]:
        self.checked += len(stored.series)
        # A stopping occurrence stays active until it has ended; only then is the next one created.
        active = Counter(row["series_id"] for row in stored.active.values())
        for id in stored.series:
            if active[id] != 1:
                yield f"broken: series {id} has {active[id]} active occurrences"

    # Guarantees when everything has run

    def broken_at_the_end(self, stored: Stored) -> Iterator[str]:
        yield from self._integrity(stored)
        self.checked += len(stored.rows)
        for id, row in stored.active.items():
            if row["series_id"] is None:
                yield f"broken: task {id} never ends; it is {row['status']}"
        for id, row in stored.ended.items():
            if row["ending"] not in self._possible_endings(id, row):
                yield f"broken: task {id} ended as {row['ending']}: {row['error']}"
            elif row["ending"] == "completed" and json.loads(row["result"]) != json.loads(row["payload"])["marker"]:
                yield f"broken: task {id} has the result {row['result']}"
        for id in self._cancelled:
            row = stored.rows.get(id, {})
            if row and row.get("ending") not in _stopped(row):
                yield f"lost: task {id} was cancelled, and ended as {row.get('ending')}"

    def _possible_endings(self, id: int, row: Row) -> set[str]:
        possible = {"failed"} if row["type"] == "power::doomed" else {"completed"}
        if row["key"] is not None:
            possible.add("superseded")
        if id in self._to_cancel or row["parent_id"] is not None or row["series_id"] is not None:
            possible.add("cancelled")
        return possible


def _stopped(row: Row) -> set[str]:
    """Return how a cancelled task may end: one with a key may have been superseded before."""
    return {"cancelled"} if row["key"] is None else {"cancelled", "superseded"}


GONE = object()
"""The value of a register whose task has ended: it is not checked."""


def _value(name: str, stored: Stored, setting: Setting) -> Any:
    kind, _, of = name.partition(" ")
    match kind:
        case "paused":
            return of in setting.paused
        case "weight":
            return setting.weights.get(of)
        case "cap":
            return setting.caps.get(of)
        case "saved":
            row = stored.rows.get(int(of))
            return json.loads(row["saved"] or "{}").get("step") if row else None
        case "priority":
            row = stored.active.get(int(of))
            return row["priority"] if row else GONE
        case "series":
            first = stored.rows.get(int(of))
            series = stored.series.get(first["series_id"]) if first else None
            return "ended" if series is None else "paused" if series["paused"] else "runs"
        case unknown:
            raise ValueError(unknown)
