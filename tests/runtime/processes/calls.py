"""Calls handlers through the process executor, without a scheduler."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Any

from taskmill.core.clock import SystemClock
from taskmill.define.context import Context
from taskmill.define.task import Task
from taskmill.errors import InvalidState
from taskmill.execute.child import OutOfReach
from taskmill.execute.in_processes import ProcessExecutor
from taskmill.execute.work import RunningHandler, Work
from taskmill.handle import Handle, Spawned
from taskmill.model.attempt import RawOutcome
from taskmill.model.io_budget import IoBudget
from taskmill.model.progress import ProgressReport
from taskmill.model.records import TaskRecord
from taskmill.model.status import Status
from taskmill.model.submission import Stored, Submission

MOMENT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


class CountingClock(SystemClock):
    def __init__(self) -> None:
        self.working = 0

    def work_begins(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        self.working += may_block

    def work_ends(self, *, may_block: bool = False, thread: threading.Thread | None = None) -> None:
        self.working -= may_block


class RecordingLink:
    """An attempt's side of the Context: records the requests of the handler."""

    stop_requested = False

    def __init__(self) -> None:
        self.reports: list[ProgressReport] = []
        self.saves: list[str] = []
        self.moved: list[IoBudget] = []
        self.spawned: list[tuple[Submission, bool]] = []
        self.refuses_saves = False
        self._reported = asyncio.Event()

    def report(self, progress: ProgressReport) -> None:
        self.reports.append(progress)
        self._reported.set()

    def record_io(self, moved: IoBudget) -> None:
        self.moved.append(moved)

    def save(self, saved: str) -> Awaitable[None]:
        return self._save(saved)

    async def _save(self, saved: str) -> None:
        if self.refuses_saves:
            raise InvalidState("attempt 1 of task 7 is over")
        self.saves.append(saved)

    def spawn(self, submissions: Sequence[Submission], *, sibling: bool) -> Spawned:
        return Spawned(pending=self._spawn(submissions, sibling))

    async def _spawn(self, submissions: Sequence[Submission], sibling: bool) -> list[Handle[Any]]:
        if self.refuses_saves:
            raise InvalidState("attempt 1 of task 7 is over")
        self.spawned += [(submission, sibling) for submission in submissions]
        return [Handle(OutOfReach(), Stored(100 + number, "inserted")) for number in range(len(submissions))]

    async def first_report(self) -> ProgressReport:
        """Return the first report, which shows that the handler runs."""
        while not self.reports:
            await self.next_report()
        return self.reports[0]

    async def next_report(self) -> None:
        """Wait for a report; return at once if there was one since the last call."""
        await self._reported.wait()
        self._reported.clear()


class Current:
    """The task that a call belongs to."""

    trace = stop_reason = None

    def __init__(self, record: TaskRecord) -> None:
        self.task = record

    def record(self) -> TaskRecord:
        return self.task


class StartedCall:
    """One call of a handler: its link, its running handle, and all its outcomes."""

    def __init__(self, task: Task[..., Any], args: tuple[Any, ...], saved: str | None = None) -> None:
        self.link = RecordingLink()
        self.outcomes: list[RawOutcome] = []
        self.running: RunningHandler | None = None
        self._ended = asyncio.Event()
        arguments, payload = task.type.signature.encode(args, {})
        record = TaskRecord(
            id=7,
            type=task.name,
            domain=task.domain.name,
            key="k",
            label=None,
            group="",
            priority=128,
            effective_priority=100,
            payload=arguments,
            tags={"colour": "blue"},
            attempt=2,
            retries=1,
            created_at=MOMENT,
            run_at=None,
            expires_at=None,
            started_at=MOMENT,
            parent_id=None,
            progress=None,
            last_error="Söme\nerror",
            io=IoBudget(disk_write=3),
            status=Status.RUNNING,
        )
        self.work = Work(
            task.type,
            "main",
            task.type.main,
            record.id,
            record.attempt,
            payload,
            list(args),
            {},
            Current(record),
            lambda: Context(lambda: record, self.link, saved, {}),
            self.link,
            saved,
            None,
        )

    def start(self, executor: ProcessExecutor) -> StartedCall:
        self.running = executor.start(self.work, self._end)
        return self

    def interrupt(self) -> None:
        assert self.running is not None
        self.running.interrupt()

    async def outcome(self) -> RawOutcome:
        await self._ended.wait()
        assert len(self.outcomes) == 1
        return self.outcomes[0]

    def _end(self, outcome: RawOutcome) -> None:
        self.outcomes.append(outcome)
        self._ended.set()


def start(executor: ProcessExecutor, task: Task[..., Any], *args: Any, saved: str | None = None) -> StartedCall:
    return StartedCall(task, args, saved).start(executor)


async def outcome_of(
    executor: ProcessExecutor, task: Task[..., Any], *args: Any, saved: str | None = None
) -> RawOutcome:
    return await start(executor, task, *args, saved=saved).outcome()
