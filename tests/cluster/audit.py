"""Checks of every guarantee on the journals, the log of claims and the rows, whatever faults happened."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise

from taskmill.policy.verdicts import MOST_CRASHES, is_crash
from tests.cluster import work
from tests.cluster.crowd import Fault
from tests.cluster.pace import LEASE, MINUTE, minute_of, real
from tests.cluster.witnesses import Interval, Row, Span, Witnesses, really

CLAIMED_BEFORE = 1.0
"""Seconds within which an attempt begins that was claimed before a pause."""
TAKEOVER = 2.0
"""Seconds within which a node that has the store open dispatches, if no other does."""


class Audit:
    """Checks all guarantees and collects the violations."""

    def __init__(
        self, witnesses: Witnesses, faults: list[Fault], since: float, until: float, resumed_at: float
    ) -> None:
        """Cron tasks had to run from ``since`` to ``until``.

        ``resumed_at`` is when all pauses were ended.
        """
        self._seen = witnesses
        self._faults = faults
        self._since, self._until = since, until
        self._resumed_at = resumed_at
        self._of_task = witnesses.of_task()
        self.wrong: list[str] = list(witnesses.wrong)

    def hold(self) -> list[str]:
        """Return all violations."""
        self._check_nothing_is_lost()
        self._check_one_at_a_time()
        self._check_attempts()
        self._check_endings()
        self._check_requeued()
        self._check_families()
        self._check_dependencies()
        self._check_caps()
        self._check_rates()
        self._check_pauses()
        self._check_cron()
        self._check_series()
        self._check_books()
        return self.wrong

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    # Nothing acknowledged is lost

    def _check_nothing_is_lost(self) -> None:
        history, active = self._seen.history, self._seen.active
        left = [row for row in active.values() if row["cron"] is None]
        self._expect(not left, f"still active: {[(row['id'], row['status'], row['label']) for row in left[:10]]}")
        stored: defaultdict[str, list[Row]] = defaultdict(list)
        for row in [*history.values(), *active.values()]:
            if row["label"] is not None:
                stored[row["label"]].append(row)
        batches: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for asked in self._seen.asked.values():
            batches[asked.marker.split("-")[0], asked.batch].append(asked.marker)
            found = stored[asked.marker]
            most = asked.runs or 1
            self._expect(len(found) <= most, f"{asked.marker} is stored {len(found)} times")
            if asked.id is None:
                continue
            self._expect(asked.id in history or asked.id in active, f"{asked} was acknowledged and is lost")
            if asked.kind in ("inserted", "superseded") and asked.key is None:
                ids = [row["id"] for row in found]
                self._expect(asked.id in ids, f"{asked} is stored as {ids}")
        for markers in batches.values():
            # A batch is stored as a whole or not at all; a submission with a key may be a duplicate.
            plain = [marker for marker in markers if self._seen.asked[marker].key is None]
            there = [marker for marker in plain if stored[marker]]
            self._expect(len(there) in (0, len(plain)), f"{there} of {plain} are stored")

    # One at a time

    def _check_one_at_a_time(self) -> None:
        by_task: defaultdict[object, list[Span]] = defaultdict(list)
        for span in self._seen.spans():
            by_task[span.of.id].append(span)
            if span.of.key is not None:
                by_task[span.of.type, span.of.key].append(span)
        for what, spans in by_task.items():
            latest: Span | None = None
            for span in sorted(spans):
                if latest is not None and span.begin < latest.end and span.of != latest.of:
                    self._expect(
                        False,
                        f"{what}: {span.of} beside {latest.of} for {min(span.end, latest.end) - span.begin:.3f} s",
                    )
                if latest is None or span.end > latest.end:
                    latest = span

    def _check_attempts(self) -> None:
        """A task whose handler is done runs again only if its node could not record that."""
        for id, intervals in self._of_task.items():
            mains = [one for one in intervals if one.part == "main"]
            tokens = Counter((one.attempt, one.part) for one in intervals)
            twice = [each for each, count in tokens.items() if count > 1]
            self._expect(not twice, f"task {id} began {twice} more than once")
            mains.sort(key=lambda one: one.attempt)
            for earlier, later in pairwise(mains):
                # Claimed by a node that was suspended before the attempt began: it begins on waking and stops at once.
                stale = earlier.begin > later.begin and really(earlier, self._seen.absences[earlier.who])
                self._expect(not stale, f"{earlier} after {later}")
            for done, again in pairwise(mains):
                if done.how == "done":
                    self._expect(self._was_disturbed(done, again.begin), f"{again} though {done}")

    def _was_disturbed(self, done: Interval, until: float) -> bool:
        """True if a fault hit the node around the time when it would have recorded the end of the handler."""
        if self._seen.deaths.get(done.who, float("inf")) < until:
            return True
        return any(
            fault.target in ("all", done.who) and fault.since < until and fault.until > done.begin - LEASE
            for fault in self._faults
        )

    # Endings

    def _check_endings(self) -> None:
        for row in self._seen.history.values():
            id, ending, attempt = row["id"], row["ending"], row["attempt"]
            intervals = self._of_task.get(id, [])
            highest = max((one.attempt for one in intervals), default=0)
            self._expect(highest <= attempt, f"task {id}: attempt {highest} ran, {attempt} is known")
            told = f"task {id} ({row['label']}) is {ending} after attempt {attempt}: {row['error']}"
            if ending == "completed":
                done = {f"{one.who}/{one.attempt}" for one in intervals if one.how == "done"}
                result = json.loads(row["result"])
                self._expect(result in done, f"{told}: {result} is not one of {done}")
                self._expect(result.endswith(f"/{attempt}"), f"{told}: {result}")
            elif ending == "dead_letter":
                self._expect(is_crash(row["error"]) and attempt >= MOST_CRASHES, told)
            elif ending == "cancelled":
                self._expect(id in self._seen.cancelling or self._has_failed_elder(row), told)
            elif ending == "superseded":
                self._expect(row["key"] is not None or row["type"] == work.minutely.name, told)
            elif ending == "expired":
                self._expect(row["expires_at"] is not None, told)
                done = {str(one) for one in intervals if one.how == "done"}
                self._expect(
                    not done or self._was_disturbed(intervals[-1], intervals[-1].end + LEASE), f"{told}; {done}"
                )
            else:
                self._expect(ending == "dependency_failed" and self._has_failed_elder(row), told)
        for id, answer in self._seen.cancelled.items():
            ending = self._seen.history[id]["ending"] if id in self._seen.history else "active"
            # It may have been superseded before; then that is its ending.
            self._expect(
                not answer or ending in ("cancelled", "superseded"), f"task {id} was cancelled and is {ending}"
            )

    def _has_failed_elder(self, row: Row) -> bool:
        """True if the task depends on, or is a child of, a task that did not complete."""
        elders = {edge["on_id"] for edge in self._seen.dependencies if edge["task_id"] == row["id"]}
        elders.add(row["parent_id"])
        return any(self._seen.history[id]["ending"] != "completed" for id in elders if id in self._seen.history)

    def _check_requeued(self) -> None:
        """If a submission was answered with ``requeued``, an attempt of the task began later."""
        for asked in self._seen.asked.values():
            if asked.kind != "requeued" or asked.id not in self._seen.history:
                continue
            row = self._seen.history[asked.id]
            later = any(one.begin > asked.asked_at for one in self._of_task.get(asked.id, []))
            ended_otherwise = row["ending"] in ("cancelled", "superseded", "dead_letter")
            self._expect(
                later or ended_otherwise, f"{asked}: task {row['id']} did not run again and is {row['ending']}"
            )

    # Links

    def _check_families(self) -> None:
        children: defaultdict[int, list[Row]] = defaultdict(list)
        for row in self._seen.history.values():
            if row["parent_id"] is not None:
                children[row["parent_id"]].append(row)
        for parent, rows in children.items():
            elder = self._seen.history.get(parent)
            if elder is None:
                self._expect(False, f"children of {parent} have ended, and it is not in history")
                continue
            last = max(row["ended_at"] for row in rows)
            self._expect(elder["ended_at"] >= last, f"task {parent} has ended before its children")
            if elder["ending"] != "completed":
                continue
            final = [one for one in self._of_task[parent] if one.part == "finalize"]
            self._expect(bool(final), f"task {parent} is completed without finalize")
            for one in final:
                for child in rows:
                    late = [it for it in self._of_task.get(child["id"], []) if it.begin > one.begin]
                    self._expect(not late, f"{one} before {late[:1]}")

    def _check_dependencies(self) -> None:
        for edge in self._seen.dependencies:
            self._expect(not edge["open"], f"task {edge['task_id']} still waits for {edge['on_id']}")
            mine, others = self._of_task.get(edge["task_id"]), self._of_task.get(edge["on_id"])
            if mine and others:
                self._expect(mine[0].begin >= others[-1].begin, f"{mine[0]} before {others[-1]}, which it depends on")

    # Limits

    def _check_caps(self) -> None:
        limits: list[tuple[str, int, Callable[[str, str], bool]]] = [
            ("the group", work.GROUP_CAP, lambda group, _: group == "capped"),
            ("the domain", work.DOMAIN_CAP, lambda _, name: name.startswith("narrow::")),
        ]
        for name, cap, concerns in limits:
            spans = [span for span in self._seen.spans() if concerns(span.of.group, span.of.type)]
            self._expect(_most_at_once(spans) <= cap, f"journals: {_most_at_once(spans)} of {name} at once, cap {cap}")
            running, most = set[tuple[int, int]](), 0
            for line in self._seen.seen:
                if line["what"] == "bucket" or not concerns(line["group_name"], line["type"]):
                    continue
                if line["what"] == "end":
                    running.discard((line["id"], line["attempt"]))
                elif not line["is_hook"]:
                    running.add((line["id"], line["attempt"]))
                    most = max(most, len(running))
            self._expect(most <= cap, f"rows: {most} of {name} at once, cap {cap}")

    def _check_rates(self) -> None:
        """Check the rate in the order of claims, by the latest time that any of them knew of: time never goes back."""
        claims: list[float] = []
        for line in self._seen.seen:
            if line["what"] == "claim" and line["group_name"] == "rated":
                claims.append(max(real(line["now"]), claims[-1] if claims else 0.0))
        # One more start, because times are rounded to milliseconds of the faster clock.
        most, begin = 0.0, 0.0
        for first, since in enumerate(claims):
            for last in range(first, len(claims)):
                over = last - first + 1 - work.BURST - work.PERMITS * (claims[last] - since)
                if over > most:
                    most, begin = over, since
        self._expect(most <= 0.01, f"the rate was exceeded by {most:.2f} starts after {begin:.3f}")

    def _check_pauses(self) -> None:
        """No task of a group starts between the return of ``pause`` and the call of ``resume``."""
        paused: dict[str, float] = {}
        for line in sorted(self._seen.controls, key=lambda line: line["at"]):
            group, at = line["group"], line["at"]
            if line["verb"] == "pause" and line["fact"] == "controlled":
                paused[group] = at
            elif line["verb"] == "resume" and line["fact"] == "controlling" and group in paused:
                self._expect_no_start(group, paused.pop(group), at)
        for group, since in paused.items():
            self._expect_no_start(group, since, self._resumed_at)

    def _expect_no_start(self, group: str, since: float, until: float) -> None:
        for one in self._seen.intervals:
            # An attempt claimed just before the pause may begin just after it.
            late = one.group == group and one.part == "main" and since + CLAIMED_BEFORE < one.begin < until
            if late and not self._has_absence((since, one.begin)):
                self._expect(False, f"{one} while its group was paused from {since:.3f} to {until:.3f}")

    # Work by the clock

    def _check_cron(self) -> None:
        rows = [
            row
            for row in [*self._seen.history.values(), *self._seen.active.values()]
            if row["type"] == work.minutely.name
        ]
        fired = Counter(minute_of(row["created_at"]) for row in rows)
        twice = {minute: count for minute, count in fired.items() if count > 1}
        self._expect(not twice, f"occurrences that fired more than once: {twice}")
        (state,) = self._seen.cron
        self._expect(state["runs"] == len(rows), f"{state['runs']} runs of {len(rows)} firings")
        first, last = int(self._since // MINUTE) + 1, int(self._until // MINUTE) - 1
        missing = [minute for minute in range(first, last) if not fired[minute] and not self._passed(minute, rows)]
        self._expect(not missing, f"occurrences that did not fire: {missing} of {first} to {last}")
        bad = [
            (row["id"], row["ending"])
            for row in rows
            if row.get("ending", "completed") not in ("completed", "superseded")
        ]
        crashed = [row["id"] for row in rows if row.get("error") and is_crash(row["error"])]
        self._expect({id for id, _ in bad} <= set(crashed), f"firings that ended otherwise: {bad}")

    def _passed(self, minute: int, rows: Iterable[Row]) -> bool:
        """True if an earlier one ran, or waited to start, at that minute, or if no node could fire it."""
        begin, end = minute * MINUTE, (minute + 1) * MINUTE
        earlier = [row for row in rows if real(row["created_at"]) < begin]
        at_work = any(real(row.get("ended_at") or 1e18) > end - 0.5 for row in earlier)
        settled = any(real(row["started_at"] or 1e18) >= begin for row in earlier)
        return (
            at_work
            or settled
            # Starting a process takes seconds on a busy machine, and the other nodes may have been killed meanwhile.
            or not self._seen.had_node(end - TAKEOVER, end)
            or any(fault.target == "all" and fault.since < end and fault.until + 2 > end for fault in self._faults)
        )

    def _check_series(self) -> None:
        found: defaultdict[int, list[Row]] = defaultdict(list)
        for row in self._seen.history.values():
            if row["series_id"] is not None:
                found[row["series_id"]].append(row)
        for series, rows in found.items():
            dues = [row["due_at"] for row in rows if row["due_at"] is not None]
            self._expect(len(dues) == len(set(dues)), f"series {series} has two occurrences of one moment: {dues}")
            spans = sorted((one.begin, one.end) for row in rows for one in self._of_task.get(row["id"], []))
            alone = all(one[1] <= other[0] or self._has_absence(one) for one, other in pairwise(spans))
            self._expect(alone, f"occurrences of series {series} beside each other: {spans}")

    def _has_absence(self, span: tuple[float, float]) -> bool:
        return any(
            since < span[1] and until > span[0] for each in self._seen.absences.values() for since, until in each
        )

    # Counters

    def _check_books(self) -> None:
        history = self._seen.history.values()
        kept = Counter((row["type"], row["group_name"], row["ending"]) for row in history)
        tallied = Counter[tuple[str, str, str]]()
        for row in self._seen.tally:
            tallied[row["type"], row["group_name"], row["ending"]] += row["kept"]
        self._expect(kept == +tallied, f"the tally says {dict(tallied)}, history {dict(kept)}")
        waiting = [row for row in self._seen.active.values() if row["status"] != "running"]
        counted = Counter((row["group_name"], row["type"], row["status"]) for row in waiting)
        load = Counter[tuple[str, str, str]]()
        for row in self._seen.load:
            load[row["group_name"], row["type"], row["status"]] += row["tasks"]
        self._expect(load == counted, f"the load says {dict(load)}, the rows {dict(counted)}")
        both = self._seen.history.keys() & self._seen.active.keys()
        self._expect(not both, f"both active and ended: {sorted(both)}")
        running = [row["id"] for row in self._seen.active.values() if row["status"] == "running"]
        self._expect(not running, f"running after all processes have left: {running}")
        self._expect(not self._seen.nodes, f"nodes that are still there: {self._seen.nodes}")


def _most_at_once(spans: Iterable[Span]) -> int:
    changes = sorted([(span.end, -1) for span in spans] + [(span.begin, 1) for span in spans])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def share(intervals: Iterable[Interval], since: float, until: float, group: str) -> float:
    """Return the slot seconds that a group used in an interval."""
    return sum(max(0.0, min(one.end, until) - max(one.begin, since)) for one in intervals if one.group == group)
