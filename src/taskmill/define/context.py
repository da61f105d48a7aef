"""``Context``: a running handler's access to its task and to the scheduler.

The same class serves handlers on the event loop, in threads and in processes. Only the :class:`AttemptLink` differs,
which carries requests to the scheduler directly, across threads, or through a pipe.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast

import msgspec

from taskmill.define.signature import LARGEST_PAYLOAD, NOT_JSON, json_encode, would_lose_a_float
from taskmill.errors import ConfigError, InvalidState
from taskmill.handle import Spawned, SpawnedHandle
from taskmill.model.durations import Size, size
from taskmill.model.io_budget import MOST_BYTES, IoBudget
from taskmill.model.progress import ProgressReport
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.submission import Submission, checked_submissions

T = TypeVar("T")


class AttemptLink(Protocol):
    """The requests that a Context sends to the scheduler."""

    @property
    def stop_requested(self) -> bool: ...

    def report(self, progress: ProgressReport) -> None:
        """Record progress; cheap enough to be called a million times."""
        ...

    def record_io(self, moved: IoBudget) -> None:
        """Record moved bytes; cheap."""
        ...

    def save(self, saved: str) -> Awaitable[None]:
        """Make the saved state durable. Outside the event loop, block and return a finished awaitable."""
        ...

    def spawn(self, submissions: Sequence[Submission], *, sibling: bool) -> Spawned:
        """Store children or siblings. On the event loop, await the result; outside it, this blocks."""
        ...


class _AlreadyDone:
    """The result of a blocking call. Unlike a coroutine, it may be left unawaited without a warning."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


ALREADY_DONE = _AlreadyDone()


