"""Groups: their shares, a preview of changed settings, settings and pauses; and pauses of domains and everything."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from taskmill import RateLimit
from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.pages.overview import busiest, paused
from taskmill.web.problems import RequestRefused
from taskmill.web.shapes import (
    MOST_LISTED,
    GroupBody,
    GroupListAnswer,
    ListQuery,
    PauseAnswer,
    PreviewAnswer,
    PreviewBody,
    RateBody,
    ShareBody,
    SharePreview,
)


async def listed(backend: Backend, asked: CheckedRequest) -> GroupListAnswer:
    query: ListQuery = asked.query
    return await _list(backend, query.limit)


async def _list(backend: Backend, limit: int) -> GroupListAnswer:
    snapshot = await backend.scheduler.snapshot()
    groups = busiest(snapshot, limit)
    shown = {group.name for group in groups}
    return GroupListAnswer(
        groups=groups,
        total=len(snapshot.groups),
        rates=[rate for rate in snapshot.rates if rate.kind != "group" or rate.name in shown][:MOST_LISTED],
        max_concurrency=snapshot.max_concurrency,
        is_shared=snapshot.is_shared,
    )


async def preview(backend: Backend, asked: CheckedRequest) -> PreviewAnswer:
    body: PreviewBody = asked.body
    before = await backend.scheduler.snapshot()
    after = await backend.scheduler.preview({name: settings_of(share) for name, share in body.groups.items()})
    groups = sorted(after.groups.values(), key=lambda group: (-group.running, -group.pending, group.name))
    return PreviewAnswer(
        groups=[
            SharePreview(
                name=group.name,
                slots=old.slots if old is not None else 0,
                new_slots=group.slots,
                weight=old.weight if old is not None else group.weight,
                new_weight=group.weight,
                running=group.running,
                pending=group.pending,
            )
            for group in groups[:MOST_LISTED]
            for old in [before.groups.get(group.name)]
        ],
        max_concurrency=after.max_concurrency,
        is_shared=after.is_shared,
    )


def settings_of(group: ShareBody) -> dict[str, Any]:
    """Return the settings that were given, as the fields of ``Group``."""
    given = {name: value for name in group.__struct_fields__ if (value := getattr(group, name)) is not UNSET}
    return {name: rate_of(value) if name == "rate" else value for name, value in given.items()}


def rate_of(rate: RateBody | None) -> RateLimit | None:
    return None if rate is None else RateLimit(rate.permits, rate.interval, rate.burst)


async def set_group(backend: Backend, asked: CheckedRequest) -> GroupListAnswer:
    body: GroupBody = asked.body
    settings = settings_of(body)
    if not settings:
        raise RequestRefused(422, "invalid", "give at least one of weight, cap, min_slots, rate")
    await backend.scheduler.group(asked.path["name"]).set(**settings)
    return await _list(backend, MOST_LISTED)


async def pause(backend: Backend, asked: CheckedRequest) -> PauseAnswer:
    duration = None if asked.body is None else asked.body.duration
    await backend.scheduler.group(asked.path["name"]).pause(duration=duration)
    return await _paused(backend)


async def resume(backend: Backend, asked: CheckedRequest) -> PauseAnswer:
    await backend.scheduler.group(asked.path["name"]).resume()
    return await _paused(backend)


async def pause_domain(backend: Backend, asked: CheckedRequest) -> PauseAnswer:
    await backend.scheduler.domain(asked.path["name"]).pause()
    return await _paused(backend)


async def resume_domain(backend: Backend, asked: CheckedRequest) -> PauseAnswer:
    await backend.scheduler.domain(asked.path["name"]).resume()
    return await _paused(backend)


async def pause_everything(backend: Backend, asked: CheckedRequest) -> PauseAnswer:  # noqa: ARG001 - all pages are called alike
    await backend.scheduler.pause()
    return await _paused(backend)


async def resume_everything(backend: Backend, asked: CheckedRequest) -> PauseAnswer:  # noqa: ARG001 - all pages are called alike
    await backend.scheduler.resume()
    return await _paused(backend)


async def _paused(backend: Backend) -> PauseAnswer:
    return PauseAnswer(paused=paused(await backend.scheduler.snapshot()))
