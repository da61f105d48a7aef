"""The table of the API: every method and path, what it takes, what it answers, and which function answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from taskmill.web import shapes
from taskmill.web.backend import Backend, CheckedRequest
from taskmill.web.pages import actions, changes, errors, groups, machine, overview, schedules, system, tasks
from taskmill.web.problems import RequestRefused
from taskmill.web.shapes import Body, PageAnswer, Query

Respond = Callable[[Backend, CheckedRequest], Awaitable[PageAnswer]]

CACHED_SECONDS = 1.0
MOST_ID = 2**63


class Route(msgspec.Struct, frozen=True):
    """One method of one path. Segments in braces are values: ``{id}`` is a number, any other a text."""

    method: str
    path: str
    name: str
    summary: str
    answer: type[PageAnswer]
    respond: Respond
    query: type[Query] | None = None
    body: type[Body] | None = None
    needs_body: bool = True
    is_change: bool = False
    """True if it needs full access."""
    kept: float = CACHED_SECONDS
    """For how many seconds the answer to a question is kept."""


def _change(
    path: str, name: str, summary: str, answer: type[PageAnswer], respond: Respond, body: type[Body] | None = None
) -> Route:
    return Route("POST", path, name, summary, answer, respond, body=body, is_change=True)


def _pause(path: str, name: str, summary: str, respond: Respond, *, is_timed: bool = False) -> Route:
    body = shapes.PauseBody if is_timed else None
    return Route("POST", path, name, summary, shapes.PauseAnswer, respond, body=body, needs_body=False, is_change=True)


ROUTES: Sequence[Route] = (
    Route(
        "GET",
        "api/overview",
        "overview",
        "The state of the store on one page",
        shapes.OverviewAnswer,
        overview.overview,
        kept=2.0,
    ),
    Route(
        "GET",
        "api/tasks",
        "tasks",
        "A page of tasks, active and ended",
        shapes.TaskPageAnswer,
        tasks.page,
        query=shapes.TaskQuery,
    ),
    Route(
        "GET",
        "api/suggest",
        "suggest",
        "Values to complete a filter with",
        shapes.SuggestAnswer,
        tasks.suggest,
        query=shapes.SuggestQuery,
    ),
    _change(
        "api/tasks/bulk",
        "bulk",
        "Cancel, retry or reprioritize many tasks, or count them",
        shapes.BulkAnswer,
        actions.bulk,
        shapes.BulkBody,
    ),
    Route("GET", "api/tasks/{id}", "task", "Everything about one task", shapes.TaskAnswer, tasks.task),
    _change("api/tasks/{id}/cancel", "cancel", "Cancel a task", shapes.ChangedAnswer, actions.cancel),
    _change("api/tasks/{id}/retry", "retry", "Return a dead letter to the queue", shapes.ChangedAnswer, actions.retry),
    _change(
        "api/tasks/{id}/priority",
        "priority",
        "Change the priority of an active task",
        shapes.ChangedAnswer,
        actions.priority,
        shapes.PriorityBody,
    ),
    Route(
        "GET",
        "api/groups",
        "groups",
        "Groups with their settings, shares and load",
        shapes.GroupListAnswer,
        groups.listed,
        query=shapes.ListQuery,
    ),
    Route(
        "POST",
        "api/groups/preview",
        "preview_groups",
        "The shares that changed settings would give; changes nothing",
        shapes.PreviewAnswer,
        groups.preview,
        body=shapes.PreviewBody,
    ),
    _change(
        "api/groups/{name}",
        "set_group",
        "Change the settings of a group; the empty name stands for ungrouped tasks",
        shapes.GroupListAnswer,
        groups.set_group,
        shapes.GroupBody,
    ),
    Route(
        "POST",
        "api/simulate",
        "simulate",
        "How the queue would run with changed settings, for up to 2,000 active tasks; changes nothing",
        shapes.SimulationAnswer,
        changes.simulate,
        body=shapes.ChangesBody,
    ),
    _change(
        "api/apply",
        "apply",
        "Change settings and resume what is paused, as a remedy of a waiting task says",
        shapes.ChangedSettings,
        changes.apply,
        shapes.ChangesBody,
    ),
    _pause("api/groups/{name}/pause", "pause_group", "Start no more tasks of a group", groups.pause, is_timed=True),
    _pause("api/groups/{name}/resume", "resume_group", "Resume a group", groups.resume),
    _pause("api/domains/{name}/pause", "pause_domain", "Start no more tasks of a domain", groups.pause_domain),
    _pause("api/domains/{name}/resume", "resume_domain", "Resume a domain", groups.resume_domain),
    _pause("api/pause", "pause", "Start no more tasks at all", groups.pause_everything),
    _pause("api/resume", "resume", "Resume the scheduler", groups.resume_everything),
    Route(
        "GET",
        "api/schedules",
        "schedules",
        "Cron tasks and recurring series",
        shapes.ScheduleListAnswer,
        schedules.listed,
        query=shapes.ListQuery,
    ),
    _change(
        "api/schedules/{schedule}/run",
        "run_schedule",
        "Run a cron task once now, beside its schedule",
        shapes.ChangedAnswer,
        schedules.run,
    ),
    _change(
        "api/schedules/{schedule}/pause",
        "pause_schedule",
        "Pause a recurring series",
        shapes.ScheduleListAnswer,
        schedules.pause,
    ),
    _change(
        "api/schedules/{schedule}/resume",
        "resume_schedule",
        "Resume a recurring series",
        shapes.ScheduleListAnswer,
        schedules.resume,
    ),
    Route(
        "GET",
        "api/machine",
        "machine",
        "Pressure, capacity and what is held back",
        shapes.MachineAnswer,
        machine.machine,
    ),
    Route(
        "GET",
        "api/errors",
        "errors",
        "Failed attempts by task type, exception and location",
        shapes.ErrorListAnswer,
        errors.listed,
        query=shapes.ErrorQuery,
    ),
    _change(
        "api/errors/retry",
        "retry_errors",
        "Return the dead letters of a group of errors to the queue, or count them",
        shapes.ErrorRetryAnswer,
        errors.retry,
        shapes.ErrorRetryBody,
    ),
    Route(
        "GET", "api/nodes", "nodes", "The dispatching nodes", shapes.NodeListAnswer, machine.nodes, shapes.NodeListQuery
    ),
    Route("GET", "api/system", "system", "Settings, versions and findings", shapes.SystemAnswer, system.system),
)


class FoundRoute(msgspec.Struct, frozen=True):
    """The route of a request, with the values in its path."""

    route: Route
    values: Mapping[str, Any]


def find(method: str, raw_path: str) -> FoundRoute:
    """Return the route for a path as it was sent, still quoted; raise a 404 or a 405 without one."""
    given = raw_path.split("/")
    allowed: list[str] = []
    for route in ROUTES:
        values = _matched(route.path.split("/"), given)
        if values is None:
            continue
        if route.method == method:
            return FoundRoute(route, values)
        allowed.append(route.method)
    if allowed:
        raise not_allowed(allowed)
    raise RequestRefused(404, "unknown_path", "there is no such path; api/openapi.json describes all of them")


def not_allowed(allowed: Sequence[str]) -> RequestRefused:
    methods = ", ".join(allowed)
    return RequestRefused(405, "method", f"this path takes {methods}", {"allow": methods})


def _matched(wanted: Sequence[str], given: Sequence[str]) -> dict[str, Any] | None:
    if len(wanted) != len(given):
        return None
    values: dict[str, Any] = {}
    for pattern, segment in zip(wanted, given, strict=True):
        if not pattern.startswith("{"):
            if pattern != segment:
                return None
            continue
        try:
            text = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError:
            raise RequestRefused(400, "path", "the path is not UTF-8") from None
        name = pattern.strip("{}")
        values[name] = _id(text) if name == "id" else text
    return values


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < MOST_ID):
        raise RequestRefused(404, "not_found", f"an id is a whole number from 1 to {MOST_ID - 1}, got {text[:40]!r}")
    return int(text)
