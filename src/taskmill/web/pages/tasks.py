"""Lists of tasks, completion of filters, and everything about one task."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from taskmill import Explanation, HistoryRecord, Status, TaskDetails
from taskmill.web.backend import AnyTask, Backend, CheckedRequest
from taskmill.web.problems import RequestRefused
from taskmill.web.shapes import (
    Equivalent,
    Link,
    Moment,
    SuggestAnswer,
    SuggestQuery,
    TaskAnswer,
    TaskFilters,
    TaskPageAnswer,
    TaskQuery,
)

MOST_CHILDREN = 100
SECRET_FIELDS = ("key", "tag")


async def page(backend: Backend, asked: CheckedRequest) -> TaskPageAnswer:
    query: TaskQuery = asked.query
    found = await (await backend.reader()).page(
        sort=query.sort, limit=query.limit, **cut(query.before, query.after), **filters_of(query)
    )
    return TaskPageAnswer(
        tasks=backend.listed(found.tasks), next=found.next, searched=found.searched, is_complete=found.is_complete
    )


def cut(before: int | None = None, after: int | None = None) -> dict[str, Any]:
    """Return the place of a page as the arguments of ``Scheduler.page``."""
    return {name: id for name, id in (("before", before), ("after", after)) if id is not None}


def filters_of(query: TaskFilters) -> dict[str, Any]:
    """Return the filters of a query as the arguments of ``Scheduler.page``."""
    tags: dict[str, str] = {}
    for text in query.tag:
        name, found, value = text.partition("=")
        if not found:
            raise RequestRefused(422, "invalid", f"tag: write name=value, got {text[:60]!r}")
        tags[name] = value
    return given(
        query.state, tags, {name: getattr(query, name) for name in ("type", "domain", "group", "key", "parent")}
    )


def given(state: str | None, tags: Mapping[str, str], others: Mapping[str, Any]) -> dict[str, Any]:
    filters = {name: value for name, value in others.items() if value is not None}
    if state is not None:
        filters["state"] = state
    if tags:
        filters["tags"] = dict(tags)
    return filters


async def suggest(backend: Backend, asked: CheckedRequest) -> SuggestAnswer:
    query: SuggestQuery = asked.query
    if backend.is_redacted and query.field in SECRET_FIELDS:
        return SuggestAnswer(values=[])
    reader = await backend.reader()
    return SuggestAnswer(values=await reader.suggest(query.field, query.prefix, limit=query.limit))


async def task(backend: Backend, asked: CheckedRequest) -> TaskAnswer:
    id: int = asked.path["id"]
    reader = await backend.reader()
    # The dispatching scheduler knows the latest progress.
    live = await backend.scheduler.get(id)
    details = await reader.details(id)
    explanation = await backend.scheduler.explain(id)
    children = await reader.page(parent=id, limit=MOST_CHILDREN)
    record = backend.shown(live)
    return TaskAnswer(
        task=record,
        explanation=_shown_explanation(explanation, live, record),
        priorities=details.priorities,
        timeline=timeline(record, explanation),
        saved=None if backend.is_redacted or not details.saved else details.saved,
        attempts=list(reversed(record.errors)),
        children=backend.listed(children.tasks),
        children_counts=_active_and_ended(details.children),
        depends_on=_links(backend, [(each.on_id, each.open) for each in details.depends_on], details.linked),
        dependents=_links(backend, [(each.task_id, each.open) for each in details.dependents], details.linked),
        same_key=backend.listed(details.same_key),
        superseded_by=details.replaced_by[0] if details.replaced_by else None,
        supersedes=details.replaced[-1] if details.replaced else None,
        is_recurring=details.series_id is not None,
        equivalents=equivalents(record, details, (await backend.scheduler.facts())["store"]),
    )


def _active_and_ended(children: Mapping[str, int]) -> dict[str, int]:
    active = sum(count for state, count in children.items() if state in [*Status])
    return {"active": active, "ended": sum(children.values()) - active}


def _links(backend: Backend, pairs: Sequence[tuple[int, bool]], known: Mapping[int, AnyTask]) -> list[Link]:
    return [Link(id=id, open=is_open, task=backend.brief(known[id]) if id in known else None) for id, is_open in pairs]


def _shown_explanation(explanation: Explanation, record: AnyTask, shown: AnyTask) -> Explanation:
    """Return the explanation without the text of an error that was redacted."""
    import msgspec

    error = _last_error(record)
    if error is None or _last_error(shown) == error:
        return explanation

    def clean(text: str) -> str:
        first = error.strip().splitlines()[0] if error.strip() else ""
        return text.replace(error, "…").replace(first, "…") if first else text

    holds = [msgspec.structs.replace(hold, detail=clean(hold.detail)) for hold in explanation.holds]
    return msgspec.structs.replace(explanation, summary=clean(explanation.summary), holds=holds)


def _last_error(record: AnyTask) -> str | None:
    return record.error or record.last_error if isinstance(record, HistoryRecord) else record.last_error


def timeline(record: AnyTask, explanation: Explanation) -> list[Moment]:
    """Return what happened to a task and what will, in order of time."""
    moments = [Moment(at=record.created_at, kind="submitted", text="Submitted")]
    if record.run_at is not None and record.run_at > record.created_at:
        moments.append(Moment(at=record.run_at, kind="due", text="Due"))
    if record.started_at is not None:
        moments.append(Moment(at=record.started_at, kind="started", text=f"Attempt {record.attempt} started"))
    if isinstance(record, HistoryRecord):
        moments.append(Moment(at=record.ended_at, kind="ended", text=f"Ended: {record.state.replace('_', ' ')}"))
    else:
        if explanation.estimated_start is not None and record.status is not Status.RUNNING:
            moments.append(Moment(at=explanation.estimated_start, kind="estimated_start", text="Estimated start"))
        if record.expires_at is not None:
            moments.append(Moment(at=record.expires_at, kind="expires", text="Expires if not started by then"))
    return sorted(moments, key=lambda moment: moment.at)


def equivalents(record: AnyTask, details: TaskDetails, store: str) -> list[Equivalent]:  # noqa: ARG001
    """Return the commands and requests that do what the buttons of the page do."""
    name, is_active = shlex.quote(store), not isinstance(record, HistoryRecord)
    path = f"api/tasks/{record.id}"
    return [
        Equivalent(
            action="show",
            command=f"taskmill show {name} {record.id}",
            method="GET",
            path=path,
            body=None,
            is_possible=True,
        ),
        Equivalent(
            action="why",
            command=f"taskmill why {name} {record.id}",
            method="GET",
            path=path,
            body=None,
            is_possible=True,
        ),
        Equivalent(
            action="cancel",
            command=f"taskmill cancel {name} {record.id}",
            method="POST",
            path=f"{path}/cancel",
            body=None,
            is_possible=is_active,
        ),
        Equivalent(
            action="priority",
            command=f"taskmill priority {name} {record.id} {record.priority}",
            method="POST",
            path=f"{path}/priority",
            body={"priority": record.priority},
            is_possible=is_active,
        ),
    ]
