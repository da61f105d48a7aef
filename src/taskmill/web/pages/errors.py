"""Groups of errors, and the return of their dead letters to the queue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.shapes import ErrorListAnswer, ErrorQuery, ErrorRetryAnswer, ErrorRetryBody


async def listed(backend: Backend, asked: CheckedRequest) -> ErrorListAnswer:
    query: ErrorQuery = asked.query
    groups = await (await backend.reader()).error_groups(since=timedelta(hours=query.hours))
    return ErrorListAnswer(groups=groups[: query.limit], total=len(groups))


async def retry(backend: Backend, asked: CheckedRequest) -> ErrorRetryAnswer:
    body: ErrorRetryBody = asked.body
    filters: dict[str, Any] = {"type": body.type, "exception": body.exception, "location": body.location}
    given = {name: value for name, value in filters.items() if value is not None}
    count = await (await backend.reader()).count(status="dead_letter", **given)
    ids = [] if body.dry_run else await backend.scheduler.retry_where(**given)
    return ErrorRetryAnswer(count=max(count, len(ids)), ids=ids)
