"""One live attempt: a claimed task, its handler at work, and whatever has been asked of it.

An attempt ends when its handler has really ended. A final ending may be recorded earlier, when a cancelled handler
does not listen for ``cancel_timeout``; its slot stays taken until it does end, and a retry never starts before that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from taskmill.define.context import ALREADY_DONE, Context
from taskmill.define.registry import RegisteredType
from taskmill.errors import InvalidState
from taskmill.execute.work import Running
from taskmill.handle import Handle, Spawned
from taskmill.model.durations import from_ms, optional_from_ms
from taskmill.model.io_budget import IoBudget, budget_to_store, stored_budget
from taskmill.model.outcome import StopReason
from taskmill.model.progress import ProgressReport, StoredProgress, TaskProgress, readable
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.retry import Retry
from taskmill.model.stages import NO_OVERRIDES, Claimed, Origin, Overrides
from taskmill.model.status import Status
from taskmill.model.submission import Submission
from taskmill.model.tags import decode_tags
from taskmill.model.task_name import domain_of
from taskmill.policy.progress import advanced

_decode_overrides = msgspec.json.Decoder(Overrides).decode
_decode_payload = msgspec.json.Decoder().decode

_RECORDING = threading.Lock()
"""A handler may record what it has moved in several threads."""

Saver = Callable[[int, int, str], Awaitable[bool]]
Spawner = Callable[[Sequence[Submission], Origin], Awaitable[list[Handle[Any]]]]


class Attempt:
    """A claimed task at work. Its ``(id, attempt)`` token guards everything it writes."""

    __slots__ = (
        "_loop",
        "_loop_thread",
        "_noticed",
        "_saver",
        "_spawner",
        "children",
        "delivered",
        "ended",
        "ended_at",
        "hook_waits",
        "io",
        "latest",
        "overrides",
        "progress",
        "progress_at",
        "recorded",
        "running",
        "spawned",
        "started",
        "stop_reason",
        "task",
        "type",
        "unreadable",
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
        self.unreadable: str | None = None
        """Why the stored task cannot be run, if it cannot."""
        try:
            if task.overrides:
                self.overrides = _decode_overrides(task.overrides)
        except msgspec.MsgspecError as wrong:
            self.unreadable = f"its stored options are unreadable: {wrong}"
        self.running: Running | None = None
        self.stop_reason: StopReason | None = None
        self.ended = False
        """Whether the handler is over."""
        self.delivered = False
        """Whether its outcome was handed on."""
        self.ended_at: float | None = None
        """When that was, for the first time."""
        self.recorded = False
        """Whether its ending was settled before the handler was over."""
        self.spawned = False
        """Whether this attempt has asked for children."""
        self.hook_waits = False
        """Whether it was asked to stop and its hook runs after its children have ended."""
        self.children: Sequence[HistoryRecord] = ()
        self.latest: ProgressReport | None = None
        """The last report that has not been written yet."""
        self.progress: StoredProgress | None = None
        self.io: IoBudget | None = None
        """What it has moved, as far as anybody told."""
        self.progress_at = started
        self._saver = saver
        self._spawner = spawner
        self._noticed = noticed
        self._loop = loop
        self._loop_thread = threading.get_ident()

    @property
    def retry(self) -> Retry:
        return self.overrides.retry or self.type.retry

    @property
    def timeout_ms(self) -> int | None:
        said = self.overrides.timeout_ms
        return self.type.timeout_ms if said == NO_OVERRIDES.timeout_ms else said

    def is_first_ending(self, now: float) -> bool:
        """Note when the attempt is over; one may have to be judged again."""
        is_first = self.ended_at is None
        self.ended_at = now if self.ended_at is None else self.ended_at
        return is_first

    @property
    def duration_ms(self) -> int:
        """How long it was at work."""
        return 0 if self.ended_at is None else round((self.ended_at - self.started) * 1000)

    @property
    def hears_stop(self) -> bool:
        """Whether the handler can be told to stop; a plain function in a thread cannot."""
        main = self.type.handler.main
        return main.is_async or main.wants_context or self.type.in_process

    @property
    def has_family(self) -> bool:
        """Whether the task may have children."""
        return self.spawned or self.task.family is not None

    @property
    def fail_fast(self) -> bool:
        said = self.overrides.fail_fast
        return self.type.fail_fast if said is None else said

    def stop(self, reason: StopReason) -> None:
        """Ask the handler to stop. The first reason stands, but the end of the task outranks an interruption.

        It is interrupted once; only a handler that has not listened for long is interrupted again.
        """
        was_asked = self.stop_reason is not None
        if self.stop_reason is None or (reason.ends_task and not self.stop_reason.ends_task):
            self.stop_reason = reason
        if self.running is not None and not self.ended and not was_asked:
            self.running.interrupt()

    @property
    def is_ending(self) -> bool:
        """Whether the task is over, whatever its handler says."""
        return self.stop_reason is not None and self.stop_reason.ends_task

    # What the handler's Context asks for

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

    @property
    def io_to_store(self) -> str | None:
        return budget_to_store(self.io)

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
        # Noted beforehand: whoever asked may be gone when the answer comes.
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
        return readable(self.progress) if self.progress else None

    def take_progress(self, now: float) -> StoredProgress | None:
        """What is new since the last call, with its rate."""
        latest, self.latest = self.latest, None
        if latest is None:
            return None
        self.progress = advanced(self.progress, latest, now - self.progress_at)
        self.progress_at = now
        return self.progress
