"""The event bus. Queues are bounded: a slow listener loses events, is given their number, and delays nothing else.

The latest events are kept while there is a listener, and for a minute afterwards, so that a listener that lost its
connection continues where it stopped.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import os
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast
from weakref import WeakSet

import msgspec

from taskmill.core.ports import Clock
from taskmill.core.process import forked, this_process
from taskmill.errors import ConfigError
from taskmill.model.options import decode_tags
from taskmill.model.settings import Aging
from taskmill.model.task import Claimed, Described
from taskmill.model.type_name import domain_of
from taskmill.observe.announced import Announced
from taskmill.policy.aging import effective_priority

if TYPE_CHECKING:
    from taskmill.model.events import Event, EventsMissed
    from taskmill.model.records import HistoryRecord, TaskRecord
    from taskmill.observe.counters import Counters

CAPACITY = 10_000
RECENT = 2_000
"""How many of the latest events are kept for listeners that continue after a lost connection."""
RECENT_FOR = 60.0
"""Seconds for which events are kept after the last listener has left: a browser that reconnects needs less."""

E = TypeVar("E", bound="Event")


class Listener(Generic[E]):
    """An async iterator of events. It listens from its creation until it is closed or dropped, or the bus is closed."""

    def __init__(self, bus: EventBus, kinds: tuple[type[Event], ...], domain: str | None, type: str | None) -> None:
        self._bus = bus
        self._kinds = (*kinds, event_kind("EventsMissed")) if kinds else ()
        self._domain = domain
        self._type = type
        self._events: deque[Event] = deque()
        self._missed = 0
        self._wake = asyncio.Event()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        if self._bus.opened_in != this_process():
            raise forked(self._bus.opened_in)
        while True:
            if self._events:
                return cast("E", self._events.popleft())
            if self._missed:
                missed, self._missed = self._missed, 0
                return cast("E", self._bus.missed(missed))
            if self._closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()

    async def aclose(self) -> None:
        """Stop listening."""
        self._bus.forget(self)
        self.end()

    async def leave(self) -> None:
        """Stop listening, and keep no events for a continuation: without other listeners none is built from now on."""
        await self.aclose()
        self._bus.drop_unheard()

    def end(self) -> None:
        """End the iteration after the queued events."""
        self._closed = True
        self._wake.set()

    def wants(self, kind: type[Event]) -> bool:
        return not self._kinds or issubclass(kind, self._kinds)

    def offer(self, event: Event) -> None:
        """Queue an event that passes the filters. Events that are not about a task always pass."""
        if not self.wants(type(event)):
            return
        if self._domain is not None and getattr(event, "domain", self._domain) != self._domain:
            return
        if self._type is not None and getattr(event, "type", self._type) != self._type:
            return
        if self._missed or len(self._events) >= CAPACITY:
            self._missed += 1
        else:
            self._events.append(event)
        self._wake.set()


class EventBus:
    """Numbers events, keeps the latest and offers them to listeners. Without listeners no event is built."""

    def __init__(self, clock: Clock, aging: Aging | None = None) -> None:
        self._clock = clock
        self.opened_in = this_process()
        """The process whose events these are; a forked child has none."""
        self.aging = aging
        self.counters: Counters | None = None
        """Counts the events of this process, with or without listeners; None if metrics are off."""
        self.announced: Announced | None = None
        """The starts and endings announced lately; None unless events are also read from the store."""
        # A dropped listener, as after a closed connection, need not be closed.
        self._listeners: WeakSet[Listener[Any]] = WeakSet()
        # Each scheduler counts from its own random number, so that a number of another process is not mistaken for one
        # of this process. All numbers stay below 2**53, which is exact in JavaScript.
        self._first = self._seq = int.from_bytes(os.urandom(6), "big")
        self._recent: deque[Event] = deque(maxlen=RECENT)
        self._kept_until: float | None = None
        """When the recent events are dropped; None while no event is kept."""
        self._complete_after = self._seq
        """All events after this number are among the recent ones, while events are kept."""
        self._is_ending = False

    def listen(
        self, kinds: tuple[type[Event], ...], domain: str | None, type: str | None, since: int | None = None
    ) -> Listener[Any]:
        event_class = event_kind("Event")
        for kind in kinds:
            if not (isinstance(kind, builtin_type) and issubclass(kind, event_class)):
                raise ConfigError(f"events takes event classes from taskmill.events, got {kind!r}")
        if since is not None and (isinstance(since, bool) or not isinstance(since, int)):
            raise ConfigError(f"since must be the seq of an event, an int, got {since!r}")
        listener = Listener[Any](self, kinds, domain, type)
        if not self.is_heard:
            self._complete_after = self._seq
        self._kept_until = math.inf
        if since is not None:
            self._continue(listener, since)
        if self._is_ending:
            listener.end()
        else:
            self._listeners.add(listener)
        return listener

    def _continue(self, listener: Listener[Any], since: int) -> None:
        """Offer the events after ``since``, or ``EventsMissed`` if some of them are no longer known."""
        if not self._first <= since <= self._seq:
            # A number of another process; how many events came after it is unknown.
            listener.offer(self.missed(0))
        elif since < self._complete_after:
            listener.offer(self.missed(self._seq - since))
        else:
            for event in self._recent:
                if event.seq > since:
                    listener.offer(event)

    def forget(self, listener: Listener[Any]) -> None:
        self._listeners.discard(listener)

    def drop_unheard(self) -> None:
        """Drop the recent events if there is no listener."""
        if not self._listeners:
            self._drop_recent()

    def end_listeners(self) -> None:
        """End all listeners, and end each new one as soon as it is created, because the program shuts down."""
        self._is_ending = True
        for listener in list(self._listeners):
            listener.end()
        self._listeners.clear()

    def close(self) -> None:
        self.end_listeners()
        self._drop_recent()

    def _drop_recent(self) -> None:
        self._recent.clear()
        self._kept_until = None

    def about(self, kind: str, task: Claimed | Described, **details: Any) -> None:
        """Announce an event about ``task``; ``kind`` names its class."""
        self._seq += 1
        if self.counters is not None:
            self.counters.event(kind)
        if not self.is_heard:
            return
        now = self._clock.now_ms()
        if self.announced is not None:
            attempt = task.attempt if isinstance(task, Claimed) else None
            if not self.announced.is_news_of_this_process(kind, task.id, now, details, attempt):
                return
        about = described(task, self.aging, now)
        self._offer(event_kind(kind)(seq=self._seq, at=self._clock.now(), **about, **details))

    def about_elsewhere(self, kind: str, record: TaskRecord | HistoryRecord, **details: Any) -> None:
        """Announce an event of another process about the task of ``record``. It is counted there, not here."""
        self._seq += 1
        about = {
            "task_id": record.id,
            "base_priority": record.priority,
            **{name: getattr(record, name) for name in _SAME_IN_RECORDS},
        }
        self._offer(event_kind(kind)(seq=self._seq, at=self._clock.now(), **about, **details))

    def announce(self, kind: str, **details: Any) -> None:
        """Announce an event that is not about one task."""
        self.skip(kind, 1)
        if self.is_heard:
            self._offer(event_kind(kind)(seq=self._seq, at=self._clock.now(), **details))

    def _offer(self, event: Event) -> None:
        if len(self._recent) == RECENT:
            self._complete_after = self._recent[0].seq
        self._recent.append(event)
        for listener in self._listeners:
            listener.offer(event)

    def missed(self, count: int) -> EventsMissed:
        self.skip("EventsMissed", 1)
        event: EventsMissed = event_kind("EventsMissed")(seq=self._seq, at=self._clock.now(), count=count)
        return event

    @property
    def is_heard(self) -> bool:
        """True if there is a listener, or if one has left recently and may continue."""
        if self._kept_until is None:
            return False
        if self._listeners:
            self._kept_until = math.inf
        elif self._kept_until == math.inf:
            self._kept_until = self._clock.monotonic() + RECENT_FOR
        elif self._clock.monotonic() >= self._kept_until:
            self._drop_recent()
            return False
        return True

    def is_wanted(self, kind: str) -> bool:
        """True if a listener wants this kind of event, or if events are counted."""
        if self.counters is not None:
            return True
        return bool(self._listeners) and any(listener.wants(event_kind(kind)) for listener in self._listeners)

    def skip(self, kind: str, count: int) -> None:
        """Number and count events without building them."""
        self._seq += count
        if self.counters is not None:
            self.counters.event(kind, count)


_SAME_IN_RECORDS = ("type", "domain", "key", "label", "tags", "group", "effective_priority")
builtin_type = type


def event_kind(name: str) -> type[Any]:
    """Return an event class. They are imported on first use, because they are a third of the import time."""
    kind: type[Any] = getattr(importlib.import_module("taskmill.model.events"), name)
    return kind


def described(task: Claimed | Described, aging: Aging | None, now: int) -> Mapping[str, Any]:
    if isinstance(task, Described):
        effective = effective_priority(aging, task.urgency, now - task.aged_from)
    else:
        effective = task.effective
    return {
        "task_id": task.id,
        "type": task.type,
        "domain": domain_of(task.type),
        "key": task.key,
        "label": task.label,
        "tags": _tags(task.tags),
        "group": task.group,
        "base_priority": task.priority,
        "effective_priority": effective,
    }


def _tags(stored: str | None) -> Mapping[str, str]:
    """Decode tags; return an empty mapping if they are damaged, so that the event is still announced."""
    try:
        return decode_tags(stored)
    except (msgspec.MsgspecError, UnicodeError):
        return {}
