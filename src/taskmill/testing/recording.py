"""``context()``: a Context without a scheduler, to call a handler as a plain function and see what it did."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, cast

import msgspec

from taskmill.define.context import ALREADY_DONE, Context
from taskmill.define.domain import checked_state
from taskmill.define.signature import NOT_JSON, json_encode
from taskmill.define.task import Task
from taskmill.errors import ConfigError, InvalidState
from taskmill.handle import Handle, HandlesTasks, Spawned
from taskmill.model.arguments import check_arguments
from taskmill.model.durations import instant
from taskmill.model.io_budget import NO_IO, IoBudget
from taskmill.model.progress import ProgressReport, TaskProgress
from taskmill.model.records import AttemptError, HistoryRecord, TaskRecord
from taskmill.model.settings import Priority, priority_value
from taskmill.model.status import Status
from taskmill.model.submission import Stored, Submission
from taskmill.model.type_name import domain_of, is_full_name


@check_arguments
def context(
    *,
    type: str | Task[Any, Any] = "test::task",
    id: int = 1,
    attempt: int = 1,
    retries: int = 0,
    key: str | None = None,
    label: str | None = None,
    group: str = "",
    priority: int = Priority.NORMAL,
    effective_priority: int | None = None,
    payload: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    created_at: datetime | None = None,
    run_at: datetime | None = None,
    expires_at: datetime | None = None,
    started_at: datetime | None = None,
    parent_id: int | None = None,
    io: IoBudget | None = None,
    progress: TaskProgress | None = None,
    last_error: str | None = None,
    errors: Sequence[AttemptError] = (),
    saved: Mapping[str, Any] | None = None,
    replaced: Mapping[str, Any] | None = None,
    state: Iterable[object] = (),
    children: Sequence[HistoryRecord] = (),
    cancelled: bool = False,
) -> RecordingContext:
    """Return a Context to call a handler with. All but the last five fields are those of ``ctx.task``."""
    name = type.name if isinstance(type, Task) else type
    if not isinstance(name, str) or not is_full_name(name):
        raise ConfigError(f"context: type must be a task or its full name, 'domain::task', got {type!r}")
    if not isinstance(cancelled, bool):
        raise ConfigError(f"context: cancelled must be True or False, got {cancelled!r}")
    for field, number, least in (("id", id, 1), ("attempt", attempt, 1), ("retries", retries, 0)):
        if isinstance(number, int) and number < least:
            raise ConfigError(f"context: {field} must be {least} or more, got {number}")
    if isinstance(children, str) or not isinstance(children, Sequence):
        raise ConfigError(f"context: children must be a list of HistoryRecord objects, got {children!r}")
    for child in children:
        if not isinstance(child, HistoryRecord):
            raise ConfigError(f"context: children must be HistoryRecord objects, got {child!r}")
    priority = priority_value(priority, "context: priority")
    if effective_priority is not None:
        effective_priority = priority_value(effective_priority, "context: effective_priority")
    for field, at in (
        ("created_at", created_at),
        ("run_at", run_at),
        ("expires_at", expires_at),
        ("started_at", started_at),
    ):
        if at is not None:
            instant(at, f"context: {field}")
    now = datetime.now(UTC)
    fields: dict[str, object] = {
        "id": id,
        "type": name,
        "domain": domain_of(name),
        "key": key,
        "label": label,
        "group": group,
        "priority": priority,
        "effective_priority": priority if effective_priority is None else effective_priority,
        "payload": {} if payload is None else _plain("payload", payload),
        "tags": {} if tags is None else tags,
        "attempt": attempt,
        "retries": retries,
        "created_at": now if created_at is None else created_at,
        "run_at": run_at,
        "expires_at": expires_at,
        "started_at": now if started_at is None else started_at,
        "parent_id": parent_id,
        "io": io,
        "progress": progress,
        "last_error": last_error,
        "errors": errors,
        "status": Status.RUNNING,
    }
    try:
        record = msgspec.convert(fields, TaskRecord)
    except msgspec.ValidationError as wrong:
        raise ConfigError(f"context: {wrong}") from None
    for error in record.errors:
        instant(error.at, "context: errors: at")
    return RecordingContext(
        record, _encoded("saved", saved), _encoded("replaced", replaced), checked_state(state), children, cancelled
    )


def _encoded(field: str, values: object) -> str | None:
    return None if values is None else json_encode(_plain(field, values)).decode()


def _plain(field: str, values: object) -> dict[str, Any]:
    """Return a mapping as it would be read from a store; refuse one that JSON would change."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"context: {field} must be a mapping, got {values!r}")
    given = dict(cast("Mapping[object, object]", values))
    try:
        kept: dict[str, Any] = msgspec.json.decode(json_encode(given))
    except NOT_JSON as wrong:
        raise ConfigError(f"context: {field} must be JSON: {wrong}") from None
    if kept != given:
        raise ConfigError(f"context: {field} must be JSON, which would change {given!r} to {kept!r}")
    return kept


class RecordingContext(Context):
    """A Context that stores nothing and remembers what the handler did."""

    def __init__(
        self,
        record: TaskRecord,
        saved: str | None,
        replaced: str | None,
        state: Sequence[object],
        children: Sequence[HistoryRecord],
        cancelled: bool,
    ) -> None:
        self._recorder = _Recorder(cancelled)
        shared = {value.__class__: value for value in state}
        super().__init__(lambda: record, self._recorder, saved, shared, replaced, children)

    @property
    def cancelled(self) -> bool:
        """True if this attempt was asked to stop. A test sets it."""
        return self._recorder.stop_requested

    @cancelled.setter
    def cancelled(self, asked: bool) -> None:
        self._recorder.stop_requested = asked

    @property
    def reported(self) -> list[TaskProgress]:
        """The progress that the handler has reported, in order."""
        return self._recorder.reported

    @property
    def moved(self) -> IoBudget:
        """The sum of the bytes that the handler has reported with ``record_io``."""
        return self._recorder.moved

    @property
    def spawned(self) -> list[Submission]:
        """The children that the handler has spawned, in order."""
        return self._recorder.spawned

    @property
    def siblings(self) -> list[Submission]:
        """The siblings that the handler has spawned, in order."""
        return self._recorder.siblings


class _Recorder:
    """Replaces the scheduler. Its methods never wait, so ``save`` and ``spawn`` may be awaited or not."""

    def __init__(self, stop_requested: bool) -> None:
        self.stop_requested = stop_requested
        self.reported: list[TaskProgress] = []
        self.moved = NO_IO
        self.spawned: list[Submission] = []
        self.siblings: list[Submission] = []
        self._ids = itertools.count(1)

    def report(self, progress: ProgressReport) -> None:
        done, total = progress.done_bytes, progress.total_bytes
        self.reported.append(TaskProgress(progress.fraction, progress.message, done, total))

    def record_io(self, moved: IoBudget) -> None:
        self.moved += moved

    def save(self, saved: str) -> Awaitable[None]:  # noqa: ARG002 - the Context keeps it
        return ALREADY_DONE

    def spawn(self, submissions: Sequence[Submission], *, sibling: bool) -> Spawned:
        (self.siblings if sibling else self.spawned).extend(submissions)
        return Spawned(Handle(_NOT_STORED, Stored(next(self._ids), "inserted")) for _ in submissions)


class _NotStored:
    """Stands in for the scheduler of a spawned task: every method raises ``InvalidState``."""

    def __getattr__(self, name: str) -> NoReturn:
        raise InvalidState("this task was spawned by a Context of taskmill.testing.context(); nothing runs it")


_NOT_STORED = cast("HandlesTasks", _NotStored())
