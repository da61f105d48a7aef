"""Invariants of families, chains and series in the file, whenever their process died."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.crash.contents import FamilyContents, Row
from tests.crash.intervals import FOREVER, Witnesses
from tests.crash.journal import JournalReader


class FamilyRows:
    """The rows of one file after each death: no task waits for an ended one, every series has one active occurrence."""

    def __init__(self, file: Path, journal: Path, scratch: Path) -> None:
        self._file = file
        self._journal = JournalReader(journal)
        self._scratch = scratch
        self.witnesses = Witnesses()
        self.wrong: list[str] = []
        self.contents: FamilyContents
        self._handler_over: dict[int, int] = {}
        """Tasks whose handler was recorded as done, and its attempt."""
        self._history: dict[int, Row] = {}
        self._due: dict[int, int] = {}
        """When occurrences of series were due, if it was seen."""
        self._grid: dict[int, tuple[int, int]] = {}
        """For each series: the first occurrence that was seen, and the milliseconds between two."""

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    def check(self) -> None:
        self.witnesses.hear(self._journal.news())
        self.contents = contents = FamilyContents(self._file, self._scratch)
        self._expect(contents.integrity == "ok", f"integrity_check says {contents.integrity}")
        self._check_history()
        self._check_acknowledged()
        active, ended = contents.active, contents.ended
        live_children = Counter(row["parent_id"] for row in active.values() if row["parent_id"] is not None)
        open_edges: defaultdict[int, list[int]] = defaultdict(list)
        for task_id, on_id, is_open in contents.edges:
            if is_open:
                open_edges[task_id].append(on_id)
        for row in active.values():
            self._check_row(row, live_children[row["id"]], open_edges[row["id"]])
        for task_id, on_ids in open_edges.items():
            self._expect(task_id in active, f"task {task_id} has ended and depends on {on_ids} still")
        self._check_series_now()
        for id in [*ended, *active]:
            row = ended.get(id) or active[id]
            if row["series_id"] is not None and row["due_at"] is not None and row["attempt"] == 0:
                self._due.setdefault(id, row["due_at"])

    def _check_history(self) -> None:
        active, ended = self.contents.active, self.contents.ended
        both = active.keys() & ended.keys()
        self._expect(not both, f"both active and ended: {sorted(both)}")
        for id, row in self._history.items():
            self._expect(ended.get(id) == row, f"history of task {id} was {told(row)} and is {ended.get(id)}")
        self._history = ended
        kept = Counter((row["type"], row["group_name"], row["ending"]) for row in ended.values())
        tallied = {(type, group, ending): n for type, group, ending, _, n, _ in self.contents.tally if n}
        self._expect(kept == tallied, f"the tally says {tallied}, history {dict(kept)}")
        self._expect(
            len(active) + len(ended) == self.contents.sequence,
            f"{self.contents.sequence} ids were given; {len(ended)} ended and {len(active)} are active",
        )

    def _check_acknowledged(self) -> None:
        for line in self.witnesses.of("ack", "spawned"):
            lost = [id for id in line["ids"] if id not in self.contents.active and id not in self.contents.ended]
            self._expect(not lost, f"{lost} were acknowledged and are lost: {line}")

    def _check_row(self, row: Row, live_children: int, open_edges: list[int]) -> None:
        id, status, stop, parent_id = row["id"], row["status"], row["stop"], row["parent_id"]
        active = self.contents.active
        me = f"task {id} ({status}, stop {stop})"
        if row["finalizing"] or (status == "waiting" and stop is None):
            self._handler_over.setdefault(id, row["attempt"])
        self._expect(parent_id is None or parent_id in active, f"{me} has outlived its parent {parent_id}")
        self._expect(status != "waiting" or live_children > 0, f"{me} waits for no child")
        counted = row["children"] - row["children_ended"]
        self._expect(counted == live_children, f"{me} counts {counted} children of {live_children}")
        gate_id = row["gate_id"]
        self._expect(gate_id is None or gate_id in active, f"{me} waits behind {gate_id}, which has ended")
        ended = [on_id for on_id in open_edges if on_id not in active]
        self._expect(not ended, f"{me} waits for {ended}, which have ended")
        is_held_back = bool(open_edges or gate_id is not None or row["held"])
        if status == "blocked":
            self._expect(is_held_back, f"{me} is held back by nothing")
        elif status != "paused":
            self._expect(not is_held_back, f"{me} waits for {open_edges}, {gate_id}, held {row['held']}")
        if row["max_children"] is not None:
            let_in = [
                child["id"]
                for child in active.values()
                if child["parent_id"] == id and not child["held"] and child["status"] != "waiting" and not child["stop"]
            ]
            self._expect(len(let_in) <= row["max_children"], f"{me} has let in {let_in}")

    def _check_series_now(self) -> None:
        rows = [*self.contents.active.values(), *self.contents.ended.values()]
        made = Counter(row["series_id"] for row in rows)
        active = Counter(row["series_id"] for row in self.contents.active.values())
        for id, series in self.contents.series.items():
            first, every = self._grid.setdefault(id, (series["first_at"], series["every_ms"]))
            self._expect(active[id] == 1, f"series {id} has {active[id]} active occurrences")
            self._expect(made[id] == series["runs"], f"series {id} counts {series['runs']} occurrences of {made[id]}")
            self._expect(series["runs"] <= (series["max_runs"] or FOREVER), f"series {id} does not end: {series}")
            self._expect((series["due_at"] - first) % every == 0, f"series {id} has left its grid: {series}")


def told(row: Row) -> dict[str, Any]:
    names = ("id", "type", "label", "status", "ending", "stop", "attempt", "error", "parent_id", "series_id")
    return {name: row[name] for name in names if row.get(name) is not None}
