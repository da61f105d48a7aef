"""``Handle``: a submitted task, to be awaited, watched or cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, SupportsIndex, TypeVar, overload

from taskmill.errors import ConfigError, InvalidState, TaskFailed
from taskmill.model.durations import Duration
from taskmill.model.records import HistoryRecord, TaskRecord, how_it_ended
from taskmill.model.status import Ending, Kind
from taskmill.model.submission import Stored

if TYPE_CHECKING:
    from taskmill.model.explanation import Explanation

R_co = TypeVar("R_co", covariant=True)


class HandlesTasks(Protocol):
    """The part of a scheduler that a handle uses."""

    async def cancel(self, id: int) -> bool: ...
    async def explain(self, id: int) -> Explanation: ...
    async def get(self, id: int) -> TaskRecord | HistoryRecord: ...
    async def wait(self, id: int, timeout: Duration | None = None) -> HistoryRecord: ...


class Handle(Generic[R_co]):
    """A reference to one task. ``kind`` says what the submission did; see ``on_duplicate``."""

    __slots__ = ("_decode", "_scheduler", "id", "kind", "replaced_id")

    def __init__(self, scheduler: HandlesTasks, stored: Stored, decode: Callable[[Any], Any] | None = None) -> None:
        self._scheduler = scheduler
        self._decode = decode
        self.id = stored.id
        self.kind: Kind = stored.kind
        self.replaced_id = stored.replaced_id

    def __repr__(self) -> str:
        return f"<Handle {self.id} {self.kind}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Return the handler's value, or raise :class:`TaskFailed` with the history record if it did not succeed."""
        record = await self.wait(timeout)
        if record.ending is not Ending.COMPLETED:
            raise TaskFailed(f"task {record.id} ({record.type}) {how_it_ended(record)}", record)
        value: R_co = record.result if self._decode is None else self._decode(record.result)
        return value

    async def wait(self, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until the task has ended, however it did; raise ``TimeoutError`` after ``timeout``."""
        return await self._scheduler.wait(self.id, timeout)

    async def cancel(self) -> bool:
        """Cancel the task; return ``False`` if it had already ended."""
        return await self._scheduler.cancel(self.id)

    async def record(self) -> TaskRecord | HistoryRecord:
        """Return the current record of the task."""
        return await self._scheduler.get(self.id)

    async def explain(self) -> Explanation:
        """Explain why the task waits."""
        return await self._scheduler.explain(self.id)


def handle_of(scheduler: HandlesTasks, id: object, decode: Callable[[Any], Any] | None) -> Handle[Any]:
    """Return a handle of a task that exists; its kind is ``duplicate``, because nothing was inserted for it."""
    if isinstance(id, bool) or not isinstance(id, int):
        raise ConfigError(f"id must be an int, not {type(id).__name__}")
    return Handle(scheduler, Stored(id, "duplicate"), decode)


class Spawned(list[Handle[Any]]):
    """The handles of spawned tasks: available at once where spawning blocks; on the event loop, after ``await``."""

    def __init__(self, handles: Iterable[Handle[Any]] = (), *, pending: Awaitable[list[Handle[Any]]] | None = None):
        super().__init__(handles)
        self._pending = pending
        self.is_pending = pending is not None

    def __await__(self) -> Generator[Any, Any, list[Handle[Any]]]:
        pending, self._pending = self._pending, None
        if pending is not None:
            self[:] = yield from pending.__await__()
            self.is_pending = False
        return self

    # An unawaited spawn must raise an error and not look like an empty list.

    def _check_spawned(self) -> None:
        if self.is_pending:
            raise InvalidState("the tasks are not spawned yet; write `await ctx.spawn_many(...)`")

    def __iter__(self) -> Iterator[Handle[Any]]:
        self._check_spawned()
        return super().__iter__()

    def __len__(self) -> int:
        self._check_spawned()
        return super().__len__()

    @overload
    def __getitem__(self, at: SupportsIndex) -> Handle[Any]: ...
    @overload
    def __getitem__(self, at: slice) -> list[Handle[Any]]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Handle[Any] | list[Handle[Any]]:
        self._check_spawned()
        return super().__getitem__(at)

    def __contains__(self, handle: object) -> bool:
        self._check_spawned()
        return super().__contains__(handle)

    def __repr__(self) -> str:
        return "<handles, to be awaited>" if self.is_pending else super().__repr__()


class SpawnedHandle(Handle[R_co]):
    """The handle of one spawned task; on the event loop, await it before use."""

    __slots__ = ("_spawned",)

    def __init__(self, spawned: Spawned) -> None:
        self._spawned = spawned
        if not spawned.is_pending:
            self._fill()

    def _fill(self) -> None:
        (handle,) = self._spawned
        for name in Handle.__slots__:
            setattr(self, name, getattr(handle, name))

    def __await__(self) -> Generator[Any, Any, Handle[R_co]]:
        if self._spawned.is_pending:
            yield from self._spawned.__await__()
            self._fill()
        return self

    def __getattr__(self, name: str) -> NoReturn:
        if name in Handle.__slots__:
            raise InvalidState("the task is not spawned yet; write `await ctx.spawn(...)`")
        raise AttributeError(name)

    def __repr__(self) -> str:
        return "<Handle, to be awaited>" if self._spawned.is_pending else super().__repr__()
