"""Comparison of the rivals' journals with the final file: one task at a time per key, and nothing lost.

Each process has its own journal; the clock in it is the same for all of them. A handler or a hook that ran
when its process died ended with it: not before the kill, and not before the last line of its journal.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tests.crash import rivals
from tests.crash.contents import Contents, Row
from tests.crash.journal import boot_time

FOREVER = float("inf")
OPERATIONS = ("ask", "cancelling", "reviving")


class Interval(NamedTuple):
    """A run of a handler or a hook, from its first line in the journal to its last, or to the death of its process."""

    begin: float
    end: float
    id: int
    attempt: int
    what: str
    who: str
    marker: str
    how: str
    """How it ended: as the journal says, or ``killed``."""

    def __str__(self) -> str:
        return (
            f"{self.what} of task {self.id}, attempt {self.attempt} by {self.who}"
            f" from {self.begin:.4f} to {self.end:.4f} ({self.how})"
        )


@dataclass
class Question:
    """A submission, alone or as the last one of its key in a batch, with its result if that was recorded."""

    marker: str
    key: str
    strategy: str
    asked_at: float
    answered_at: float = FOREVER
    refused: bool = False
    id: int | None = None
    kind: str | None = None
    replaced: int | None = None


@dataclass
class Witnesses:
    """The lines of all journals."""

    deaths: dict[str, float] = field(default_factory=dict)
    """When each dead process was killed; 0 if it killed itself."""
    lines: list[Row] = field(default_factory=list)
    last_word: dict[str, float] = field(default_factory=dict)
    facts: Counter[str] = field(default_factory=Counter)

    def hear(self, lines: Iterable[Row]) -> None:
        for line in lines:
            self.lines.append(line)
            self.last_word[line["who"]] = line["at"]
            self.facts[line["fact"]] += 1

    @property
    def operations(self) -> int:
        return sum(self.facts[fact] for fact in OPERATIONS)

    def death_of(self, who: str) -> float:
        return max(self.deaths[who], self.last_word[who]) if who in self.deaths else FOREVER

    def of(self, *facts: str) -> Iterator[Row]:
        return (line for line in self.lines if line["fact"] in facts)


class Trial:
    """Compares the journals with the stored rows."""

    def __init__(self, witnesses: Witnesses, contents: Contents) -> None:
        self._witnesses = witnesses
        self._contents = contents
        self.rows = contents.ended
        self.wrong: list[str] = []
        self.intervals: defaultdict[str, list[Interval]] = defaultdict(list)
        """By task type and key, in the order of their starts."""
        self._of_task: defaultdict[int, list[Interval]] = defaultdict(list)
        self._batches: list[list[Question]] = []
        self._by_marker: dict[str, Question] = {}
        self._revived = {line["id"] for line in witnesses.of("reviving")}
        self._left: dict[str, float] = {line["who"]: line["at"] for line in witnesses.of("leaving")}
        """When each process that left gracefully began to return its running tasks."""
        self._read_intervals()
        self._read_questions()

    def hold(self) -> list[str]:
        """Return all violations."""
        contents = self._contents
        self._expect(contents.integrity == "ok", f"integrity_check says {contents.integrity}")
        self._expect(not contents.active, f"still active: {sorted(contents.active)}")
        self._check_one_at_a_time()
        self._check_attempts()
        self._check_answers()
        self._check_superseded()
        self._check_requeued()
        self._check_cancelled()
        self._check_seen()
        for row in self.rows.values():
            self._check_ended(row)
        return self.wrong

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    # Reading

    def _read_intervals(self) -> None:
        open: dict[tuple[str, int, int, str], Row] = {}
        closing = {"end": "start", "hooked": "hook"}
        for line in self._witnesses.of("start", "hook", "end", "hooked"):
            fact, token = line["fact"], (line["who"], line["id"], line["attempt"])
            if fact in closing:
                self._note(open.pop((*token, closing[fact])), line["at"], line["how"])
            else:
                self._expect((*token, fact) not in open, f"a {fact} of {token} within another")
                open[(*token, fact)] = line
        for line in open.values():
            end = self._witnesses.death_of(line["who"])
            self._expect(end < FOREVER, f"the {line['fact']} of task {line['id']} by {line['who']} never ended")
            self._note(line, end, "killed")
        for intervals in [*self.intervals.values(), *self._of_task.values()]:
            intervals.sort()

    def _note(self, begun: Row, end: float, how: str) -> None:
        what = "handler" if begun["fact"] == "start" else "hook"
        interval = Interval(begun["at"], end, begun["id"], begun["attempt"], what, begun["who"], begun["marker"], how)
        self.intervals[begun["key"]].append(interval)
        self._of_task[begun["id"]].append(interval)

    def _read_questions(self) -> None:
        by_first: dict[str, list[Question]] = {}
        for line in self._witnesses.of("ask", "refused", "ack"):
            if line["fact"] == "ask":
                questions = [Question(**one, asked_at=line["at"]) for one in line["batch"]]
                self._batches.append(list({question.key: question for question in questions}.values()))
                self._by_marker.update({question.marker: question for question in questions})
                by_first[questions[0].marker] = questions
                continue
            questions = by_first[line["first"]]
            answers = line["answers"] if line["fact"] == "ack" else [{}] * len(questions)
            for question, answer in zip(questions, answers, strict=True):
                question.answered_at = line["at"]
                question.refused = line["fact"] == "refused"
                question.id, question.kind = answer.get("id"), answer.get("kind")
                question.replaced = answer.get("replaced")

    def _questions(self) -> Iterator[Question]:
        """Yield the submissions that count: the last one of each key in a batch."""
        return (question for batch in self._batches for question in batch)

    def _handlers(self, id: int) -> list[Interval]:
        return [interval for interval in self._of_task[id] if interval.what == "handler"]

    def _started_after(self, moment: float, id: int) -> list[str]:
        """Return the attempts that were claimed after ``moment``, when none should be.

        An attempt may have been claimed before and have recorded its start after; but then no other ran in between.
        """
        began = [one for one in self._handlers(id) if one.begin > moment]
        claimed_before = began and not any(moment < one.end < began[0].begin for one in self._of_task[id])
        return [str(one) for one in (began[1:] if claimed_before else began)]

    # One at a time

    def _check_one_at_a_time(self) -> None:
        for key, intervals in self.intervals.items():
            latest: Interval | None = None
            for interval in intervals:
                if latest is not None:
                    self._expect(interval.begin >= latest.end, f"{key}: {interval} overlaps {latest}")
                if latest is None or interval.end > latest.end:
                    latest = interval

    def _check_attempts(self) -> None:
        for id, intervals in self._of_task.items():
            attempts = [interval.attempt for interval in self._handlers(id)]
            self._expect(
                all(earlier < later for earlier, later in pairwise(attempts)),
                f"task {id} started its attempts in the order {attempts}",
            )
            row = self.rows.get(id)
            known = row["attempt"] if row is not None else 0
            self._expect(
                max(interval.attempt for interval in intervals) <= known,
                f"task {id}: an attempt after {known} has run",
            )

    # Nothing acknowledged is lost

    def _check_answers(self) -> None:
        by_label: Counter[str] = Counter(row["label"] for row in self.rows.values())
        twice = [label for label, count in by_label.items() if count > 1]
        self._expect(not twice, f"stored twice: {twice[:5]}")
        for row in self.rows.values():
            asked = self._by_marker.get(row["label"])
            self._expect(asked is not None and not asked.refused, f"not submitted: task {row['id']}: {row['label']}")
        for question in self._questions():
            if question.id is None:
                continue
            stored = self.rows.get(question.id)
            if stored is None:
                self._expect(False, f"{question} is not in history")
                continue
            self._expect(_key_of(stored) == question.key, f"{question} has the key {_key_of(stored)}")
            is_new = question.kind in ("inserted", "superseded", "requeued")
            by = self._by_marker.get(stored["label"], question)
            renewed = is_new and by.kind != "inserted" and by.id in (None, question.id)
            is_own = stored["label"] == question.marker or (renewed and by.answered_at >= question.asked_at)
            self._expect(is_new == is_own, f"{question} is {stored['label']}")
        for batch in self._batches:
            # The result was lost with the caller: the whole batch was stored, or nothing.
            if all(question.answered_at == FOREVER and question.strategy == "supersede" for question in batch):
                ids = [row["id"] for row in self.rows.values() if row["label"] in {each.marker for each in batch}]
                lost = [each for each in batch if each.marker not in by_label]
                found = len(ids) + sum(self._was_renewed(each, ids, len(batch)) for each in lost)
                self._expect(found in (0, len(batch)), f"{found} of a batch of {len(batch)} are stored: {batch}")

    def _was_renewed(self, lost: Question, ids: Sequence[int], size: int) -> bool:
        """True if a later submission has overwritten a run of a batch, whose other tasks have these ids."""
        near = [self.rows.get(id + step) for id in ids for step in range(-size, size + 1)]
        by = [self._by_marker.get(row["label"], lost) for row in near if row is not None and _key_of(row) == lost.key]
        return any(each.kind in ("requeued", "superseded") and each.answered_at >= lost.asked_at for each in by)

    def _check_superseded(self) -> None:
        replacements: dict[int, Question] = {}
        for question in self._questions():
            old_id, new_id = question.replaced, question.id
            self._expect((old_id is not None) == (question.kind == "superseded"), f"{question} replaced {old_id}")
            if old_id is None or new_id is None:
                continue
            other = replacements.setdefault(old_id, question)
            self._expect(other is question, f"task {old_id} was replaced by {question} and by {other}")
            old = self.rows.get(old_id)
            # It was active when it was replaced, so it had not ended before. A later cancellation or crash
            # does not matter: the replacement came first.
            self._expect(
                old is not None and old["ending"] == "superseded" and _key_of(old) == question.key and old_id < new_id,
                f"{question} replaced task {old_id}, which is {old and old['ending']}",
            )
            late = self._started_after(question.answered_at, old_id)
            self._expect(not late, f"replaced by {question}, started again: {'; '.join(late)}")
            if self._of_task[old_id] and self._of_task[new_id]:
                last, first = max(one.end for one in self._of_task[old_id]), self._of_task[new_id][0]
                self._expect(last <= first.begin, f"{first} began before task {old_id} was over at {last:.4f}")
        unanswered = {question.marker for question in self._questions() if question.answered_at == FOREVER}
        unexplained = [id for id, row in self.rows.items() if row["ending"] == "superseded" and id not in replacements]
        stored = sum(row["label"] in unanswered for row in self.rows.values())
        self._expect(len(unexplained) <= stored, f"superseded without a replacement: {unexplained[:10]}")

    def _check_requeued(self) -> None:
        """A task that was reported as requeued ran again, with that payload or with a later one."""
        rivals_of: defaultdict[str, list[Question]] = defaultdict(list)
        for question in self._questions():
            # A later submission changes a run that was added.
            renews = question.kind in ("requeued", "superseded") or question.answered_at == FOREVER
            if question.strategy in ("requeue", "supersede") and renews:
                rivals_of[question.key].append(question)
        for question in self._questions():
            row = self.rows.get(question.id or 0)
            if question.kind != "requeued" or row is None or row["ending"] in ("cancelled", "superseded"):
                continue
            final = json.loads(row["payload"])["marker"]
            may_be = {
                other.marker
                for other in rivals_of[question.key]
                if other.id in (None, question.id) and other.answered_at >= question.asked_at
            }
            self._expect(final in may_be, f"{question} was promised, task {row['id']} ended as {_told(row)}")
            ran = any(interval.marker == final for interval in self._handlers(row["id"]))
            self._expect(ran or row["ending"] == "expired" or _crashed(row), f"{question} never ran: {_told(row)}")

    def _check_cancelled(self) -> None:
        for line in self._witnesses.of("cancelled"):
            id = line["id"]
            row = self.rows.get(id)
            ending = row and row["ending"]
            late = self._started_after(line["at"], id)
            if line["answer"]:
                # A task that was already being replaced ends as superseded.
                self._expect(ending in ("cancelled", "superseded"), f"task {id} was cancelled and is {ending}")
                self._expect(not late, f"task {id} was cancelled and started again: {'; '.join(late)}")
            elif id not in self._revived:
                late = [str(one) for one in self._of_task[id] if one.end > line["at"]]
                self._expect(not late, f"task {id} had ended, but {'; '.join(late)}")

    def _check_seen(self) -> None:
        for line in self._witnesses.of("seen"):
            id = line["id"]
            if id not in self._revived:
                row = self.rows.get(id)
                ending = row and row["ending"]
                if line["ending"] == "expired" and row and row["expires_at"] and row["ended_at"] < row["expires_at"]:
                    # Its ending was decided before the deadline, and was being committed when the reader looked.
                    continue
                self._expect(ending == line["ending"], f"task {id} was seen as {line['ending']} and is {ending}")
                late = [str(one) for one in self._of_task[id] if one.end > line["at"]]
                self._expect(not late, f"task {id} was seen as {line['ending']}, but {'; '.join(late)}")

    # Endings and hooks

    def _check_ended(self, row: Row) -> None:
        id, ending = row["id"], row["ending"]
        handlers = self._handlers(id)
        last = handlers[-1] if handlers else None
        if ending == "completed":
            result = json.loads(row["result"])
            self._expect(
                last is not None and (last.attempt, last.marker, last.how) == (row["attempt"], result, "work"),
                f"task {id} says {result}, but {last}",
            )
        elif ending == "expired" and last is not None:
            # Only a task that waits for a retry, or to run again, can still expire.
            again = last.marker != json.loads(row["payload"])["marker"]
            self._expect(last.how == "fail" or again, f"task {id} has expired after {last}")
        if last is not None and self._owes_hook(row, last):
            self._check_hook(row, last)

    def _owes_hook(self, row: Row, last: Interval) -> bool:
        """True if the stop of the task was certainly requested while its last attempt ran."""
        if row["type"] not in rivals.WITH_HOOK or _crashed(row):
            return False
        if last.how == "stopped":
            return last.end < self._left.get(last.who, FOREVER)
        # The handler returned, yet the task ended otherwise: the request to stop came first. But if its process died
        # before that was stored, or if the task was to run again, it may have been waiting at the request.
        ended_at = row["ended_at"] / 1000 - time.time() + boot_time()
        again = last.marker != json.loads(row["payload"])["marker"]
        lived = self._witnesses.death_of(last.who) > ended_at
        return row["ending"] in ("cancelled", "superseded") and last.how == "work" and lived and not again

    def _check_hook(self, row: Row, last: Interval) -> None:
        hooks = [one for one in self._of_task[row["id"]] if one.what == "hook" and one.how != "killed"]
        key = _key_of(row)
        after = next((one for one in self.intervals[key] if one.begin >= last.end and one.id != row["id"]), None)
        in_time = [hook for hook in hooks if hook.begin >= last.end and (after is None or hook.end <= after.begin)]
        self._expect(bool(in_time), f"{key}: {last} was stopped ({row['ending']}), no hook ended before {after}")


def _key_of(row: Row) -> str:
    return f"{row['type']} {row['key']}"


def _crashed(row: Row) -> bool:
    return (row["error"] or "").startswith("crashed")


def _told(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("id", "label", "ending", "attempt", "error", "payload")}
