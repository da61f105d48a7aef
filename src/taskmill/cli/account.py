"""The demonstration's closing account: what was promised against what the file says.

The file is read by a second scheduler, after the first has closed it: only what is durable counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from taskmill import Ending, HistoryRecord, Scheduler
from taskmill.cli.performance import Performance
from taskmill.cli.words import counted, duration, plural, size
from taskmill.cli.workload import WEIGHTS, Witness, list_folder, upload, watch

ENOUGH_LOOKS = 10
"""Fewer say nothing about shares."""


@dataclass(frozen=True)
class Check:
    """One statement about the demonstration, and whether it holds."""

    holds: bool
    text: str


@dataclass(frozen=True)
class Account:
    """Every task by where it was found."""

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


async def settled(file: str, performance: Performance, witness: Witness) -> Account:
    took = performance.elapsed
    async with Scheduler(file, retention=None) as scheduler:
        history = {record.id: record for record in await scheduler.history()}
        active = {record.id for record in await scheduler.tasks()}
    expected = performance.expected
    endings = Counter(str(history[id].ending) for id in expected if id in history)
    account = Account(
        submitted=len(expected),
        endings={str(ending): endings[ending] for ending in Ending if endings[ending]},
        still_active=sum(id in active for id in expected),
        lost=sum(id not in history and id not in active for id in expected),
        seconds=round(took, 3),
        checks=[],
    )
    account.checks.extend(_checks(account, history, performance, witness))
    return account


def _checks(
    account: Account, history: dict[int, HistoryRecord], performance: Performance, witness: Witness
) -> Iterator[Check]:
    expected = performance.expected
    active = f", {account.still_active:,} still active" if account.still_active else ""
    yield Check(
        not account.lost and not account.still_active and history.keys() == expected.keys(),
        f"{plural(account.submitted, 'task')} submitted, {account.accounted_for:,} accounted for"
        f" in {duration(account.seconds)}: {counted(account.endings)}{active}",
    )
    astray = [id for id, ending in expected.items() if id in history and history[id].ending is not ending]
    yield Check(
        not astray,
        "each of them ended the way it had to"
        if not astray
        else f"{plural(len(astray), 'task')} ended in another way than it had to, such as {astray[:5]}",
    )
    yield Check(
        not witness.overlaps,
        f"{plural(witness.attempts, 'attempt')}, at most {witness.most_at_once} at once,"
        f" {'two' if witness.overlaps else 'never two'} of the same task",
    )
    yield _uploads(history, witness)
    yield _retries(history)
    yield _hooks(history, witness)
    if performance.contended >= ENOUGH_LOOKS:
        yield _shares(performance)
    if performance.repeated:
        yield Check(
            True,
            f"{plural(performance.repeated, 'repeated submission')} met the task that held the key and added none",
        )


def _shares(performance: Performance) -> Check:
    (heavy, more), (light, less) = WEIGHTS.items()
    average = {name: performance.slots_seen[name] / performance.contended for name in WEIGHTS}
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
