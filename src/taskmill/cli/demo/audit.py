"""The audit at the end of the demonstration: compares what was submitted with what the file contains.

A second scheduler reads the file after the first has closed it, so that only durable data counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from taskmill import Ending, HistoryRecord, Scheduler
from taskmill.cli.demo.run import DemoRun
from taskmill.cli.demo.workload import WEIGHTS, Witness, list_folder, upload, watch
from taskmill.cli.text import counted, duration, plural, size

ENOUGH_SNAPSHOTS = 10
"""The least number of snapshots for a comparison of shares."""


@dataclass(frozen=True)
class Check:
    """One statement about the demonstration; ``holds`` is True if it is true."""

    holds: bool
    text: str


@dataclass(frozen=True)
class Audit:
    """How many tasks were submitted, and where they were found."""

    submitted: int
    endings: dict[str, int]
    still_active: int
    lost: int
    seconds: float
    checks: list[Check]

    @property
    def accounted_for(self) -> int:
        return self.submitted - self.lost

    @property
    def balances(self) -> bool:
        return all(check.holds for check in self.checks)


async def audited(file: str, run: DemoRun, witness: Witness) -> Audit:
    took = run.elapsed
    async with Scheduler(file, retention=None) as scheduler:
        history = {record.id: record for record in await scheduler.history()}
        active = {record.id for record in await scheduler.tasks()}
    expected = run.expected
    endings = Counter(str(history[id].ending) for id in expected if id in history)
    audit = Audit(
        submitted=len(expected),
        endings={str(ending): endings[ending] for ending in Ending if endings[ending]},
        still_active=sum(id in active for id in expected),
        lost=sum(id not in history and id not in active for id in expected),
        seconds=round(took, 3),
        checks=[],
    )
    audit.checks.extend(_checks(audit, history, run, witness))
    return audit


def _checks(audit: Audit, history: dict[int, HistoryRecord], run: DemoRun, witness: Witness) -> Iterator[Check]:
    expected = run.expected
    active = f", {audit.still_active:,} still active" if audit.still_active else ""
    yield Check(
        not audit.lost and not audit.still_active and history.keys() == expected.keys(),
        f"{plural(audit.submitted, 'task')} submitted, {audit.accounted_for:,} accounted for"
        f" in {duration(audit.seconds)}: {counted(audit.endings)}{active}",
    )
    astray = [id for id, ending in expected.items() if id in history and history[id].ending is not ending]
    yield Check(
        not astray,
        "each of them ended as planned"
        if not astray
        else f"{plural(len(astray), 'task')} did not end as planned, such as {astray[:5]}",
    )
    yield Check(
        not witness.overlaps,
        f"{plural(witness.attempts, 'attempt')}, at most {witness.most_at_once} at once,"
        f" {'two' if witness.overlaps else 'never two'} of the same task",
    )
    yield _uploads(history, witness)
    yield _retries(history)
    yield _hooks(history, witness)
    if run.contended >= ENOUGH_SNAPSHOTS:
        yield _shares(run)
    if run.repeated:
        yield Check(
            True,
            f"{plural(run.repeated, 'repeated submission')} had a key that was taken, and added no task",
        )


def _shares(run: DemoRun) -> Check:
    (heavy, more), (light, less) = WEIGHTS.items()
    average = {name: run.slots_seen[name] / run.contended for name in WEIGHTS}
    return Check(
        average[heavy] > average[light] * more / less / 2,
        f"while both had tasks waiting, {heavy} (weight {more}) ran {average[heavy]:.1f} at once"
        f" and {light} (weight {less}) {average[light]:.1f}",
    )


def _uploads(history: dict[int, HistoryRecord], witness: Witness) -> Check:
    done = [record for record in history.values() if record.type == upload.name and record.ending is Ending.COMPLETED]
    stored = sum(record.result["bytes"] for record in done)
    return Check(
        stored == witness.uploaded,
        f"{plural(len(done), 'upload')} of {size(stored)}; their results add up to what the handlers sent",
    )


def _retries(history: dict[int, HistoryRecord]) -> Check:
    flaky = [record for record in history.values() if record.type == list_folder.name]
    right = all(record.retries == record.payload["busy"] for record in flaky)
    retried = [record.retries for record in flaky if record.retries]
    return Check(right, f"{plural(len(retried), 'flaky task')} completed after {sum(retried)} retries with backoff")


def _hooks(history: dict[int, HistoryRecord], witness: Witness) -> Check:
    watched = [record for record in history.values() if record.type == watch.name]
    return Check(
        sorted((record.id, record.payload["folder"]) for record in watched) == sorted(witness.unwatched),
        f"{plural(len(watched), 'running task')} cancelled; the clean-up hook of each ran once",
    )
