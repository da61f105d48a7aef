"""A web service with several worker processes: photos are developed in the background, and browsers follow the events.

Its store is named by the environment variable ``PHOTOS``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Header
from fastapi.responses import StreamingResponse

from taskmill import Context, Domain, Scheduler, to_json
from taskmill.asgi import lifespan
from taskmill.events import TaskEvent

SHUTDOWN_GRACE = 1.0

photos = Domain("photos")


@photos.task
async def develop(ctx: Context, steps: int) -> int:
    for step in range(steps):
        ctx.progress.of(step + 1, steps, f"worker {os.getpid()}")
        await asyncio.sleep(0.1)
    return os.getpid()


scheduler = Scheduler(os.environ["PHOTOS"], domains=[photos], shutdown_grace=SHUTDOWN_GRACE)
app = FastAPI(lifespan=lifespan(scheduler))


@app.get("/")
async def about() -> dict[str, Any]:
    return {"worker": os.getpid(), "dispatching": scheduler.is_dispatching}


@app.post("/photos")
async def submit(steps: int) -> dict[str, int]:
    handle = await develop.submit(steps)
    return {"worker": os.getpid(), "id": handle.id}


@app.get("/events")
async def events(last_event_id: int | None = Header(default=None)) -> StreamingResponse:
    heard = scheduler.events(TaskEvent, since=last_event_id)

    async def stream() -> AsyncIterator[str]:
        yield f"event: hello\ndata: {os.getpid()}\n\n"
        async for event in heard:
            yield f"id: {event.seq}\nevent: {type(event).__name__}\ndata: {to_json(event)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")