class Context:
    """A running handler's view of its task, passed to handlers whose first parameter is annotated with this class."""

    __slots__ = ("_children", "_link", "_progress", "_record", "_replaced", "_saved", "_state", "_task")

    def __init__(
        self,
        record: Callable[[], TaskRecord],
        link: AttemptLink,
        saved: str | None,
        state: Mapping[type, Any],
        replaced: str | None = None,
        children: Sequence[HistoryRecord] = (),
    ) -> None:
        self._record = record
        self._task: TaskRecord | None = None
        self._link = link
        self._saved: dict[str, Any] = msgspec.json.decode(saved) if saved else {}
        self._replaced: dict[str, Any] | None = msgspec.json.decode(replaced) if replaced else None
        self._state = state
        self._progress = Progress(link)
        self._children = children

    @property
    def task(self) -> TaskRecord:
        """The task as it was when this attempt started."""
        if self._task is None:
            self._task = self._record()
        return self._task

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; unique among all attempts of the task."""
        return self.task.attempt

    @property
    def cancelled(self) -> bool:
        """True if this attempt was asked to stop. Handlers in threads must check it."""
        return self._link.stop_requested

    def check_cancelled(self) -> None:
        """Raise ``asyncio.CancelledError`` if this attempt has been asked to stop."""
        if self._link.stop_requested:
            raise asyncio.CancelledError

    @property
    def progress(self) -> Progress:
        """Reports progress, as ``ctx.progress(0.5, "halfway")``, ``ctx.progress.of(3, 10)`` or ``.bytes(total)``."""
        return self._progress

    def record_io(self, disk_read: Size = 0, disk_write: Size = 0, net_rx: Size = 0, net_tx: Size = 0) -> None:
        """Report bytes read from disk, written to disk, received and sent; calls add up."""
        self._link.record_io(IoBudget(disk_read, disk_write, net_rx, net_tx))

    @property
    def saved(self) -> Mapping[str, Any]:
        """The values saved by earlier attempts and by this one."""
        return MappingProxyType(self._saved)

    @property
    def replaced(self) -> Mapping[str, Any] | None:
        """The saved values of the task that this one replaces, or ``None`` if it replaces none."""
        return None if self._replaced is None else MappingProxyType(self._replaced)

    def save(self, **values: Any) -> Awaitable[None]:
        """Merge ``values`` into :attr:`saved` durably. ``await`` it in ``async def``; in ``def`` handlers it blocks."""
        merged = {**self._saved, **values}
        try:
            encoded = json_encode(merged)
        except NOT_JSON as wrong:
            raise InvalidState(f"saved state must be JSON: {wrong}") from None
        if would_lose_a_float(merged, encoded):
            raise InvalidState("saved state must be JSON, which has neither NaN nor infinity")
        if len(encoded) > LARGEST_PAYLOAD:
            raise InvalidState(f"saved state is {len(encoded):,} bytes; at most {LARGEST_PAYLOAD:,} can be stored")
        self._saved = msgspec.json.decode(encoded)
        return self._link.save(encoded.decode())

    @property
    def children(self) -> Sequence[HistoryRecord]:
        """The records of all children, in the order they were spawned; empty outside ``finalize``."""
        return self._children

    def spawn(self, submission: Submission[T]) -> SpawnedHandle[T]:
        """Store a child of this task. ``await`` it in ``async def``; in a ``def`` handler it blocks."""
        return SpawnedHandle(self.spawn_many([submission]))

    def spawn_many(self, submissions: Iterable[Submission]) -> Spawned:
        """Store children of this task in one transaction; the handles are in input order."""
        return self._link.spawn(checked_submissions(submissions), sibling=False)

    def spawn_sibling(self, submission: Submission[T]) -> SpawnedHandle[T]:
        """Store a task with the same parent as this one."""
        return SpawnedHandle(self.spawn_siblings([submission]))

    def spawn_siblings(self, submissions: Iterable[Submission]) -> Spawned:
        """Store tasks with the same parent as this one, in one transaction."""
        return self._link.spawn(checked_submissions(submissions), sibling=True)

    def state(self, kind: type[T]) -> T:
        """Return the shared object of this type given to the domain, else the one given to the scheduler."""
        if kind in self._state:
            return cast("T", self._state[kind])
        for candidate, value in self._state.items():
            if issubclass(candidate, kind):
                return cast("T", value)
        raise ConfigError(
            f"no state of type {kind.__name__} was given to the domain or the scheduler; "
            "pass one with Domain(..., state=[...]), Scheduler(..., state=[...]) or scheduler.provide(...)"
        )


class Progress:
    """Reports the progress of an attempt. Reports are cheap, because writes are throttled.

    A message stays until it is replaced. Each report carries it, because a throttled report is dropped for a later one.
    """

    __slots__ = ("_done", "_message", "_report", "_total")

    def __init__(self, link: AttemptLink) -> None:
        self._report = link.report
        self._done = 0.0
        self._total: int | None = None
        self._message: str | None = None

    def __call__(self, fraction: float, message: str | None = None) -> None:
        """Report a fraction from 0 to 1."""
        if type(fraction) is not float and (isinstance(fraction, bool) or not isinstance(fraction, int | float)):
            raise ConfigError(f"fraction must be a number from 0 to 1, not {type(fraction).__name__}")
        if not 0.0 <= fraction <= 1.0:
            fraction = _clamped(fraction)
        self._report(ProgressReport(fraction, self._message if message is None else self._replaced(message)))

    def of(self, done: float | str, total: float | str, message: str | None = None) -> None:
        """Report ``done`` of ``total`` items, or bytes if they are texts such as ``"64MB"``."""
        if not (type(done) is int and type(total) is int and 0 <= done <= total <= MOST_BYTES):
            done, total = _amount(done, "done"), _amount(total, "total")
        fraction = _clamped(done / total) if total > 0 else 1.0
        self._report(ProgressReport(fraction, self._message if message is None else self._replaced(message)))

    def bytes(self, total: Size) -> None:
        """Set the total number of bytes; :meth:`advance` counts the bytes done."""
        self._total = int(max(_amount(total, "total"), 0))
        self._done = 0
        self._report_bytes()

    def advance(self, n: Size, message: str | None = None) -> None:
        """Report ``n`` more bytes as done."""
        if message is not None:
            self._replaced(message)
        done = self._done + (n if type(n) is int and 0 <= n <= MOST_BYTES else _amount(n, "n"))
        self._done = done if 0 <= done <= MOST_BYTES else min(max(done, 0), MOST_BYTES)
        self._report_bytes()

    def _report_bytes(self) -> None:
        done, total = self._done, self._total
        fraction = None if not total else 1.0 if done > total else done / total
        self._report(ProgressReport(fraction, self._message, int(done), total))

    def _replaced(self, message: str) -> str:
        """Replace the message that reports carry, and return the new one."""
        self._message = _text(message)
        return self._message


def _text(message: object) -> str:
    """Return a message that can be stored; ``?`` replaces lone surrogates, as in names of files that are not UTF-8."""
    if not isinstance(message, str):
        raise ConfigError(f"message must be a string, not {type(message).__name__}")
    return message if message.isascii() else message.encode("utf-8", "replace").decode()


def _amount(value: object, name: str) -> float:
    """Return a number of at most ``MOST_BYTES``, or the bytes of a text such as ``"64MB"``; 0 if it is not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        value = size(value, name)
    if isinstance(value, float) and not math.isfinite(value):
        return 0
    return min(max(value, -MOST_BYTES), MOST_BYTES)


def _clamped(fraction: float) -> float:
    """Limit a fraction to the range from 0 to 1; NaN becomes 0."""
    return 1.0 if fraction > 1.0 else 0.0 if not fraction >= 0.0 else float(fraction)
