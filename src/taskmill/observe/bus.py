"""The event bus. Queues are bounded: a slow listener loses events, gets their number, and slows nothing else down."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from taskmill.core.ports import Clock
from taskmill.errors import ConfigError
from taskmill.model.options import decode_tags
from taskmill.model.settings import Aging
from taskmill.model.task import Claimed, Described, domain_of
from taskmill.policy.aging import effective_priority

if TYPE_CHECKING:
    from taskmill.model.events import Event, EventsMissed
    from taskmill.observe.counters import Counters

CAPACITY = 10_000


class Listener:
    """An async iterator of events. It listens from its creation until it, or the bus, is closed."""

    def __init__(self, bus: EventBus, kinds: tuple[type[Event], ...], domain: str | None, type: str | None) -> None:
        self._bus = bus
        self._kinds = kinds
        self._domain = domain
        self._type = type
        self._events: deque[Event] = deque()
        self._missed = 0
        self._wake = asyncio.Event()
        self._closed = False

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._events:
                return self._events.popleft()
            if self._missed:
                missed, self._missed = self._missed, 0
                return self._bus.missed(missed)
            if self._closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()

    async def aclose(self) -> None:
        """Stop listening."""
        self._bus.forget(self)
        self.end()

    def end(self) -> None:
        """End the iteration after the queued events."""
        self._closed = True
        self._wake.set()

    def wants(self, kind: type[Event]) -> bool:
        return not self._kinds or issubclass(kind, self._kinds)

    def offer(self, event: Event) -> None:
        """Queue an event that passes the filters. Events that are not about a task always pass."""
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
    """Numbers events and offers them to listeners. Events are built only if a listener wants them."""

    def __init__(self, clock: Clock, aging: Aging | None = None) -> None:
        self._clock = clock
        self.aging = aging
        self.counters: Counters | None = None
        """Counts events, with or without listeners; None if metrics are off."""
        self._listeners: list[Listener] = []
        self._seq = 0

    def listen(self, kinds: tuple[type[Event], ...], domain: str | None, type: str | None) -> Listener:
        event_class = event_kind("Event")
        for kind in kinds:
            if not (isinstance(kind, builtin_type) and issubclass(kind, event_class)):
                raise ConfigError(f"events takes event classes from taskmill.events, got {kind!r}")
        listener = Listener(self, kinds, domain, type)
        self._listeners.append(listener)
        return listener

    def forget(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def close(self) -> None:
        for listener in self._listeners:
            listener.end()
        self._listeners.clear()

    def about(self, kind: str, task: Claimed | Described, **details: Any) -> None:
        """Announce an event about ``task``; ``kind`` names its class."""
        self._seq += 1
        if self.counters is not None:
            self.counters.event(kind)
        if not self._listeners:
            return
        event_class = event_kind(kind)
        listeners = [listener for listener in self._listeners if listener.wants(event_class)]
        if listeners:
            about = described(task, self.aging, self._clock.now_ms())
            event = event_class(seq=self._seq, at=self._clock.now(), **about, **details)
            for listener in listeners:
                listener.offer(event)

    def announce(self, kind: str, **details: Any) -> None:
        """Announce an event that is not about one task."""
        self.skip(kind, 1)
        if self._listeners:
            event_class = event_kind(kind)
            event = event_class(seq=self._seq, at=self._clock.now(), **details)
            for listener in self._listeners:
                if listener.wants(event_class):
                    listener.offer(event)

    def missed(self, count: int) -> EventsMissed:
        self.skip("EventsMissed", 1)
        event: EventsMissed = event_kind("EventsMissed")(seq=self._seq, at=self._clock.now(), count=count)
        return event

    @property
    def is_heard(self) -> bool:
        return bool(self._listeners)

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
