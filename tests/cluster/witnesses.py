"""The observations of a run: journals of the processes, a log that triggers write to the database, the final rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster import work
from tests.cluster.crowd import Crowd, Member
from tests.cluster.ground import rows
from tests.cluster.pace import BEAT, LEASE
from tests.crash.journal import JournalReader, boot_time

Row = dict[str, Any]
TOLERANCE = 1.0
"""Seconds within which a node stops its handlers after a suspension of about a lease or more.

Other nodes may have started the tasks again meanwhile. A process cannot know that it was suspended before it runs
again, so two attempts are alive for this moment; the rows must show that the first one wrote nothing.
"""


class Interval(NamedTuple):
    """An attempt, from its first line in the journal to its last, or to the death of its process."""

    begin: float
    end: float
    id: int
    attempt: int
    part: str
    who: str
    type: str
    group: str
    key: str | None
    marker: str
    how: str

    def __str__(self) -> str:
        return (
            f"{self.part} of task {self.id} ({self.type}, {self.marker}), attempt {self.attempt} by {self.who}"
            f" from {self.begin:.3f} to {self.end:.3f} ({self.how})"
        )


class Span(NamedTuple):
    """A time in which an attempt really ran."""

    begin: float
    end: float
    of: Interval


def really(interval: Interval, absences: list[tuple[float, float]]) -> list[Span]:
    """Return the parts of an interval in which its process could run."""
    parts = [(interval.begin, interval.end)]
    for since, until in absences:
        parts = [
            piece
            for begin, end in parts
            for piece in ((begin, min(end, since)), (max(begin, until), end))
            if piece[0] < piece[1]
        ]
    return [Span(begin, end, interval) for begin, end in parts]


@dataclass
class Asked:
    """A submission and its answer."""

    marker: str
    asked_at: float
    batch: int
    answered_at: float = float("inf")
    id: int | None = None
    kind: str | None = None
    replaced: int | None = None
    key: str | None = None
    strategy: str | None = None
    runs: int | None = None
    ttl: bool = False


@dataclass
class Witnesses:
    """All observations of a run."""

    intervals: list[Interval] = field(default_factory=list)
    absences: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    cancelling: set[int] = field(default_factory=set)
    cancelled: dict[int, bool] = field(default_factory=dict)
    facts: Counter[str] = field(default_factory=Counter)
    deaths: dict[str, float] = field(default_factory=dict)
    opened: dict[str, float] = field(default_factory=dict)
    """When each process last opened the store."""
    history: dict[int, Row] = field(default_factory=dict)
    active: dict[int, Row] = field(default_factory=dict)
    tally: list[Row] = field(default_factory=list)
    load: list[Row] = field(default_factory=list)
    dependencies: list[Row] = field(default_factory=list)
    nodes: list[Row] = field(default_factory=list)
    cron: list[Row] = field(default_factory=list)
    seen: list[Row] = field(default_factory=list)
    controls: list[Row] = field(default_factory=list)
    """Calls of pause and resume, and their returns."""
    wrong: list[str] = field(default_factory=list)

    def spans(self) -> Iterator[Span]:
        for interval in self.intervals:
            yield from really(interval, self.absences[interval.who])

    def had_node(self, since: float, until: float) -> bool:
        """True if a process that dispatches, or stands by, had the store open all that time."""
        return any(
            who.startswith("node") and at <= since and self.deaths.get(who, until) >= until
            for who, at in self.opened.items()
        )

    def of_task(self) -> dict[int, list[Interval]]:
        found: defaultdict[int, list[Interval]] = defaultdict(list)
        for interval in sorted(self.intervals):
            found[interval.id].append(interval)
        return found


def hear(crowd: Crowd) -> Witnesses:
    """Read all journals and rows, once all processes have ended."""
    witnesses = Witnesses()
    for member in crowd.members:
        _hear_member(witnesses, member)
    tables = {
        "history": "taskmill_history",
        "active": "taskmill_task",
        "tally": "taskmill_tally",
        "load": "taskmill_load",
        "dependencies": "taskmill_dependency",
        "nodes": "taskmill_node",
        "cron": "taskmill_cron",
        "seen": "seen ORDER BY n",
    }
    for name, found in rows(crowd.address, tables).items():
        by_id = name in ("history", "active")
        setattr(witnesses, name, {row["id"]: row for row in found} if by_id else found)
    return witnesses


def keep(witnesses: Witnesses, crowd: Crowd, place: Path) -> None:
    """Write the rows and the faults to a file, for the analysis of a failure."""
    names = ("history", "active", "dependencies", "nodes", "cron", "seen")
    told = {name: getattr(witnesses, name) for name in names}
    told["faults"] = [vars(fault) for fault in crowd.faults]
    place.write_text(json.dumps(told, default=str), encoding="utf-8")


def _hear_member(witnesses: Witnesses, member: Member) -> None:
    lines = JournalReader(member.journal).news()
    absences = []
    for since, until in member.stops:
        could_be_dead = until - since > LEASE - 2 * BEAT
        absences.append((since, until + (TOLERANCE if could_be_dead else 0.0)))
    # A node without CPU time is late in the same way; a gap during a suspension changes nothing.
    absences += [(line["since"], line["at"] + TOLERANCE) for line in lines if line["fact"] == "gap"]
    witnesses.absences[member.who] = absences
    if member.died_at is not None:
        witnesses.deaths[member.who] = member.died_at
    begun: dict[tuple[int, int, str], Row] = {}
    alive_until: dict[tuple[int, int, str], float] = {}
    """The last sign of life of attempts in worker processes."""
    batches: dict[str, list[Asked]] = {}
    for number, line in enumerate(lines):
        witnesses.facts[line["fact"]] += 1
        match line["fact"]:
            case "start":
                token = line["id"], line["attempt"], line["part"]
                if token in begun:
                    witnesses.wrong.append(f"{member.who} began {token} twice")
                begun[token] = line
                if line["type"] == work.crunch.name:
                    alive_until[token] = line["at"]
            case "open":
                witnesses.opened[member.who] = line["at"]
            case "alive":
                alive_until[line["id"], line["attempt"], "main"] = line["at"]
            case "end":
                start = begun.pop((line["id"], line["attempt"], line["part"]))
                witnesses.intervals.append(_interval(start, line["at"], line["how"]))
            case "ask":
                batch = [Asked(asked_at=line["at"], batch=number, **one) for one in line["batch"]]
                batches[batch[0].marker] = batch
                witnesses.asked.update({one.marker: one for one in batch})
            case "ack":
                for one, answer in zip(batches[line["first"]], line["answers"], strict=True):
                    one.answered_at = line["at"]
                    one.id, one.kind, one.replaced = answer["id"], answer["kind"], answer["replaced"]
            case "cancelling":
                witnesses.cancelling.add(line["id"])
            case "controlling" | "controlled":
                witnesses.controls.append(line)
            case "cancelled":
                witnesses.cancelled[line["id"]] = witnesses.cancelled.get(line["id"], False) or line["answer"]
    for token, start in begun.items():
        if token in alive_until:
            witnesses.intervals.append(_interval(start, alive_until[token], "killed"))
        elif member.died_at is None:
            witnesses.wrong.append(f"{_interval(start, boot_time(), 'never ended')}, though its process left in order")
        else:
            witnesses.intervals.append(_interval(start, member.died_at, "killed"))


def _interval(start: Row, end: float, how: str) -> Interval:
    return Interval(
        start["at"],
        end,
        start["id"],
        start["attempt"],
        start["part"],
        start["who"],
        start["type"],
        start["group"],
        start["key"],
        start["marker"],
        how,
    )
