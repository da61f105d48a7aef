"""Checks of families, chains and series after the last death.

The journal, in which each part of a task records its start and its end, is compared with history.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from tests.crash import family_work
from tests.crash.contents import Row
from tests.crash.family_rows import FamilyRows, told
from tests.crash.intervals import FOREVER, Interval

FAILURES = {"failed", "dead_letter", "dependency_failed"}
STOPPED = {"cancelled", "superseded"}
CLOCK_STEP = 0.01
"""Seconds by which the wall-clock time of an ending may differ from the one that handlers read."""


class FamilyTrial(FamilyRows):
    """Checks one file after all its deaths."""

    def __init__(self, file: Path, journal: Path, scratch: Path) -> None:
        super().__init__(file, journal, scratch)
        self.intervals: list[Interval] = []
        self._of_task: defaultdict[int, list[Interval]] = defaultdict(list)
        self._walls: dict[Interval, tuple[float, float]] = {}
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        self._by_label: defaultdict[str, list[Row]] = defaultdict(list)
        self._lines: defaultdict[tuple[int, str], list[Row]] = defaultdict(list)
        self._opened: dict[str, float] = {}

    def hold(self) -> list[str]:
        """Return all violations, after a clean run to the end."""
        active = [told(row) for row in self.contents.active.values()]
        self._expect(not active, f"still active: {active}")
        self._expect(not self.contents.series, f"series that never ended: {self.contents.series}")
        for row in self.contents.ended.values():
            self._children[row["parent_id"]].append(row["id"])
            self._by_label[row["label"]].append(row)
        self._read_intervals()
        self._check_spawned()
        for id, row in self.contents.ended.items():
            self._check_attempts(id, row)
            self._check_family(id, row)
            self._check_ending(id, row)
        self._check_answers()
        self._check_cancelled()
        self._check_dependencies()
        self._check_series()
        return self.wrong

    def _read_intervals(self) -> None:
        self._opened = {line["who"]: line["at"] for line in self.witnesses.of("open")}
        for line in self.witnesses.of("start", "saved", "spawn refused"):
            self._lines[(line["id"], line["fact"])].append(line)
        open: dict[tuple[str, int, int, str], Row] = {}
        seen: set[tuple[int, int, str]] = set()
        for line in self.witnesses.of("start", "end"):
            token = (line["who"], line["id"], line["attempt"], line["part"])
            if line["fact"] == "end":
                self._note(open.pop(token), line["at"], line["how"], line["wall"])
                continue
            self._expect(token[1:] not in seen, f"{line['part']} of attempt {token[1:3]} ran twice")
            seen.add(token[1:])
            open[token] = line
            if line["due"] is not None and line["attempt"] == 1:
                self._due.setdefault(line["id"], line["due"])
        for line in open.values():
            row = self.contents.ended.get(line["id"], {})
            if row.get("type") == family_work.distant.name and line["who"] not in self.witnesses.deaths:
                # Its worker process was ended at an unknown time, but it certainly ran at its first line.
                self._note(line, line["at"], "ended", line["wall"])
                continue
            end = self.witnesses.death_of(line["who"])
            self._expect(end < FOREVER, f"the {line['part']} of task {line['id']} by {line['who']} never ended")
            self._note(line, end, "killed", line["wall"])
        for intervals in [self.intervals, *self._of_task.values()]:
            intervals.sort()

    def _note(self, begun: Row, end: float, how: str, wall: float) -> None:
        id, attempt, what = begun["id"], begun["attempt"], begun["part"]
        interval = Interval(begun["at"], end, id, attempt, what, begun["who"], begun["label"], how)
        self.intervals.append(interval)
        self._of_task[id].append(interval)
        self._walls[interval] = begun["wall"], wall

    def _parts(self, id: int, *what: str) -> list[Interval]:
        return [interval for interval in self._of_task[id] if interval.what in what]

    def _tree(self, id: int) -> Iterator[int]:
        """Yield a task and its descendants."""
        yield id
        for child in self._children[id]:
            yield from self._tree(child)

    # One task

    def _check_attempts(self, id: int, row: Row) -> None:
        """Attempts run one after the other, the handler before ``finalize`` before the hook, nothing after the end."""
        parts = self._of_task[id]
        for earlier, later in pairwise(parts):
            self._expect(earlier.end <= later.begin, f"{later} overlaps {earlier}")
            in_order = earlier.attempt < later.attempt or (earlier.what != "hook" and later.what == "hook")
            self._expect(in_order and earlier.attempt <= later.attempt, f"{later} came after {earlier}")
            order = ("handler", "finalize", "hook")
            self._expect(order.index(earlier.what) <= order.index(later.what), f"{later} came after {earlier}")
        over = self._handler_over.get(id)
        for part in parts:
            if over is not None and part.what == "handler":
                self._expect(part.attempt <= over, f"{part}, but attempt {over} was recorded as over")
            self._expect(part.attempt <= row["attempt"], f"{part}, but the last attempt was {row['attempt']}")
            begin, end = self._walls[part]
            last = begin if part.how == "killed" else end
            ended_at = row["ended_at"] / 1000
            self._expect(last <= ended_at + CLOCK_STEP, f"{part}, {last - ended_at} s after its end: {told(row)}")
        saved = self._lines[(id, "saved")]
        for line in self._lines[(id, "start")]:
            forgot = any(one["at"] < line["at"] for one in saved) and not line["saved"]
            self._expect(not forgot, f"task {id} forgot what it saved: {line}")

    def _check_family(self, id: int, row: Row) -> None:
        """``finalize``, hooks and the end of a parent come after the ends of the children that existed then."""
        for child in self._children[id]:
            other = self.contents.ended[child]
            self._expect(other["ended_at"] <= row["ended_at"], f"task {id} ended before its child {child}")
        for part in self._parts(id, "finalize", "hook"):
            # Children of this very attempt end later; a hook waits for all.
            before = [child for child in self._children[id] if self._spawner(child) < part.attempt]
            for child in before if part.what == "finalize" else self._children[id]:
                ended_at = self.contents.ended[child]["ended_at"] / 1000
                begin, _ = self._walls[part]
                self._expect(ended_at <= begin + CLOCK_STEP, f"{part}, before its child {child} ended")
                for kin in self._tree(child):
                    late = [str(one) for one in self._of_task[kin] if one.end > part.begin]
                    self._expect(not late, f"{part}, while of its descendants {'; '.join(late)}")

    def _spawner(self, child: int) -> int:
        """Return the attempt that spawned a child, or that spawned the sibling which spawned it."""
        spawner, attempt, part, _ = self.contents.ended[child]["label"].split("/")
        return self._spawner(int(spawner)) if part == "sibling" else int(attempt)

    def _check_ending(self, id: int, row: Row) -> None:
        ending, error, parts = row["ending"], row["error"] or "", self._of_task[id]
        work = self._parts(id, "handler", "finalize")
        last = work[-1] if work else None
        children = [self.contents.ended[child] for child in self._children[id]]
        finalizes = row["type"] in family_work.WITH_FINALIZE and bool(children)
        fails_fast = bool(json.loads(row["overrides"] or "{}").get("fail_fast", True))
        me = f"task {id} ({told(row)})"
        if ending == "completed":
            result = json.loads(row["result"])
            due = "finalize" if finalizes else "handler"
            fits = last is not None and (last.what, last.how, last.attempt) == (due, "work", result["attempt"])
            self._expect(fits and result["part"] == due, f"{me} should have ended with its {due}: {last}")
            if finalizes:
                known = sorted(result["children"])
                self._expect(known == sorted(self._children[id]), f"{me} has the children {self._children[id]}")
            failed = [told(child) for child in children if child["ending"] in FAILURES]
            self._expect(not (failed and fails_fast), f"{me} should have failed with {failed}")
        else:
            self._expect(row["result"] is None, f"{me} has a result")
        if ending in FAILURES:
            self._expect(not self._parts(id, "hook"), f"{me} was not cancelled, and its hook ran")
        if ending == "failed":
            of_child = any(
                error.startswith(f"child {child['id']} ") and child["ending"] in FAILURES for child in children
            )
            gave_up = last is not None and last.how == "give up" and error.endswith("as planned")
            self._expect((of_child and fails_fast) or gave_up, f"{me} failed for no reason: {last}, {children}")
        elif ending == "dead_letter":
            self._expect(
                error.startswith("crashed 3 times")
                or (last is not None and last.how == "fail" and row["retries"] == 1),
                f"{me} died for no reason: {last}",
            )
            killed = [one for one in work if one.how == "killed" and last is not None and one.what == last.what]
            self._expect(len(killed) <= 3, f"{me} went on after three crashes: {'; '.join(map(str, killed))}")
        elif ending == "dependency_failed":
            self._expect(not parts, f"{me} has run")
        refused = self._lines[(id, "spawn refused")]
        self._expect(ending != "completed" or not refused, f"{me} was not allowed to spawn: {refused}")
        if ending in STOPPED and self._owes_hook(row, last) and not error.startswith("crashed"):
            hooks = [one for one in self._parts(id, "hook") if one.how == "work"]
            self._expect(bool(hooks), f"{me} was stopped after {last}, and its hook did not run")

    def _owes_hook(self, row: Row, last: Interval | None) -> bool:
        """True if the task was certainly running, waiting or finalizing when its stop was requested."""
        if row["type"] not in family_work.WITH_HOOK:
            return False
        if row["id"] in self._handler_over or any(one.what == "finalize" for one in self._of_task[row["id"]]):
            return True
        if last is None or last.how != "stopped":
            return False
        left: list[float] = [line["at"] for line in self.witnesses.of("leaving") if line["who"] == last.who]
        return last.end < min([self.witnesses.death_of(last.who), *left])

    # Calls and returns

    def _check_spawned(self) -> None:
        """Each child is stored once, each attempt spawned all of its children or none, and none was spawned unasked."""
        asked: set[str] = set()
        for line in self.witnesses.of("spawning"):
            again = asked.intersection(line["labels"])
            self._expect(not again, f"spawned twice: {again}")
            asked.update(line["labels"])
            if not line["keyed"]:
                found = sum(len(self._by_label[label]) for label in line["labels"])
                self._expect(found in (0, len(line["labels"])), f"{found} of these children are stored: {line}")
        for line in self.witnesses.of("spawned"):
            for label, id, kind in zip(line["labels"], line["ids"], line["kinds"], strict=True):
                rows = self._by_label[label]
                if kind == "inserted":
                    self._expect([row["id"] for row in rows] == [id], f"{label} is {rows}, not {id}")
                else:
                    self._expect(not rows, f"{label} was a {kind} of {id}, and is stored: {rows}")
        for row in self.contents.ended.values():
            is_root = row["parent_id"] is None
            expected = row["label"].split("/")[0]
            if "/sibling/" not in row["label"]:
                self._expect(is_root or str(row["parent_id"]) == expected, f"not a child of {expected}: {told(row)}")
            self._expect("/" not in row["label"] or row["label"] in asked, f"not spawned by a task: {told(row)}")
            recurs = row["series_id"] is not None
            self._expect(recurs or len(self._by_label[row["label"]]) == 1, f"stored twice: {told(row)}")

    def _check_answers(self) -> None:
        asked: set[str] = set()
        answered: set[str] = set()
        for line in self.witnesses.of("ask", "ack", "refused"):
            if line["fact"] == "ask":
                asked.update(line["labels"])
                continue
            answered.update(line["labels"])
            if line["fact"] == "refused":
                stored = [label for label in line["labels"] if self._by_label[label]]
                self._expect(not stored, f"refused but stored: {stored}")
                continue
            for label, id, replaced in zip(line["labels"], line["ids"], line["replaced"], strict=True):
                ids = [row["id"] for row in self._by_label[label]]
                self._expect(id in ids, f"{label} was acknowledged as {id} and is {ids}")
                if replaced is not None:
                    self._check_replaced(replaced, id)
        for line in self.witnesses.of("ask"):
            if not answered.intersection(line["labels"]):
                found = sum(bool(self._by_label[label]) for label in line["labels"])
                self._expect(found in (0, len(line["labels"])), f"{found} of a batch are stored: {line}")
        strangers = [label for label in self._by_label if "/" not in label and label not in asked]
        self._expect(not strangers, f"not submitted: {strangers}")
        for line in self.witnesses.of("seen"):
            row = self.contents.ended[line["id"]]
            self._expect(row["ending"] == line["ending"], f"seen as {line['ending']}: {told(row)}")
            self._check_over(line["id"], line["at"], "was seen as ended")

    def _check_replaced(self, old: int, new: int) -> None:
        row = self.contents.ended[old]
        self._expect(row["ending"] == "superseded", f"task {new} replaced {told(row)}")
        if parts := self._of_task[new]:
            for id in self._tree(old):
                late = [str(one) for one in self._of_task[id] if one.end > parts[0].begin]
                self._expect(not late, f"{parts[0]} replaced task {old}, while {'; '.join(late)}")

    def _check_over(self, id: int, moment: float, why: str) -> None:
        for one in self._tree(id):
            late = [str(part) for part in self._of_task[one] if part.end > moment]
            self._expect(not late, f"task {id} {why} at {moment:.4f}, but {'; '.join(late)}")

    def _check_cancelled(self) -> None:
        for line in self.witnesses.of("cancelled"):
            id, at, row = line["id"], line["at"], self.contents.ended[line["id"]]
            if not line["answer"]:
                self._check_over(id, at, "had ended")
                continue
            # A task that was failing, or was being replaced, ends that way.
            endings = STOPPED if not self._children[id] else STOPPED | FAILURES
            self._expect(row["ending"] in endings, f"cancelled at {at:.4f}: {told(row)}")
            for one in self._tree(id):
                late = [str(part) for part in self._claimed_after(one, at)]
                self._expect(not late, f"task {id} was cancelled at {at:.4f}, but {'; '.join(late)}")

    def _claimed_after(self, id: int, moment: float) -> Iterable[Interval]:
        """Return the parts that were claimed after ``moment``, when only hooks should be.

        A part may have been claimed before and have recorded its start after.
        """
        began = [one for one in self._parts(id, "handler", "finalize") if one.begin > moment]
        ended_between = began and any(moment < one.end < began[0].begin for one in self._of_task[id])
        return began[1:] if began and self._opened[began[0].who] < moment and not ended_between else began

    def _check_dependencies(self) -> None:
        edges = {(task_id, on_id) for task_id, on_id, _ in self.contents.edges}
        ids = {label: row["id"] for label, rows in self._by_label.items() for row in rows[:1]}
        for line in self.witnesses.of("ask"):
            pairs = [(ids.get(task), ids.get(on)) for task, on in line.get("edges", [])]
            pairs += [(ids.get(line["labels"][0]), on_id) for on_id in line.get("on_ids", [])]
            edges.update((task, on) for task, on in pairs if task is not None and on is not None)
        met: dict[int, bool] = {}
        for task_id, on_id in edges:
            row = self.contents.ended[on_id]
            for one in self._of_task[task_id][:1]:
                begin, _ = self._walls[one]
                self._expect(row["ended_at"] / 1000 <= begin + CLOCK_STEP, f"{one}, before {told(row)}, which it needs")
                self._check_over_before(on_id, one)
            met[task_id] = met.get(task_id, True) and row["ending"] == "completed"
        for id, row in self.contents.ended.items():
            if row["ending"] == "dependency_failed":
                self._expect(not met.get(id, True), f"all went well, but {told(row)}")

    def _check_over_before(self, id: int, after: Interval) -> None:
        for one in self._tree(id):
            late = [str(part) for part in self._of_task[one] if part.end > after.begin]
            self._expect(not late, f"{after} depends on task {id}, while {'; '.join(late)}")

    def _check_series(self) -> None:
        wanted = {line["labels"][0]: line for line in self.witnesses.of("ask") if "every" in line}
        ended = {line["id"] for line in self.witnesses.of("ending series")}
        for label, line in wanted.items():
            rows = sorted(self._by_label[label], key=lambda row: int(row["id"]))
            if not rows:
                continue  # the submission was never acknowledged
            ids = [row["id"] for row in rows]
            self._expect(len({row["series_id"] for row in rows}) == 1, f"{label} became several series: {ids}")
            if not ended.intersection(ids):
                self._expect(len(ids) == line["max_runs"], f"series {label} came {len(ids)} times: {line}")
            self._expect(len(ids) <= line["max_runs"], f"series {label} came {len(ids)} times: {line}")
            due = [(id, self._due[id]) for id in ids if id in self._due]
            for (_, earlier), (id, later) in pairwise(due):
                self._expect(earlier < later, f"occurrence {id} of {label} is due at {later} after {earlier}")
                off = (later - earlier) % line["every"]
                self._expect(off == 0, f"occurrence {id} of {label} is {off} ms off its grid")
            for id, moment in due:
                for one in self._of_task[id][:1]:
                    early = moment / 1000 - self._walls[one][0]
                    self._expect(early <= CLOCK_STEP, f"{one} began {early} s before it was due")
            for earlier_row, later_row in pairwise(rows):
                self._expect(
                    earlier_row["ended_at"] <= later_row["created_at"], f"{told(later_row)} came before the last ended"
                )
