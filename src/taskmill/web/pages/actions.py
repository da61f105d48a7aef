"""Changes of tasks: cancel, retry and reprioritize, one or many."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from taskmill import Ending, Status, TaskmillError
from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.pages.tasks import cut, given
from taskmill.web.problems import RequestRefused
from taskmill.web.shapes import MOST_CHANGED, BulkAnswer, BulkBody, BulkFilters, ChangedAnswer, SkippedTask

MOST_SKIPPED = 100
MOST_PAGES = 50
"""How many bounded searches look for the tasks of one request."""


async def cancel(backend: Backend, asked: CheckedRequest) -> ChangedAnswer:
    id: int = asked.path["id"]
    return ChangedAnswer(ids=[id] if await backend.scheduler.cancel(id) else [])


async def retry(backend: Backend, asked: CheckedRequest) -> ChangedAnswer:
    id: int = asked.path["id"]
    await backend.scheduler.retry_dead(id)
    return ChangedAnswer(ids=[id])


async def priority(backend: Backend, asked: CheckedRequest) -> ChangedAnswer:
    id: int = asked.path["id"]
    await backend.scheduler.set_priority(id, asked.body.priority)
    return ChangedAnswer(ids=[id])


async def bulk(backend: Backend, asked: CheckedRequest) -> BulkAnswer:
    body: BulkBody = asked.body
    _check(body)
    ids, is_exact = await _chosen(backend, body)
    if body.dry_run:
        return BulkAnswer(count=len(ids), is_exact=is_exact, ids=ids, skipped=[])
    change = _change(backend, body)
    done: list[int] = []
    skipped: list[SkippedTask] = []
    for id in ids:
        try:
            if await change(id):
                done.append(id)
            else:
                skipped.append(SkippedTask(id=id, message="it has ended already"))
        except TaskmillError as wrong:
            skipped.append(SkippedTask(id=id, message=str(wrong)))
    return BulkAnswer(count=len(done), is_exact=is_exact, ids=done, skipped=skipped[:MOST_SKIPPED])


def _check(body: BulkBody) -> None:
    if (body.ids is None) == (body.filters is None):
        raise RequestRefused(422, "invalid", "give either ids or filters")
    if (body.action == "priority") != (body.priority is not None):
        raise RequestRefused(422, "invalid", "priority: the action priority needs it, and no other action takes it")
    if body.filters is not None and not filters_of(body.filters):
        raise RequestRefused(422, "invalid", "filters: at least one is needed; without one every task would be changed")


def filters_of(filters: BulkFilters) -> dict[str, Any]:
    others = {name: getattr(filters, name) for name in ("type", "domain", "group", "key", "parent")}
    return given(filters.state, filters.tags, others)


async def _chosen(backend: Backend, body: BulkBody) -> tuple[list[int], bool]:
    """Return the tasks to change, at most :data:`MOST_CHANGED`, and whether these are all."""
    if body.filters is None:
        return sorted(set(body.ids or ())), True
    filters = filters_of(body.filters)
    states = [Ending.DEAD_LETTER] if body.action == "retry" else ["active", *Status]
    state = filters.setdefault("state", states[0])
    if state not in states:
        words = ", ".join(map(str, states))
        raise RequestRefused(422, "invalid", f"filters.state: {body.action} takes {words}; got {state!r}")
    reader = await backend.reader()
    ids: list[int] = []
    place: int | None = None
    for _ in range(MOST_PAGES):
        found = await reader.page(limit=MOST_CHANGED - len(ids), **cut(place), **filters)
        ids += [record.id for record in found.tasks]
        place = found.next
        if place is None:
            return ids, True
        if len(ids) >= MOST_CHANGED:
            break
    return ids, False


def _change(backend: Backend, body: BulkBody) -> Callable[[int], Awaitable[bool]]:
    scheduler = backend.scheduler

    async def retry_one(id: int) -> bool:
        await scheduler.retry_dead(id)
        return True

    async def prioritize_one(id: int) -> bool:
        await scheduler.set_priority(id, body.priority or 0)
        return True

    return {"cancel": scheduler.cancel, "retry": retry_one, "priority": prioritize_one}[body.action]
