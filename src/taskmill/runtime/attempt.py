"""One attempt at a claimed task: its phase, the requests of its handler, and the values that its verdict needs.

The phase says which code of the task is running, and whether the outcome depends on that code:

- An attempt takes a slot when it is created and keeps it until phase ``ENDED``.
- Its normal path is ``STARTING``, ``RUNNING``, ``ENDED``. A request to stop adds ``STOPPING``; if the task itself ends,
  its ``on_cancel`` hook adds ``CLEANING_UP``.
- An attempt lingers if its outcome no longer depends on its code, but the code is still running. This happens to a
  cancelled handler that does not stop within ``cancel_timeout``, and to a handler or hook that outlasts a shutdown.
- An ended attempt returns to ``STOPPING`` in one case only: a request to stop was committed before its verdict, so the
  store refuses the verdict.

:data:`FOLLOWS` lists every change of phase; :meth:`Attempt.enter` refuses all others.
:mod:`taskmill.runtime.attempts` makes them.
"""

import asyncio
import heapq
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec

from taskmill.core.ports import Clock
from taskmill.define.context import ALREADY_DONE, Context
from taskmill.define.registry import RegisteredType
from taskmill.errors import InvalidState
from taskmill.execute.work import RunningHandler
from taskmill.handle import Handle, Spawned
from taskmill.model.attempt import Outcome, Stopped, StopReason
from taskmill.model.durations import from_ms, optional_from_ms
from taskmill.model.io_budget import IoBudget, stored_budget
from taskmill.model.options import decode_tags
from taskmill.model.progress import ByteRate, ProgressReport, StoredProgress, TaskProgress, readable_progress
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.settings import Retry
from taskmill.model.status import Status
from taskmill.model.submission import Submission
from taskmill.model.task import NO_OVERRIDES, Claimed, Origin, Overrides, StoredTrace
from taskmill.model.type_name import domain_of
from taskmill.policy.progress import advanced, measured_rate

_decode_overrides = msgspec.json.Decoder(Overrides).decode
_decode_payload = msgspec.json.Decoder().decode

_RECORDING = threading.Lock()
"""Guards the sum of moved bytes: a handler may call ``ctx.record_io`` in several threads."""

Saver = Callable[[int, int, str], Awaitable[bool]]
Spawner = Callable[[Sequence[Submission], Origin], Awaitable[list[Handle[Any]]]]


class Phase(StrEnum):
    """How far an attempt has come."""

    STARTING = "starting"
    """The slot is taken; the handler has not been called."""
    RUNNING = "running"
    """The handler is running."""
    STOPPING = "stopping"
    """The attempt was asked to stop; the handler may still be running."""
    CLEANING_UP = "cleaning_up"
    """The handler has ended and the ``on_cancel`` hook is running."""
    HANDLER_LINGERS = "handler_lingers"
    """The handler is running, but the outcome does not depend on it. The slot stays taken."""
    HOOK_LINGERS = "hook_lingers"
    """The hook is running, but the outcome does not depend on it. The slot stays taken."""
    ENDED = "ended"
    """The slot is free."""


FOLLOWS: Mapping[Phase, frozenset[Phase]] = {
    Phase.STARTING: frozenset({Phase.RUNNING, Phase.STOPPING, Phase.HANDLER_LINGERS, Phase.ENDED}),
    Phase.RUNNING: frozenset({Phase.STOPPING, Phase.HANDLER_LINGERS, Phase.ENDED}),
    Phase.STOPPING: frozenset({Phase.CLEANING_UP, Phase.HANDLER_LINGERS, Phase.ENDED}),
    Phase.CLEANING_UP: frozenset({Phase.HOOK_LINGERS, Phase.ENDED}),
    Phase.HANDLER_LINGERS: frozenset({Phase.ENDED}),
    Phase.HOOK_LINGERS: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset({Phase.STOPPING}),
}
"""The phases that may follow each phase."""

# Python 3.11 is slow to look up a member of an enum, and every attempt needs this one.
_STARTING = Phase.STARTING
_AFTER_HANDLER = frozenset({Phase.CLEANING_UP, Phase.HOOK_LINGERS, Phase.ENDED})


