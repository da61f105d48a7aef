"""One run of the demonstration, and the audit of its result.

The run submits the plan in waves, cancels some tasks, and keeps the state for its views. The audit compares what was
submitted with what the file contains. It reads the file with a second scheduler, so that only durable data counts. The
first has closed the file by then, unless a page shows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from taskmill import Ending, HistoryRecord, Scheduler, Snapshot, Status, TaskRecord
from taskmill.cli.demo.workload import WEIGHTS, Piece, Plan, Witness, list_folder, upload, watch
from taskmill.cli.text import counted, duration, plural, size
from taskmill.events import (
    EventsMissed,
    TaskCancelled,
    TaskCompleted,
    TaskDeadLettered,
    TaskEvent,
    TaskExpired,
    TaskFailed,
)

WAVES = 6
RECENT = 40
LISTED = (TaskCompleted, TaskFailed, TaskDeadLettered, TaskCancelled, TaskExpired)


class DemoView(Protocol):
    """Shows the run while it lasts."""

    def draw(self, state: DemoRun, /) -> None: ...


class DemoRun:
    """Runs a plan. ``expected`` maps the id of each task to how it must end."""

    def __init__(self, scheduler: Scheduler, plan: Plan, seconds: float, patience: float) -> None:
        self.scheduler = scheduler
        self.plan = plan
        self.seconds = seconds
        self.expected: dict[int, Ending] = {}
        self.repeated = 0
        """The number of submissions whose key an active task already held."""
        self.recent: deque[TaskEvent] = deque(maxlen=RECENT)
        self.retries_seen = 0
        self.contended = 0
        """The number of snapshots in which all slots were taken and each tenant had tasks waiting."""
        self.slots_seen: Counter[str] = Counter()
        """The running tasks of each tenant in those snapshots, added up."""
        self.snapshot: Snapshot | None = None
        self.link: str | None = None
        """The address of the page, if one is open."""
        self._patience = patience
        self._began = time.monotonic()
        self._took: float | None = None
        self._submitted_all = False
        self._asked: set[int] = set()

    @property
    def elapsed(self) -> float:
        """The seconds since the beginning, or how long it took once it is over."""
        return time.monotonic() - self._began if self._took is None else self._took

    @property
    def ended(self) -> int:
        return sum(self.snapshot.counts.get(ending, 0) for ending in Ending) if self.snapshot else 0

    async def run(self, view: DemoView) -> None:
        """Run the plan until every task has ended, or until ``patience`` seconds have passed."""
        self._began = time.monotonic()
        listening = asyncio.create_task(self._listen())
        submitting = asyncio.create_task(self._submit_in_waves())
        try:
            async with self.scheduler.running():
                await self._watch(view, submitting)
        finally:
            self._took = self.elapsed
            for task in (submitting, listening):
                task.cancel()
            await asyncio.wait([submitting, listening])

    async def _watch(self, view: DemoView, submitting: asyncio.Task[None]) -> None:
        pause = 0.12 if self.seconds else 0.02
        while self.elapsed < self._patience:
            if submitting.done():
                submitting.result()
            self.snapshot = await self.scheduler.snapshot()
            self._compare_tenants(self.snapshot)
            view.draw(self)
            if self._submitted_all and not any(self.snapshot.counts.get(status, 0) for status in Status):
                return
            await self._cancel_in_time(self.snapshot.running)
            await asyncio.sleep(pause)

    def _compare_tenants(self, snapshot: Snapshot) -> None:
        tenants = [snapshot.groups[name] for name in WEIGHTS]
        if len(snapshot.running) == snapshot.max_concurrency and all(tenant.pending for tenant in tenants):
            self.contended += 1
            self.slots_seen.update({tenant.name: tenant.running for tenant in tenants})

    # Submitting

    async def _submit_in_waves(self) -> None:
        pieces = self.plan.pieces
        first = len(pieces) // 2
        await self._submit(pieces[:first])
        # Submit some uploads again, as an impatient user would: their keys are taken, so no task is added.
        again = [piece for piece in pieces[:first] if piece.submission.type == "sync::upload"]
        await self._submit(again[-len(pieces) // 50 :] if again else [])
        wave = -(-len(pieces) // (2 * WAVES))
        for start in range(first, len(pieces), wave):
            await asyncio.sleep(self.seconds * 0.5 / WAVES)
            await self._submit(pieces[start : start + wave])
        self._submitted_all = True

    async def _submit(self, pieces: Sequence[Piece]) -> None:
        handles = await self.scheduler.submit_many(piece.submission for piece in pieces)
        for piece, handle in zip(pieces, handles, strict=True):
            self.expected[handle.id] = piece.ending
            self.repeated += handle.kind in ("duplicate", "upgraded")

    # Cancelling

    async def _cancel_in_time(self, running: Sequence[TaskRecord]) -> None:
        """Cancel ``watch`` tasks that have run long enough, and postponed tasks once everything is submitted."""
        for record in running:
            if record.type == watch.name and record.started_at is not None:
                age = time.time() - record.started_at.timestamp()
                if age >= self.plan.watch_seconds:
                    await self._cancel(record.id)
        if self._submitted_all:
            for record in await self.scheduler.tasks(status=Status.SCHEDULED):
                if self.expected.get(record.id) is Ending.CANCELLED:
                    await self._cancel(record.id)

    async def _cancel(self, id: int) -> None:
        if id not in self._asked:
            self._asked.add(id)
            await self.scheduler.cancel(id)

    # Listening

    async def _listen(self) -> None:
        async with contextlib.aclosing(self.scheduler.events(*LISTED, EventsMissed)) as events:
            async for event in events:
                if isinstance(event, TaskFailed) and event.will_retry:
                    self.retries_seen += 1
                elif isinstance(event, TaskEvent):
                    if isinstance(event, TaskDeadLettered) and self.recent and self.recent[-1].task_id == event.task_id:
                        # Its last failure is an event as well; list the task once.
                        self.recent.pop()
                    self.recent.append(event)


# The audit

ENOUGH_SNAPSHOTS = 10
"""The smallest number of snapshots from which shares are compared."""


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
