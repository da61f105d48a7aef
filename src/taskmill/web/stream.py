"""Events for browsers: one listener for all pages, whose events are written once and sent a few times a second.

What an event costs does not depend on the number of pages. Each page has a place in the list of the latest messages,
and gets what is new as one piece, which pages at the same place share. A page that fell behind gets ``EventsMissed``
and reads its data again.

A page may also ask for the overview, which every view shows. It is made once for all of them and sent every few
seconds. That costs far less than a request of each page.

A busy store has far more events than people can follow, and building them would slow its dispatcher down. So the
listener rests for a while after :data:`MOST_AT_ONCE` events at once, and pages get ``EventsMissed`` instead.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from taskmill import TaskmillError, to_json
from taskmill.events import Event, EventsMissed
from taskmill.web.backend import Backend
from taskmill.web.guards import NO_STORE
from taskmill.web.problems import RequestRefused

if TYPE_CHECKING:
    from taskmill.observe.bus import Listener as AnyListener

    Listener = AnyListener[Event]

FLUSH_SECONDS = 0.5
REST_SECONDS = 2.0
"""How long the listener of a busy store rests."""
HEARTBEAT_SECONDS = 15.0
OVERVIEW_SECONDS = 2.0
"""The least time between two overviews."""
QUIET_OVERVIEW_SECONDS = 5.0
"""The time between two overviews while there are no events: pressure, for example, changes without one."""
LONGEST_SECONDS = 600.0
"""How long a stream lasts. The browser opens it again, and a session that has ended meanwhile is refused."""
LINGER_SECONDS = 30.0
"""How long the listener stays after the last page has left, so that a page that reconnects misses nothing."""
MOST_AT_ONCE = 50
"""How many events one piece has at most."""
KEPT = 1_000
MOST_PAGES = 200
RETRY_MS = 2_000
MOST_DIGITS = 16

_LEFT_OUT = frozenset({"result"})
_SECRET = frozenset({"result", "key", "dedup_key", "label", "tags", "error", "progress"})

MakeOverview = Callable[[], Awaitable[bytes]]
"""Returns the JSON of the overview as it is now."""


class Stream:
    """The events of a scheduler, for any number of pages."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._left_out = _SECRET if backend.is_redacted else _LEFT_OUT
        self._messages: deque[tuple[int, str]] = deque(maxlen=KEPT)
        """The latest messages, each with the number of its event."""
        self._position = 0
        """How many messages there were so far."""
        self._piece: tuple[int, int, bytes] = (0, 0, b"")
        """The messages between two positions. Pages at the same position, which is most of them, share it."""
        self._make_overview: MakeOverview | None = None
        self._overview = b""
        """The latest overview, as a message."""
        self._overview_at = -QUIET_OVERVIEW_SECONDS
        self._overview_pages = 0
        self._has_changed = False
        """True if there were events since the latest overview."""
        self._news = asyncio.Event()
        self._pages = 0
        self._is_ending = False
        self._listening: asyncio.Task[None] | None = None

    def end(self) -> None:
        """End the streams of all pages."""
        self._is_ending = True
        self._wake()
        if self._listening is not None:
            self._listening.cancel()

    def response(self, request: Request, make_overview: MakeOverview | None = None) -> Response:
        """Return the stream of one page, which continues after its ``Last-Event-ID``.

        With ``make_overview`` the page gets overviews too; all pages get the same.
        """
        if self._pages >= MOST_PAGES:
            raise RequestRefused(
                503,
                "too_many_pages",
                f"at most {MOST_PAGES} pages may follow events at once; close one, or try again later",
                {"retry-after": "10"},
            )
        text = request.headers.get("last-event-id", "")
        since = int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None
        if self._listening is None or self._listening.done():
            # Listening begins here, and not when the response does, so that a closed scheduler is an error.
            listener = self._backend.scheduler.events(since=since)
            self._listening = asyncio.get_running_loop().create_task(self._listen(listener), name="taskmill-web-events")
        self._make_overview = make_overview or self._make_overview
        return StreamingResponse(
            self._pieces(*self._place_after(since), has_overview=make_overview is not None),
            media_type="text/event-stream",
            headers={"cache-control": NO_STORE, "x-accel-buffering": "no"},
        )

    # One page

    async def _pieces(self, position: int, first: str, *, has_overview: bool = False) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST_SECONDS
        overview = self._overview
        self._pages += 1
        self._overview_pages += has_overview
        try:
            yield f"retry: {RETRY_MS}\n\n{first}".encode()
            while not self._is_ending and loop.time() < until:
                if position != self._position:
                    position, piece = self._position, self._since(position)
                    yield piece
                    continue
                if has_overview and overview is not self._overview:
                    overview = self._overview
                    yield overview
                    continue
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await self._news.wait()
                except TimeoutError:
                    if self._listening is None or self._listening.done():
                        return
                    yield b": nothing happened\n\n"
        finally:
            self._pages -= 1
            self._overview_pages -= has_overview

    def _place_after(self, since: int | None) -> tuple[int, str]:
        """Return the position of a page that knows the events up to ``since``, and its first message."""
        if since is None or not self._messages:
            return self._position, ""
        known = [seq for seq, _ in self._messages]
        if since in known:
            # The last message with this number: it may be followed by a notice that events were left out.
            return self._position - known[::-1].index(since), ""
        return self._position, _message(known[-1], _missed(0))

    def _since(self, position: int) -> bytes:
        """Return all messages after a position as one piece."""
        if self._piece[:2] != (position, self._position):
            behind = self._position - position
            if behind > len(self._messages):
                text = _message(self._messages[-1][0], _missed(behind))
            else:
                text = "".join([text for _, text in self._messages][-behind:])
            self._piece = (position, self._position, text.encode())
        return self._piece[2]

    # All pages

    async def _listen(self, listener: Listener) -> None:
        """Turn events into messages until no page is left, or the scheduler is closed."""
        loop = asyncio.get_running_loop()
        used_at = loop.time()
        events: list[Event] = []
        gathering: asyncio.Task[bool] | None = None
        try:
            while self._pages or loop.time() - used_at < LINGER_SECONDS:
                used_at = loop.time() if self._pages else used_at
                due = loop.time() + FLUSH_SECONDS
                gathering = gathering or loop.create_task(_gather(listener, events))
                await asyncio.wait({gathering}, timeout=FLUSH_SECONDS)
                for event in events:
                    self._append(event.seq, event_json(event, self._left_out))
                has_news = bool(events)
                events.clear()
                is_busy = gathering.done() and gathering.result()
                if gathering.done() and not is_busy:
                    # The scheduler was closed, or the program shuts down.
                    self.end()
                    return
                if is_busy:
                    gathering = None
                    await listener.leave()
                    self._append(self._messages[-1][0], _missed(0))
                if has_news:
                    self._has_changed = True
                    self._wake()
                if await self._renew_overview(loop.time()):
                    self._wake()
                if is_busy:
                    await asyncio.sleep(REST_SECONDS)
                    # Events during the pause of the listener are not known.
                    self._has_changed = True
                    listener = self._backend.scheduler.events()
                else:
                    await asyncio.sleep(max(0.0, due - loop.time()))
        finally:
            if gathering is not None:
                gathering.cancel()
            await listener.leave()

    async def _renew_overview(self, now: float) -> bool:
        """Make a new overview if a page wants one and it is time; return True if there is a new one."""
        rest = OVERVIEW_SECONDS if self._has_changed else QUIET_OVERVIEW_SECONDS
        if self._make_overview is None or not self._overview_pages or now < self._overview_at + rest:
            return False
        self._overview_at, self._has_changed = now, False
        try:
            data = await self._make_overview()
        except (RequestRefused, TaskmillError):
            # A page without an overview requests one itself, and shows the error.
            return False
        self._overview = b"event: overview\ndata: " + data + b"\n\n"
        return True

    def _append(self, seq: int, data: str) -> None:
        self._messages.append((seq, _message(seq, data)))
        self._position += 1

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


async def _gather(listener: Listener, events: list[Event]) -> bool:
    """Collect events; return True when there are too many at once, and False at the end of the stream."""
    async for event in listener:
        events.append(event)
        if len(events) >= MOST_AT_ONCE:
            return True
    return False


def event_json(event: Event, left_out: Collection[str]) -> str:
    """Return the JSON of an event, without what may be large or, under redaction, what may be secret."""
    values: dict[str, Any] = {"event": type(event).__name__}
    for field in dataclasses.fields(event):
        if field.name not in left_out:
            values[field.name] = getattr(event, field.name)
    return to_json(values)


def _missed(count: int) -> str:
    return to_json({"event": EventsMissed.__name__, "count": count})


def _message(seq: int, data: str) -> str:
    return f"id: {seq}\ndata: {data}\n\n"