class Attempt:
    """One attempt at a task. Its token ``(id, attempt)`` guards everything it writes."""

    __slots__ = (
        "_loop",
        "_loop_thread",
        "_noticed",
        "_saver",
        "_spawner",
        "byte_rate",
        "children",
        "ended_at",
        "hook",
        "io",
        "latest",
        "note",
        "outcome",
        "overrides",
        "phase",
        "progress",
        "running",
        "spawned",
        "started",
        "stop_reason",
        "task",
        "type",
    )

    def __init__(
        self,
        task: Claimed,
        type: RegisteredType,
        started: float,
        saver: Saver,
        spawner: Spawner,
        noticed: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.task = task
        self.type = type
        self.started = started
        self.overrides = NO_OVERRIDES
        self.phase = _STARTING
        self.running: RunningHandler | None = None
        """The handler, while it is running."""
        self.hook: RunningHandler | None = None
        """The ``on_cancel`` hook, while it is running and decides the outcome."""
        self.stop_reason: StopReason | None = None
        self.note: str | None = None
        """Problems while the attempt was stopped, for the record of the task."""
        self.outcome: Outcome | None = None
        """The outcome, once it has been handed on."""
        self.ended_at: float | None = None
        """When the outcome was handed on for the first time."""
        self.spawned = False
        """True if this attempt has asked for children."""
        self.children: Sequence[HistoryRecord] = ()
        self.latest: ProgressReport | None = None
        """The last report that has not been written yet."""
        self.progress: StoredProgress | None = None
        self.byte_rate: ByteRate | None = None
        self.io: IoBudget | None = None
        """The moved bytes, as far as they were reported or measured."""
        self._saver = saver
        self._spawner = spawner
        self._noticed = noticed
        self._loop = loop
        self._loop_thread = threading.get_ident()

    def enter(self, phase: Phase) -> None:
        """Move to the next phase; raise ``RuntimeError`` if it may not follow the current one."""
        if phase not in FOLLOWS[self.phase]:
            token = f"attempt {self.task.attempt} of task {self.task.id}"
            raise RuntimeError(f"{token} cannot go from {self.phase} to {phase}")
        self.phase = phase

    def read_overrides(self, stored: str) -> str | None:
        """Decode the options that were stored with the task; return an error message if they are unreadable."""
        try:
            self.overrides = _decode_overrides(stored)
        except msgspec.MsgspecError as wrong:
            return f"its stored options are unreadable: {wrong}"
        return None

    @property
    def retry(self) -> Retry:
        return self.overrides.retry or self.type.retry

    @property
    def timeout_ms(self) -> int | None:
        own = self.overrides.timeout_ms
        return self.type.timeout_ms if own == NO_OVERRIDES.timeout_ms else own

    @property
    def trace(self) -> StoredTrace | None:
        return self.overrides.trace

    def is_first_ending(self, now: float) -> bool:
        """Note the time of the ending. True if it is the first: a refused verdict leads to a second."""
        is_first = self.ended_at is None
        self.ended_at = now if self.ended_at is None else self.ended_at
        return is_first

    @property
    def duration_ms(self) -> int:
        return 0 if self.ended_at is None else round((self.ended_at - self.started) * 1000)

    @property
    def can_be_stopped(self) -> bool:
        """True if the handler notices a request to stop; a plain function in a thread does not."""
        main = self.type.handler.main
        return main.is_async or main.wants_context or self.type.in_process

    @property
    def has_family(self) -> bool:
        """True if the task may have children."""
        return self.spawned or self.task.family is not None

    @property
    def fail_fast(self) -> bool:
        own = self.overrides.fail_fast
        return self.type.fail_fast if own is None else own

    def stop(self, reason: StopReason) -> None:
        """Ask the handler to stop, once. The first reason counts, but the end of the task outranks an interruption."""
        if self.stop_reason is None or (reason.ends_task and not self.stop_reason.ends_task):
            self.stop_reason = reason
        if self.phase is Phase.STARTING or self.phase is Phase.RUNNING:
            self.enter(Phase.STOPPING)
            if self.running is not None:
                self.running.interrupt()

    @property
    def ends_task(self) -> bool:
        """True if a request to stop ends the task, whatever its handler returns."""
        return self.stop_reason is not None and self.stop_reason.ends_task

    @property
    def is_handler_over(self) -> bool:
        return self.phase in _AFTER_HANDLER

    def add_note(self, problem: str) -> None:
        self.note = problem if self.note is None else f"{self.note}; {problem}"

    def stopped(self, *, awaits_children: bool = False) -> Stopped:
        """Return the outcome of this attempt, which was asked to stop."""
        return Stopped(self.stop_reason or StopReason.CANCEL, self.note, awaits_children)

    # Requests of the handler, through its Context

    @property
    def stop_requested(self) -> bool:
        return self.stop_reason is not None

    def report(self, progress: ProgressReport) -> None:
        first, self.latest = self.latest is None, progress
        if first:
            if threading.get_ident() == self._loop_thread:
                self._noticed()
            else:
                self._loop.call_soon_threadsafe(self._noticed)

    def record_io(self, moved: IoBudget) -> None:
        with _RECORDING:
            self.io = moved if self.io is None else self.io + moved

    def save(self, saved: str) -> Awaitable[None]:
        if threading.get_ident() == self._loop_thread:
            return self._save(saved)
        asyncio.run_coroutine_threadsafe(self._save(saved), self._loop).result()
        return ALREADY_DONE

    async def _save(self, saved: str) -> None:
        if not await self._saver(self.task.id, self.task.attempt, saved):
            raise InvalidState(f"attempt {self.task.attempt} of task {self.task.id} is over; nothing was saved")
        self.task.saved = saved

    def spawn(self, submissions: Sequence[Submission], *, sibling: bool) -> Spawned:
        if threading.get_ident() == self._loop_thread:
            return Spawned(pending=self._spawn(submissions, sibling))
        return Spawned(asyncio.run_coroutine_threadsafe(self._spawn(submissions, sibling), self._loop).result())

    async def _spawn(self, submissions: Sequence[Submission], sibling: bool) -> list[Handle[Any]]:
        # Set before the await: the handler may have ended when the answer comes.
        self.spawned = self.spawned or not sibling
        return await self._spawner(
            submissions,
            Origin(
                self.task.id, self.task.attempt, sibling, self.fail_fast, self.type.max_children, self.task.effective
            ),
        )

    def context(self) -> Context:
        return Context(self.record, self, self.task.saved, self.type.state, self.task.replaced, self.children)

    def record(self) -> TaskRecord:
        task = self.task
        return TaskRecord(
            id=task.id,
            type=task.type,
            domain=domain_of(task.type),
            key=task.key,
            label=task.label,
            group=task.group,
            priority=task.priority,
            effective_priority=task.effective,
            payload=_decode_payload(task.payload),
            tags=decode_tags(task.tags),
            attempt=task.attempt,
            retries=task.retries,
            created_at=from_ms(task.created_at),
            run_at=optional_from_ms(task.due_at),
            expires_at=optional_from_ms(task.expires_at),
            started_at=from_ms(task.started_at),
            parent_id=task.parent_id,
            progress=self.current_progress(),
            last_error=task.last_error,
            io=stored_budget(task.io),
            status=Status.RUNNING,
        )

    def current_progress(self) -> TaskProgress | None:
        latest = self.latest
        if latest is not None:
            return TaskProgress(
                fraction=latest.fraction,
                message=latest.message,
                done_bytes=latest.done_bytes,
                total_bytes=latest.total_bytes,
                rate=self.progress.rate if self.progress else None,
                eta=timedelta(milliseconds=self.progress.eta_ms)
                if self.progress and self.progress.eta_ms is not None
                else None,
            )
        return readable_progress(self.progress) if self.progress else None

    def take_progress(self, now: float) -> StoredProgress | None:
        """Return the progress reported since the last call, with its rate; None if there is none."""
        latest, self.latest = self.latest, None
        if latest is None:
            return None
        self.byte_rate = measured_rate(self.byte_rate, latest, now)
        self.progress = advanced(self.progress, latest, self.byte_rate)
        return self.progress


Limited = Literal["handler", "stopping", "hook"]
"""What a deadline limits: the handler, stopping after a request, or the ``on_cancel`` hook."""


class Deadline(NamedTuple):
    """A time limit of an attempt."""

    at: float
    order: int
    limits: Limited
    attempt: Attempt

    @property
    def is_met(self) -> bool:
        """True if the limited code has ended, or was asked to stop before its timeout."""
        match self.limits:
            case "handler":
                return self.attempt.phase is not Phase.RUNNING
            case "stopping":
                return self.attempt.is_handler_over
            case "hook":
                return self.attempt.hook is None


class Deadlines:
    """The deadlines that may still be missed, earliest first. A deadline before all others wakes the dispatcher."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._open: list[Deadline] = []
        self._order = itertools.count()

    def add(self, delay: float, limits: Limited, attempt: Attempt) -> None:
        deadline = Deadline(self._clock.monotonic() + delay, next(self._order), limits, attempt)
        heapq.heappush(self._open, deadline)
        if self._open[0] is deadline:
            self._wake()

    def next_at(self) -> float | None:
        while self._open and self._open[0].is_met:
            heapq.heappop(self._open)
        return self._open[0].at if self._open else None

    def missed(self) -> Iterator[Deadline]:
        """Remove and yield the deadlines that have passed, in order."""
        now = self._clock.monotonic()
        while (at := self.next_at()) is not None and at <= now:
            yield heapq.heappop(self._open)
