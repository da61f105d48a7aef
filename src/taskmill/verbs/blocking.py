"""Use an open scheduler from other threads: each call blocks until the scheduler's event loop has answered.

``taskmill.blocking`` and ``task.submit_sync`` are built on it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import UNSET, UnsetType

from taskmill.core.process import forked, this_process
from taskmill.errors import InvalidState
from taskmill.handle import Handle as AsyncHandle
from taskmill.model.arguments import check_methods
from taskmill.model.durations import Duration
from taskmill.model.explanation import Explanation
from taskmill.model.records import HistoryRecord, TaskRecord
from taskmill.model.settings import RateLimit
from taskmill.verbs.tuning import DomainControl as AsyncDomainControl
from taskmill.verbs.tuning import GroupControl as AsyncGroupControl

if TYPE_CHECKING:
    from taskmill.model.events import Event
    from taskmill.observe.bus import Listener

R = TypeVar("R")
E = TypeVar("E", bound="Event")
R_co = TypeVar("R_co", covariant=True)


class Calls(Protocol):
    """Runs coroutines of a scheduler for the calling thread."""

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R: ...


class LoopCaller:
    """Runs coroutines on the event loop of a scheduler; the calling thread blocks meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        self._loop = loop
        self._thread_id = thread_id
        self._opened_in = this_process()

    def check_process(self) -> None:
        """Raise ``InvalidState`` in a forked process."""
        if self.is_forked:
            raise forked(self._opened_in)

    def check_thread(self, instead: str) -> None:
        """Raise ``InvalidState`` in a forked process, and on the event loop's own thread.

        ``instead`` says what to do on that thread.
        """
        self.check_process()
        if threading.get_ident() == self._thread_id:
            raise InvalidState(
                "a blocking call on the scheduler's own event loop would wait forever, because the loop has to do "
                f"the work: {instead}"
            )

    def check_loop(self) -> None:
        """Raise ``InvalidState`` if the calling thread runs another event loop than the scheduler's."""
        running = asyncio._get_running_loop()
        if running is not None and running is not self._loop:
            raise InvalidState(
                "this scheduler was opened on another event loop, and nothing would wake a coroutine that waits for it "
                "here; call `task.submit_sync(...)`, or run the coroutine there with "
                "`asyncio.run_coroutine_threadsafe(coroutine, loop)`"
            )

    @property
    def is_forked(self) -> bool:
        """True in a child of the process that opened the scheduler. The loop runs in the parent only."""
        return self._opened_in != this_process()

    def call(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the event loop and wait for its result."""
        return result_of(self.begin(coroutine))

    def begin(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        """Run a coroutine on the event loop; :func:`result_of` waits for its result."""
        try:
            self.check_thread("in async code, await the methods of the asynchronous scheduler instead")
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except InvalidState:
            coroutine.close()
            raise
        except RuntimeError:
            # The loop is closed.
            coroutine.close()
            raise InvalidState("the scheduler was closed") from None


def result_of(call: Future[R]) -> R:
    """Wait for the result of a call that was begun."""
    try:
        return call.result()
    except CancelledError:
        raise InvalidState("the scheduler was closed while this call waited") from None


class Events(Iterator[E]):
    """A blocking iterator of events. Threads may share one: each event is returned to one of them.

    A wait that is interrupted, as by Ctrl-C, loses nothing: the call of the next event is kept, and the following
    ``next`` waits for it.
    """

    def __init__(self, listener: Listener[E], begin: Callable[[Coroutine[Any, Any, E]], Future[E]]) -> None:
        self._listener = listener
        self._begin = begin
        self._turn = threading.Lock()
        self._coming: Future[E] | None = None
        self._opened_in = this_process()

    def __next__(self) -> E:
        if self._opened_in != this_process():
            # A thread that does not exist in this process may hold the lock.
            raise forked(self._opened_in)
        with self._turn:
            if self._coming is None:
                self._coming = self._begin(self._listener.__anext__())
            try:
                event = result_of(self._coming)
            except (StopAsyncIteration, InvalidState) as over:
                self._coming = None
                if isinstance(over, InvalidState):
                    raise
                raise StopIteration from None
            self._coming = None
            return event


@check_methods
class Handle(Generic[R_co]):
    """A submitted task, for code that may block."""

    def __init__(self, handle: AsyncHandle[R_co], scheduler: Calls) -> None:
        self._handle = handle
        self._scheduler = scheduler
        self.id = handle.id
        self.kind = handle.kind
        self.replaced_id = handle.replaced_id

    def __repr__(self) -> str:
        return repr(self._handle)

    def result(self, timeout: Duration | None = None) -> R_co:
        """Return the handler's value, or raise ``TaskFailed``."""
        return self._scheduler.call(self._handle.result(timeout))

    def wait(self, timeout: Duration | None = None) -> HistoryRecord:
        """Wait until the task has ended, and return its record."""
        return self._scheduler.call(self._handle.wait(timeout))

    def cancel(self) -> bool:
        """Cancel the task; return ``False`` if it had already ended."""
        return self._scheduler.call(self._handle.cancel())

    def record(self) -> TaskRecord | HistoryRecord:
        """Return the current record of the task."""
        return self._scheduler.call(self._handle.record())

    def explain(self) -> Explanation:
        """Explain why the task waits."""
        return self._scheduler.call(self._handle.explain())


@check_methods
class GroupControl:
    """The controls of one group, for code that may block."""

    def __init__(self, control: AsyncGroupControl, scheduler: Calls) -> None:
        self._control = control
        self._scheduler = scheduler
        self.name = control.name

    def pause(self, until: datetime | None = None, duration: Duration | None = None) -> None:
        """Start no more tasks of the group until it is resumed or the pause ends."""
        self._scheduler.call(self._control.pause(until, duration))

    def resume(self) -> None:
        """End the pause."""
        self._scheduler.call(self._control.resume())

    def set(
        self,
        *,
        weight: float | UnsetType = UNSET,
        cap: int | UnsetType | None = UNSET,
        min_slots: int | UnsetType = UNSET,
        rate: RateLimit | UnsetType | None = UNSET,
    ) -> None:
        """Change the given settings; ``None`` for ``cap`` or ``rate`` removes that limit."""
        self._scheduler.call(self._control.set(weight=weight, cap=cap, min_slots=min_slots, rate=rate))


@check_methods
class DomainControl:
    """The controls of one domain, for code that may block."""

    def __init__(self, control: AsyncDomainControl, scheduler: Calls) -> None:
        self._control = control
        self._scheduler = scheduler
        self.name = control.name

    def pause(self) -> None:
        """Start no more tasks of the domain until it is resumed."""
        self._scheduler.call(self._control.pause())

    def resume(self) -> None:
        """End the pause."""
        self._scheduler.call(self._control.resume())

    def set_max_concurrency(self, n: int | None) -> None:
        """Set how many tasks of the domain may run at once; ``None`` removes the limit."""
        self._scheduler.call(self._control.set_max_concurrency(n))
