"""The page as an ASGI application: each request goes through host, path, access, origin, parameters, answer.

Every response, refusals included, has the headers of ``guards.py``. A change needs full access, and without a bearer
token it is refused if a browser says that the request is of another origin; it is logged before it is made.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, cast

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from taskmill import ConfigError, Scheduler, TaskmillError, __version__, to_json
from taskmill.web.access import COOKIE, SESSION_SECONDS, Access, ProgramAccess, TokenAccess, bearer_of, who
from taskmill.web.backend import Backend, CheckedRequest, Redact, audit_logger, checked_redact, logger
from taskmill.web.description import description
from taskmill.web.files import file_response, is_file
from taskmill.web.guards import NO_STORE, SAFE_METHODS, SECURITY_HEADERS, checked_hosts, is_allowed_host, is_same_origin
from taskmill.web.problems import RequestRefused, refusal_of
from taskmill.web.reading import checked_body, checked_query, parameters, relative_path
from taskmill.web.routes import FoundRoute, find, not_allowed
from taskmill.web.shapes import EventsQuery, PageAnswer, Problem, SessionAnswer, SessionBody
from taskmill.web.stream import Stream

MOST_LOGGED = 500
STRICT = cast("Literal['strict']", "Strict")
"""Written as in the standard: some readers of cookies compare the case."""


class Dashboard:
    """The page of a scheduler, an ASGI application. ``token`` is None if the program decides about access."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        read_only: bool,
        authorize: Any,
        redact: Redact | None,
        allowed_hosts: Iterable[str] | None,
        token: str | None,
    ) -> None:
        if not isinstance(scheduler, Scheduler):
            kind = type(scheduler)
            raise ConfigError(f"scheduler must be a taskmill.Scheduler, not {kind.__module__}.{kind.__qualname__}")
        if not isinstance(read_only, bool):
            raise ConfigError(f"read_only must be True or False, got {read_only!r}")
        if authorize is not None and not callable(authorize):
            raise ConfigError(f"authorize must be a function of a request, got {authorize!r}")
        self._read_only = read_only
        self._hosts = checked_hosts(allowed_hosts)
        self.token: str | None = None
        self._access: ProgramAccess | TokenAccess
        if authorize is not None:
            self._access = ProgramAccess(authorize)
        else:
            self.token = token or secrets.token_urlsafe(32)
            self._access = TokenAccess(self.token)
        self._backend = Backend(scheduler, checked_redact(redact))
        self._stream = Stream(self._backend)

    def __repr__(self) -> str:
        # Without the token: representations end up in logs.
        return f"<taskmill.web.Dashboard of {self._backend.scheduler!r}>"

    def end_streams(self) -> None:
        """End the event streams of all browsers, because the server shuts down."""
        self._stream.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1003})
            return
        request = Request(scope, receive)
        try:
            response = await self._response(request)
        except RequestRefused as refused:
            response = _refusal(refused)
        except TaskmillError as wrong:
            response = _refusal(refusal_of(wrong))
        except Exception:  # noqa: BLE001 - the last resort of a server
            logger.exception("%s failed", request.method)
            response = _refusal(RequestRefused(500, "internal", "an error in the server; see its log"))
        for name, value in SECURITY_HEADERS.items():
            response.headers[name] = value
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        if not is_allowed_host(request.headers.get("host"), self._hosts):
            raise RequestRefused(
                403, "host", "this host name is not allowed; name it with --allow-host or allowed_hosts="
            )
        given = parameters(request)
        path = relative_path(request)
        if not path.startswith("api/"):
            return await self._file(request, path)
        if path == "api/openapi.json":
            _check_method(request, "GET")
            return _json(description())
        self._backend.check_open()
        if path == "api/session":
            return await self._session(request)
        if path == "api/events":
            _check_method(request, "GET")
            return await self._follow(request, checked_query(given, EventsQuery))
        found = find("GET" if request.method == "HEAD" else request.method, path)
        access = await self._allowed(request)
        asked = CheckedRequest(
            request=request,
            access=access,
            path=found.values,
            query=checked_query(given, found.route.query),
        )
        if found.route.method == "GET":
            return await self._read(found, asked)
        return await self._write(found, asked)

    # Files

    async def _file(self, request: Request, path: str) -> Response:
        _check_method(request, "GET")
        if self.token is None:
            await self._access.of(request)
        if path == "" and not request.url.path.endswith("/"):
            # The page refers to its files and to the API with relative addresses.
            return RedirectResponse(f"{request.scope.get('root_path', '')}/", status_code=307)
        name = path or "index.html"
        if not is_file(name):
            raise RequestRefused(404, "unknown_path", "there is no such file; the API is below api/")
        return file_response(name, request.headers.get("if-none-match"))

    # Access

    async def _allowed(self, request: Request) -> Access:
        access = await self._access.of(request)
        return "read" if self._read_only else access

    def _check_change(self, request: Request, access: Access) -> None:
        if access != "full":
            raise RequestRefused(403, "read_only", "this page is for reading only")
        self._check_origin(request)

    def _check_origin(self, request: Request) -> None:
        if bearer_of(request) is None and not is_same_origin(request.headers):
            raise RequestRefused(
                403, "origin", "a change by a page of another origin is refused; programs send Authorization: Bearer"
            )

    async def _session(self, request: Request) -> Response:
        if request.method in SAFE_METHODS:
            return _json(await self._about(await self._allowed(request)))
        if not isinstance(self._access, TokenAccess):
            raise RequestRefused(409, "no_token", "the program that this page belongs to decides about access")
        if request.method == "POST":
            return await self._begin_session(request, self._access)
        if request.method == "DELETE":
            self._check_origin(request)
            self._access.sessions.end(request.cookies.get(COOKIE, ""))
            response = Response(status_code=204, headers={"cache-control": NO_STORE})
            response.delete_cookie(COOKIE, path=_cookie_path(request), httponly=True, samesite=STRICT)
            return response
        raise not_allowed(["GET", "POST", "DELETE"])

    async def _begin_session(self, request: Request, access: TokenAccess) -> Response:
        self._check_origin(request)
        body = await checked_body(request, SessionBody, is_needed=bearer_of(request) is None)
        access.check(bearer_of(request) or "" if body is None else body.token, request)
        response = _json(await self._about("read" if self._read_only else "full"))
        response.set_cookie(
            COOKIE,
            access.sessions.begin(),
            max_age=SESSION_SECONDS,
            path=_cookie_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite=STRICT,
        )
        audit_logger.info("%s: began a session", who(request))
        return response

    async def _about(self, access: Access) -> SessionAnswer:
        facts = await self._backend.scheduler.facts()
        return SessionAnswer(access=access, login=self._access.login, store=facts["store"], version=__version__)

    # Answers

    async def _read(self, found: FoundRoute, asked: CheckedRequest) -> Response:
        question = (found.route.name, str(sorted(asked.path.items())), to_json(asked.query))
        make = partial(self._made, found, asked)
        return _bytes(await self._backend.answers.remembered(question, found.route.kept, make))

    async def _made(self, found: FoundRoute, asked: CheckedRequest) -> bytes:
        return to_json(await found.route.respond(self._backend, asked)).encode()

    async def _follow(self, request: Request, query: EventsQuery | None) -> Response:
        access = await self._allowed(request)
        if query is None or not query.overview:
            return self._stream.response(request)
        asked = CheckedRequest(request=request, access=access, path={})
        make = partial(self._made, find("GET", "api/overview"), asked)
        # Not the cached answer: it may be older than the event that this overview has to show.
        answers = self._backend.answers
        return self._stream.response(request, lambda: answers.remembered("overview for streams", 0, make))

    async def _write(self, found: FoundRoute, asked: CheckedRequest) -> Response:
        route = found.route
        if route.is_change:
            self._check_change(asked.request, asked.access)
        else:
            self._check_origin(asked.request)
        body = await checked_body(asked.request, route.body, is_needed=route.needs_body)
        asked = CheckedRequest(
            request=asked.request, access=asked.access, path=asked.path, query=asked.query, body=body
        )
        if not route.is_change:
            return _json(await route.respond(self._backend, asked))
        what = f"{route.name} {to_json(dict(asked.path))} {_logged(body)}"
        try:
            answer = await route.respond(self._backend, asked)
        except (RequestRefused, TaskmillError) as wrong:
            audit_logger.info("%s: %s: refused: %r", who(asked.request), what, str(wrong)[:MOST_LOGGED])
            raise
        finally:
            self._backend.answers.forget()
        audit_logger.info("%s: %s: done", who(asked.request), what)
        return _json(answer)


def _logged(body: object) -> str:
    """Return a body for the log, as JSON, which has no line breaks and no control characters."""
    return "" if body is None else to_json(msgspec.to_builtins(body))[:MOST_LOGGED]


def _check_method(request: Request, *allowed: str) -> None:
    if request.method not in (*allowed, "HEAD"):
        raise not_allowed(allowed)


def _cookie_path(request: Request) -> str:
    return f"{request.scope.get('root_path', '').rstrip('/')}/"


def _json(answer: PageAnswer | dict[str, Any], status: int = 200) -> Response:
    return _bytes(to_json(answer).encode(), status)


def _bytes(body: bytes, status: int = 200) -> Response:
    return Response(body, status, {"cache-control": NO_STORE}, "application/json")


def _refusal(refused: RequestRefused) -> Response:
    response = _json(Problem(error=refused.error, message=refused.message), refused.status)
    response.headers.update(refused.headers)
    return response


async def _live(receive: Receive, send: Send) -> None:
    """Answer the lifespan messages of a server that serves only the page."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
