"""Events reach browsers over a real connection: live, resumed, in bounded batches, from other processes, redacted."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from taskmill import InvalidState, Scheduler, StoreBusy
from taskmill.web import PageServer, page_server
from taskmill.web import stream as stream_module
from taskmill.web.backend import Backend
from taskmill.web.memory import ShortMemory
from taskmill.web.stream import (
    MOST_AT_ONCE,
    OVERVIEW_SECONDS,
    QUIET_OVERVIEW_SECONDS,
    RETRY_MS,
    Stream,
    event_json,
)
from tests.web.client import BEARER, TOKEN
from tests.web.conftest import Served, page_of
from tests.web.service import lose, scheduler_of, send

PATIENCE = 30.0


class Browser:
    """Reads the messages of one event stream."""

    def __init__(self, client: httpx.AsyncClient, response: httpx.Response) -> None:
        self.client = client
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, Any]:
        """Return the next message with data, and its id under ``id``; comments are skipped."""
        message: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                if line.startswith("id: "):
                    message["id"] = line.removeprefix("id: ")
                elif line.startswith("data: "):
                    message |= json.loads(line.removeprefix("data: "))
                elif line.startswith("event: "):
                    message["event"] = line.removeprefix("event: ")
                elif not line and "event" in message:
                    return message
        raise EOFError

    async def until(self, kind: str) -> list[dict[str, Any]]:
        messages = [await self.next()]
        while messages[-1]["event"] != kind:
            messages.append(await self.next())
        return messages


def _tasks(messages: list[dict[str, Any]]) -> set[int]:
    """Return the tasks in messages; messages about groups have none."""
    return {message["task_id"] for message in messages if "task_id" in message}


@asynccontextmanager
async def following(
    server: PageServer, last: str | None = None, *, path: str = "/api/events"
) -> AsyncIterator[Browser]:
    headers = BEARER if last is None else {**BEARER, "last-event-id": last}
    async with (
        httpx.AsyncClient(base_url=server.address, verify=False, trust_env=False, timeout=PATIENCE) as client,
        client.stream("GET", path, headers=headers) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        yield Browser(client, response)


async def test_events_arrive_wherever_the_task_ran(served: Served) -> None:
    server = page_server(served.scheduler, port=0, token=TOKEN)
    async with server.running(), following(server) as browser:
        handle = await send.submit("photo")
        messages = await browser.until("TaskCompleted")
        assert _tasks(messages) == {handle.id}
        assert next(message["event"] for message in messages if "task_id" in message) == "TaskSubmitted"
        assert all("result" not in message for message in messages), "results may be large; the page reads the record"
        assert [message["id"] for message in messages] == [str(message["seq"]) for message in messages]


async def test_a_lost_connection_continues_after_its_last_event(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler, scheduler.running():
        server = page_server(scheduler, port=0, token=TOKEN)
        async with server.running(), following(server) as witness:
            async with following(server) as browser:
                await send.submit("first")
                last = (await browser.until("TaskCompleted"))[-1]["id"]
            second = await send.submit("second")
            await second.wait()
            await witness.until("TaskCompleted")
            await witness.until("TaskCompleted")
            async with following(server, last) as browser:
                messages = await browser.until("TaskCompleted")
            assert _tasks(messages) == {second.id}, "nothing twice, nothing lost"
            async with following(server, "12345") as browser:
                assert (await browser.next())["event"] == "EventsMissed"


async def test_a_busy_store_sends_a_part_and_says_so(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler, scheduler.running():
        server = page_server(scheduler, port=0, token=TOKEN)
        async with server.running(), following(server) as browser:
            await scheduler.submit_many([send.prepare(f"photo {n}") for n in range(200)])
            messages = await browser.until("EventsMissed")
            assert len(messages) <= 2 * MOST_AT_ONCE
            last = await send.submit("last")
            # The listener pauses for a moment, in which events are left out.
            submitting = asyncio.create_task(_submit_forever())
            while max(_tasks(messages)) <= last.id:
                messages.append(await browser.next())
            submitting.cancel()


async def _submit_forever() -> None:
    for n in count():
        await (await send.submit(f"more {n}")).wait()


async def test_all_pages_share_one_listener(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler, scheduler.running():
        server = page_server(scheduler, port=0, token=TOKEN)
        async with server.running(), following(server) as one, following(server) as other:
            assert len(scheduler._bus._listeners) == 1
            handle = await send.submit("photo")
            for browser in (one, other):
                assert (await browser.until("TaskCompleted"))[-1]["task_id"] == handle.id


async def test_pages_at_the_same_place_share_the_bytes_of_a_piece(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler, scheduler.running():
        stream = Stream(Backend(scheduler, None))
        pages = [stream._pieces(*stream._place_after(None)) for _ in range(3)]
        for page in pages:
            assert await anext(page) == f"retry: {RETRY_MS}\n\n".encode()
        for number in range(3):
            stream._append(number, f'{{"number": {number}}}')
        first, *others = [await anext(page) for page in pages]
        assert first.count(b"id: ") == 3
        assert all(piece is first for piece in others)
        stream._append(3, "{}")
        assert await anext(pages[0]) == b"id: 3\ndata: {}\n\n", "a piece is not sent twice"


async def test_overviews_come_with_events_to_the_pages_that_ask_for_them(served: Served) -> None:
    server = page_server(served.scheduler, port=0, token=TOKEN)
    async with (
        server.running(),
        following(server) as plain,
        following(server, path="/api/events?overview=true") as browser,
    ):
        first = (await browser.until("overview"))[-1]
        asked = await browser.client.get("/api/overview", headers=BEARER)
        assert first.keys() - {"event"} == asked.json().keys(), "the same JSON as that of a request"
        before = first["counts"]["completed"]
        handle = await send.submit("photo")
        await handle.wait()
        async with asyncio.timeout(PATIENCE):
            while (await browser.until("overview"))[-1]["counts"]["completed"] == before:
                """An overview that was made before the task ended."""
        messages = await plain.until("TaskCompleted")
        assert "overview" not in [message["event"] for message in messages]
        refused = await browser.client.get("/api/events?overviews=true", headers=BEARER)
        assert refused.status_code == 422
        assert "overviews" in refused.json()["message"]


async def test_an_overview_is_made_once_for_all_pages_and_not_at_all_without_them(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        stream = Stream(Backend(scheduler, None))
        numbers = count(1)

        async def make() -> bytes:
            return str(next(numbers)).encode()

        stream._make_overview = make
        assert not await stream._renew_overview(100.0), "no page wants it"
        pages = [stream._pieces(0, "", has_overview=True) for _ in range(3)]
        for page in pages:
            await anext(page)
        assert await stream._renew_overview(100.0)
        first, *others = [await anext(page) for page in pages]
        assert first == b"event: overview\ndata: 1\n\n"
        assert all(each is first for each in others)
        assert not await stream._renew_overview(100.0 + QUIET_OVERVIEW_SECONDS - 0.1)
        stream._has_changed = True
        assert not await stream._renew_overview(100.0 + OVERVIEW_SECONDS - 0.1)
        assert await stream._renew_overview(100.0 + OVERVIEW_SECONDS)
        assert not await stream._renew_overview(100.0 + 2 * OVERVIEW_SECONDS), "nothing has changed since"
        assert await stream._renew_overview(100.0 + OVERVIEW_SECONDS + QUIET_OVERVIEW_SECONDS)
        assert [await anext(page) for page in pages] == 3 * [b"event: overview\ndata: 3\n\n"], "the latest only"
        for page in pages:
            await page.aclose()
        assert not await stream._renew_overview(1000.0)


async def test_without_an_overview_the_stream_lasts_and_pages_ask_for_themselves(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        stream = Stream(Backend(scheduler, None))

        async def make() -> bytes:
            raise StoreBusy("the store is busy")

        stream._make_overview = make
        page = stream._pieces(0, "", has_overview=True)
        await anext(page)
        assert not await stream._renew_overview(100.0)
        stream._append(1, "{}")
        assert await anext(page) == b"id: 1\ndata: {}\n\n"
        await page.aclose()


async def test_a_scheduler_that_closes_while_an_overview_is_made_leaves_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = ShortMemory[bytes]()
    asked, closed = asyncio.Event(), asyncio.Event()

    async def make() -> bytes:
        asked.set()
        await closed.wait()
        raise InvalidState("the scheduler is not open")

    asking = asyncio.create_task(answers.remembered("overview", 0, make))
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    closed.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answers.forget()
    gc.collect()
    assert caplog.records == []


async def test_a_stream_ends_so_that_an_ended_session_reads_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "LONGEST_SECONDS", 0.2)
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler, scheduler.running():
        server = page_server(scheduler, port=0, token=TOKEN)
        async with server.running(), following(server) as browser:
            submitting = asyncio.create_task(_submit_forever())
            with pytest.raises(EOFError):
                await browser.until("no event of this kind")
            submitting.cancel()


async def test_open_streams_end_when_the_server_or_the_scheduler_does(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        server = page_server(scheduler, port=0, token=TOKEN)
        async with asyncio.timeout(PATIENCE):
            async with following_open(server) as browser:
                server.end()
                with pytest.raises(EOFError):
                    await browser.next()


@asynccontextmanager
async def following_open(server: PageServer) -> AsyncIterator[Browser]:
    async with server.running(), following(server) as browser:
        yield browser


async def test_events_have_no_secrets_under_redaction(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db") as opened:
        page = page_of(opened, redact=lambda record: record)
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler, scheduler.running():
        listener = scheduler.events()
        handle = await lose.options(label="s3cret", tags={"a": "s3cret"}, key="s3cret").submit("s3cret")
        await handle.wait()
        events = []
        async for event in listener:
            events.append(event_json(event, page._stream._left_out))
            if type(event).__name__ == "TaskDeadLettered":
                break
    assert len(events) >= 3
    assert [event for event in events if "s3cret" in event] == []
