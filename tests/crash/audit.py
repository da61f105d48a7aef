"""Checks of every guarantee on the store that a killed process left.

The journal says what was asked and answered; the parent says which process died when. The auditor reads the store
from a copy of its files, so that the next child, not the auditor, recovers the log of a dead process.

A crash is counted where it happened: a row found ``running`` after its process died. So every attempt of every
task is accounted for: an attempt ends in a failure that uses a retry, in a crash that uses none, or in an
ending.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash import workload
from tests.crash.contents import Contents, Row
from tests.crash.journal import JournalReader

CRASHED = "crashed 3 times"
MOST_CRASHES = 3
NEVER_COMPLETES = {workload.doomed.name, workload.hopeless.name, workload.poison.name}


@dataclass
class Known:
    """The facts in the journal about one task."""

    started: int = 0
    """The highest attempt that has started."""
    runner: str | None = None
    """The process that runs it, until it records the end."""
    failures: int = 0
    results: dict[int, str] = field(default_factory=dict)
    asked_step: int = 0
    saved_step: int = 0
    hooks: int = 0
    """How often ``on_cancel`` has returned."""
    hooking: str | None = None
    """The process that is running ``on_cancel``."""
    cancelled: bool = False
    """True if ``cancel`` returned True and the task was not revived since."""
    cancel_refused: bool = False
    bases: set[int] = field(default_factory=lambda: {0})
    """The attempts after which its counters may have been reset: 0, or that of a dead letter that was revived."""
    revived: int = 0
    crashed: set[int] = field(default_factory=set)
    """Attempts that were running when their process died."""
    prefetched: set[int] = field(default_factory=set)
    """Attempts that were claimed and had not begun when their process died."""


class Auditor:
    """Checks one file after each round."""

    def __init__(self, file: Path, journal: Path, scratch: Path) -> None:
        self._file = file
        self._journal = JournalReader(journal)
        self._scratch = scratch
        self.wrong: list[str] = []
        self.tasks: defaultdict[int, Known] = defaultdict(Known)
        self._batches: list[list[str]] = []
        self._types: dict[str, str] = {}
        self._refused: set[str] = set()
        self._absorbed: set[str] = set()
        """Markers of submissions that were duplicates of an existing task."""
        self._stored: dict[str, int] = {}
        """Acknowledged markers and their ids."""
        self._identity: dict[int, str] = {}
        """Every id ever seen, and the marker it belongs to."""
        self._ended_before: set[int] = set()
        self._sequence = 0
        self.deaths: dict[str, float] = {}
        """When each dead process was killed, on the clock of the journal; 0 if it killed itself."""
        self.poisoned: set[str] = set()
        """The processes that started a poison task."""
        self.facts: Counter[str] = Counter()
        self.contents: Contents

    def check(self, *, clean: bool, alone: bool = True) -> None:
        """Check every guarantee after a round.

        ``clean``: the last process ended by itself. ``alone``: one process at a time used the file, so that every
        crash was seen.
        """
        self._read_journal()
        self.contents = contents = Contents(self._file, self._scratch)
        self._expect(contents.integrity == "ok", f"integrity_check says {contents.integrity}")
        self._count_crashes(clean)
        self._check_submissions()
        self._check_bookkeeping()
        for row in contents.active.values():
            self._check_active(row, alone)
        for row in contents.ended.values():
            self._check_ended(row, alone)
        self._ended_before = set(contents.ended)

    def check_finished(self) -> None:
        """Check, after a clean run to the end, that nothing is active and that each task ended as its type does."""
        self._expect(not self.contents.active, f"still active: {sorted(self.contents.active)}")
        for row in self.contents.ended.values():
            self._check_destiny(row)

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    # The journal

    def _read_journal(self) -> None:
        for line in self._journal.news():
            self.facts[line["fact"]] += 1
            read = getattr(self, f"_read_{line['fact']}")
            read(line, self.tasks[line["id"]]) if "id" in line else read(line)

    def _read_ask(self, line: Row) -> None:
        self._batches.append(line["markers"])
        self._types.update(zip(line["markers"], line["types"], strict=True))

    def _read_refused(self, line: Row) -> None:
        self._refused.update(line["markers"])

    def _read_ack(self, line: Row) -> None:
        inserted = []
        for marker, id, kind in zip(line["markers"], line["ids"], line["kinds"], strict=True):
            if kind == "inserted":
                inserted.append(id)
                self._stored[marker] = id
                self._identify(id, marker)
            else:
                self._absorbed.add(marker)
        expected = list(range(inserted[0], inserted[0] + len(inserted))) if inserted else []
        self._expect(inserted == expected, f"ids of one batch do not ascend in input order: {inserted}")

    def _identify(self, id: int, marker: str) -> None:
        known = self._identity.setdefault(id, marker)
        self._expect(known == marker, f"id {id} was {known} and is {marker}: an id was used twice")

    def _read_start(self, line: Row, task: Known) -> None:
        id, attempt, who = line["id"], line["attempt"], line["who"]
        self._expect(attempt > task.started, f"task {id}: attempt {attempt} started after attempt {task.started}")
        if task.runner is not None:
            dead = task.runner != who and self.deaths.get(task.runner, float("inf")) < line["at"]
            self._expect(
                dead,
                f"task {id}: attempt {attempt} by {who} overlaps attempt {task.started} by {task.runner}",
            )
        self._expect(id not in self._ended_before or task.revived > 0, f"task {id} had ended and ran again by {who}")
        self._expect(
            task.saved_step <= line["step"] <= task.asked_step,
            f"task {id}: attempt {attempt} found step {line['step']}; saved was {task.saved_step}",
        )
        task.started, task.runner = attempt, who
        if self._types.get(self._identity.get(id, "")) == workload.poison.name:
            self.poisoned.add(who)

    def _read_end(self, line: Row, task: Known) -> None:
        self._expect(
            task.runner == line["who"] and task.started == line["attempt"],
            f"task {line['id']}: attempt {line['attempt']} by {line['who']} went on beside"
            f" attempt {task.started} by {task.runner}",
        )
        task.runner = None
        task.failures += line["how"] == "failed"
        if line["how"] == "done":
            task.results[line["attempt"]] = line["result"]

    def _read_saving(self, line: Row, task: Known) -> None:
        task.asked_step = max(task.asked_step, line["step"])

    def _read_saved(self, line: Row, task: Known) -> None:
        task.saved_step = max(task.saved_step, line["step"])

    def _read_hook(self, line: Row, task: Known) -> None:
        task.hooking = line["who"]

    def _read_hooked(self, line: Row, task: Known) -> None:
        task.hooking = None
        task.hooks += 1

    def _read_seen(self, line: Row, task: Known) -> None:
        self._expect(
            task.hooking != line["who"], f"task {line['id']} is {line['ending']}, and its on_cancel still runs"
        )

    def _read_cancelling(self, line: Row, task: Known) -> None:
        """Ignore the call: only its return counts."""

    def _read_cancelled(self, line: Row, task: Known) -> None:
        if line["answer"]:
            task.cancelled = True
        else:
            task.cancel_refused = True

    def _read_unknown(self, line: Row, task: Known) -> None:
        type = self._types.get(self._identity.get(line["id"], ""))
        self._expect(type == workload.fleeting.name, f"task {line['id']} was not found")

    def _read_reviving(self, line: Row, task: Known) -> None:
        task.bases.add(line["attempt"])
        task.revived += 1
        task.cancelled = task.cancel_refused = False

    def _read_revived(self, line: Row, task: Known) -> None:
        task.bases = {line["attempt"]}

    # The store

    def _count_crashes(self, clean: bool) -> None:
        running = [row for row in self.contents.active.values() if row["status"] == "running"]
        if clean:
            self._expect(not running, f"running after a clean end: {[row['id'] for row in running]}")
            return
        for row in running:
            id, attempt, task = row["id"], row["attempt"], self.tasks[row["id"]]
            if row["started_at"] is not None or (id, attempt) in self.contents.begun:
                task.crashed.add(attempt)
            else:
                task.prefetched.add(attempt)
                self._expect(task.started < attempt, f"task {id}: attempt {attempt} began without a trace")

    def _check_submissions(self) -> None:
        active, ended = self.contents.active, self.contents.ended
        both = active.keys() & ended.keys()
        self._expect(not both, f"both active and ended: {sorted(both)}")
        present: dict[str, int] = {}
        for id, row in [*active.items(), *ended.items()]:
            marker = json.loads(row["payload"])["marker"]
            self._expect(marker not in present, f"{marker} is stored as {present.get(marker)} and as {id}")
            present[marker] = id
            self._identify(id, marker)
            self._expect(self._types.get(marker) == row["type"], f"not submitted: task {id}: {marker}")
        for marker, id in self._stored.items():
            pruned = self._types[marker] == workload.fleeting.name and marker not in present
            self._expect(pruned or present.get(marker) == id, f"{marker} was acknowledged as {id} and is lost")
        self._expect(not self._refused & present.keys(), f"refused but stored: {self._refused & present.keys()}")
        self._expect(not self._absorbed & present.keys(), f"a duplicate was stored: {self._absorbed & present.keys()}")
        for batch in self._batches:
            found = sum(marker in present for marker in batch)
            self._expect(found in (0, len(batch)), f"{found} of a batch of {len(batch)} are stored: {batch}")

    def _check_bookkeeping(self) -> None:
        contents = self.contents
        for rows, tags, where in (
            (contents.active, contents.active_tags, "active"),
            (contents.ended, contents.ended_tags, "ended"),
        ):
            meant = sorted(
                (id, name, value) for id, row in rows.items() for name, value in json.loads(row["tags"] or "{}").items()
            )
            self._expect(meant == sorted(tags), f"tags of {where} tasks disagree with their rows")
        kept = Counter((row["type"], row["group_name"], row["ending"]) for row in contents.ended.values())
        tallied = {(type, group, ending): n for type, group, ending, _, n, _ in contents.tally if n}
        self._expect(kept == tallied, f"the tally says {tallied}, history {dict(kept)}")
        waiting = [row for row in contents.active.values() if row["status"] != "running"]
        load = Counter((row["group_name"], row["type"], row["status"]) for row in waiting)
        self._expect(load == contents.load, f"the file counts {contents.load}, its rows are {dict(load)}")
        ever = sum(ended for _, _, _, ended, _, _ in contents.tally)
        self._expect(
            ever + len(contents.active) == contents.sequence,
            f"{contents.sequence} ids were given; {ever} ended and {len(contents.active)} are active",
        )
        highest = max([*contents.active, *contents.ended, *self._stored.values()], default=0)
        self._expect(
            contents.sequence >= max(highest, self._sequence),
            f"the sequence is {contents.sequence} after {self._sequence}, the highest id {highest}",
        )
        self._sequence = contents.sequence
        keyed = [row for row in contents.active.values() if row["key"] is not None]
        holding = [row for row in keyed if row["stop"] is None and not row["gave_key"]]
        keys = Counter((row["type"], row["key"]) for row in holding)
        self._expect(max(keys.values(), default=0) <= 1, f"a key is held twice: {keys.most_common(1)}")
        # A task that is stopping, or has a run added, has given up its key, and the next holder waits behind it.
        stopping = {(row["type"], row["key"]): row["id"] for row in keyed if row not in holding}
        for row in keyed:
            gate = stopping.get((row["type"], row["key"])) if row in holding else None
            self._expect(
                (row["gate_id"], row["status"] == "blocked") == (gate, gate is not None),
                f"task {row['id']} is {row['status']} behind {row['gate_id']}, its key is with {gate}",
            )

    def _check_active(self, row: Row, alone: bool) -> None:
        id, attempt, task = row["id"], row["attempt"], self.tasks[row["id"]]
        self._check_common(row, task)
        self._expect(not task.cancel_refused, f"task {id} is active, but cancel() said it had ended")
        self._expect(
            not task.cancelled or row["stop"] == "cancel",
            f"task {id} is active, its cancellation is forgotten",
        )
        # A cancelled task may crash as often again, in its hook.
        most = MOST_CRASHES if row["stop"] is None else 2 * MOST_CRASHES
        self._expect(row["crashes"] < most, f"task {id} is active after {row['crashes']} crashes")
        is_running = row["status"] == "running"
        spent = row["retries"] + row["crashes"] + (is_running and attempt not in task.prefetched)
        self._expect(
            any(attempt - _since(base, task.prefetched) == base + spent for base in task.bases),
            f"task {id}: attempt {attempt} after {row['retries']} retries and {row['crashes']} crashes",
        )
        if alone and not task.revived:
            seen = len(task.crashed) - (is_running and attempt in task.crashed)
            self._expect(row["crashes"] == seen, f"task {id} counts {row['crashes']} crashes of {seen}")

    def _check_ended(self, row: Row, alone: bool) -> None:
        id, attempt, task = row["id"], row["attempt"], self.tasks[row["id"]]
        self._check_common(row, task)
        ending, quarantined = row["ending"], row["error"] == CRASHED
        if task.cancelled:
            self._expect(ending == "cancelled", f"task {id} was cancelled and ended as {ending}")
        if ending == "completed":
            self._expect(
                attempt in task.results and json.loads(row["result"]) == task.results[attempt],
                f"task {id}: history says {row['result']}, attempt {attempt} said {task.results.get(attempt)}",
            )
        else:
            self._expect(row["result"] is None, f"task {id} is {ending} and has a result")
        if not alone:
            return
        # An attempt that was still open when the task ended counts besides its retries and crashes.
        lost = task.crashed | task.prefetched
        fits = any(
            attempt - base - row["retries"] - _since(base, lost) in _attempts_of_ending(ending, quarantined)
            for base in task.bases
        )
        self._expect(
            fits,
            f"task {id} ({ending}, {row['error']}): attempt {attempt} after {row['retries']} retries"
            f" and crashes in {sorted(task.crashed)}",
        )
        if quarantined:
            crashes = {_since(base, task.crashed) for base in task.bases}
            self._expect(MOST_CRASHES in crashes, f"task {id} is quarantined after {crashes} crashes")
        was_running = row["ending"] == "cancelled" and not any(
            attempt - base == row["retries"] + _since(base, lost) for base in task.bases
        )
        if was_running and row["type"] in workload.WITH_HOOK:
            self._expect(task.hooks > 0, f"task {id} was cancelled while running without on_cancel")

    def _check_common(self, row: Row, task: Known) -> None:
        id = row["id"]
        self._expect(
            row["attempt"] >= task.started,
            f"task {id}: attempt {task.started} ran, {row['attempt']} is known",
        )
        self._expect(
            row["retries"] <= task.failures,
            f"task {id}: {row['retries']} retries of {task.failures} failures",
        )
        most = workload.RETRIES.get(row["type"], 3)
        self._expect(row["retries"] <= most, f"task {id}: {row['retries']} retries, at most {most} are allowed")
        step = json.loads(row["saved"] or "{}").get("step", 0)
        self._expect(
            task.saved_step <= step <= task.asked_step,
            f"task {id}: step {step} is stored, {task.saved_step} was saved",
        )

    def _check_destiny(self, row: Row) -> None:
        ending, type, id = row["ending"], row["type"], row["id"]
        if ending == "cancelled" or row["error"] == CRASHED:
            return
        payload = json.loads(row["payload"])
        if type == workload.doomed.name:
            expected, retries = {"dead_letter"}, 1
        elif type == workload.hopeless.name:
            expected, retries = {"failed"}, 0
        elif type == workload.poison.name:
            expected, retries = set(), 0
        elif type == workload.fleeting.name:
            expected, retries = {"completed", "expired"}, 0
        else:
            fails = {workload.flaky_thread.name: 2, workload.stepper.name: 1}
            expected, retries = {"completed"}, payload.get("fails", fails.get(type, 0))
        self._expect(ending in expected, f"task {id} ({type}) ended as {ending}: {row['error']}")
        self._expect(row["retries"] == retries, f"task {id} ({type}) ended after {row['retries']} retries")


def _since(base: int, attempts: set[int]) -> int:
    """Count the attempts after the one at which the counters were reset."""
    return sum(attempt > base for attempt in attempts)


def _attempts_of_ending(ending: str, quarantined: bool) -> set[int]:
    """Return how many attempts an ending takes besides those that failed or crashed."""
    if quarantined or ending == "expired":
        return {0}
    return {0, 1} if ending == "cancelled" else {1}
