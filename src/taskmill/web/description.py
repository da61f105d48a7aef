"""The OpenAPI description of the API, made from the table of routes and the shapes."""

from __future__ import annotations

from functools import cache
from typing import Any

from taskmill import __version__
from taskmill.web.routes import ROUTES, Route
from taskmill.web.schemas import Schema, Schemas, described_fields, fields_of
from taskmill.web.shapes import EventsQuery, Problem, Query, SessionAnswer, SessionBody

_PROBLEMS = {
    "400": "The request is malformed, or has a token in its query string.",
    "401": "No token, or a wrong one.",
    "403": "Reading only, another origin, or a host that is not allowed.",
    "404": "No such path, task or type.",
    "405": "No such method.",
    "409": "The state of the task or the scheduler does not allow it.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "422": "A parameter or a field is wrong; the message names it.",
    "429": "Too many wrong tokens.",
    "503": "The store is busy, closed or too slow.",
}
_ABOUT = (
    "The API behind the page of taskmill. All paths are relative to where the page is mounted. Programs send "
    "`Authorization: Bearer TOKEN`; browsers get a cookie from `POST api/session`. A change with a "
    "cookie is refused if the browser says that it comes from another origin. Instants are ISO 8601 in UTC, durations "
    "are seconds."
)


@cache
def description() -> dict[str, Any]:
    """Return the OpenAPI document."""
    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        operations = paths.setdefault(f"/{route.path}", {})
        operations[route.method.lower()] = _operation(schemas, route)
    paths["/api/session"] = _session(schemas)
    paths["/api/events"] = {"get": _events(schemas)}
    paths["/api/openapi.json"] = {"get": _document()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "taskmill", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "."}],
        "security": [{"token": []}, {"session": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "taskmill-session"},
            },
            "schemas": dict(sorted(schemas.components.items())),
        },
    }


def _operation(schemas: Schemas, route: Route) -> Schema:
    operation: Schema = {"operationId": route.name, "summary": route.summary}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _path_value(name)}
        for name in (part.strip("{}") for part in route.path.split("/") if part.startswith("{"))
    ]
    if route.query is not None:
        parameters += _parameters(schemas, route.query)
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": route.needs_body, "content": _json(schemas.of(route.body))}
    operation["responses"] = {
        "200": {"description": "Done.", "content": _json(schemas.of(route.answer))},
        **_problems(schemas),
    }
    return operation


def _path_value(name: str) -> Schema:
    if name == "id":
        return {"type": "integer", "minimum": 0, "exclusiveMaximum": 2**63}
    return {"type": "string"}


def _parameters(schemas: Schemas, query: type[Query]) -> list[Schema]:
    described = described_fields(query)
    found: list[Schema] = []
    for name, annotation, default in fields_of(query):
        schema = schemas.of(annotation)
        if "anyOf" in schema:
            # A parameter that is left out is None; there is no null in a query string.
            (schema,) = [each for each in schema["anyOf"] if each != {"type": "null"}]
        if isinstance(default, str | int):
            schema["default"] = default
        parameter: Schema = {"name": name, "in": "query", "required": name == "field", "schema": schema}
        if name in described:
            parameter["description"] = described[name]
        found.append(parameter)
    return found


def _session(schemas: Schemas) -> Schema:
    answer = {"description": "What the sender may do.", "content": _json(schemas.of(SessionAnswer))}
    return {
        "get": {
            "operationId": "session",
            "summary": "What this browser or program may do",
            "responses": {"200": answer, **_problems(schemas)},
        },
        "post": {
            "operationId": "begin_session",
            "summary": "Turn the token into a cookie",
            "description": "The token is in the body, or it is the bearer token of a request without a body.",
            "security": [],
            "requestBody": {"required": False, "content": _json(schemas.of(SessionBody))},
            "responses": {"200": answer, **_problems(schemas)},
        },
        "delete": {
            "operationId": "end_session",
            "summary": "End the session and remove the cookie",
            "responses": {"204": {"description": "Done."}, **_problems(schemas)},
        },
    }


def _events(schemas: Schemas) -> Schema:
    return {
        "operationId": "events",
        "summary": "Events as they happen, as server-sent events",
        "description": (
            "Each message is the JSON of one event, without results; `event` names its kind and `id` is its `seq`. "
            "`Last-Event-ID` continues after a lost connection. `EventsMissed` means that events were left out: read "
            "again what is shown. A busy store sends a part of its events, followed by `EventsMissed`. Comments keep "
            "an idle stream open. With `overview=true`, messages of type `overview` have the JSON of "
            "`GET api/overview`, a few seconds after an event and every five seconds without one. A stream ends after "
            "ten minutes; open it again."
        ),
        "parameters": [
            *_parameters(schemas, EventsQuery),
            {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}},
        ],
        "responses": {
            "200": {"description": "A stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **_problems(schemas),
        },
    }


def _document() -> Schema:
    return {
        "operationId": "description",
        "summary": "This description",
        "security": [],
        "responses": {"200": {"description": "OpenAPI 3.1.", "content": _json({"type": "object"})}},
    }


def _problems(schemas: Schemas) -> dict[str, Schema]:
    content = _json(schemas.of(Problem))
    return {status: {"description": text, "content": content} for status, text in _PROBLEMS.items()}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
