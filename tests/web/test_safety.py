"""Access control: tokens, cookies, hosts, origins, headers, limits, redaction and the audit log."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.requests import Request

from taskmill import ConfigError, HistoryRecord, Scheduler, TaskRecord
from taskmill.web import dashboard, page_server
from taskmill.web.access import FAILURES, Sessions
from taskmill.web.guards import SECURITY_HEADERS, is_allowed_host, is_same_origin
from taskmill.web.routes import ROUTES
from tests.web.client import BEARER, HOST, SAME_ORIGIN, TOKEN, checked, over
from tests.web.conftest import Served, page_of
from tests.web.service import lose, scheduler_of, send

CHANGES = [route for route in ROUTES if route.is_change]
BODIES: dict[str, Any] = {
    "bulk": {"action": "cancel", "ids": [1]},
    "priority": {"priority": 1},
    "set_group": {"weight": 2},
    "retry_errors": {"type": "sync::send"},
}


def _path(path: str) -> str:
    return "/" + re.sub(r"\{\w+\}", "1", path)


# Tokens and sessions


async def test_nothing_is_read_without_a_token(alone: Served) -> None:
    for route in ROUTES:
        response = await alone.api.client.request(route.method, _path(route.path), headers=SAME_ORIGIN)
        assert response.status_code == 401, route.path
        assert response.headers["www-authenticate"] == "Bearer"
        checked(response, "Problem")
    assert (await alone.api.client.get("/api/events")).status_code == 401
    assert (await alone.api.client.get("/api/session")).status_code == 401


async def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_cannot_use(alone: Served) -> None:
    client = alone.api.client
    begun = await client.post("/api/session", json={"token": TOKEN}, headers=SAME_ORIGIN)
    assert begun.status_code == 200
    assert checked(begun, "SessionAnswer")["access"] == "full"
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/;" in cookie
    assert TOKEN not in cookie
    assert (await client.get("/api/overview")).status_code == 200
    assert (await client.delete("/api/session", headers=SAME_ORIGIN)).status_code == 204
    client.cookies.clear()
    session = cookie.partition("=")[2].partition(";")[0]
    assert (await client.get("/api/overview", headers={"cookie": f"taskmill-session={session}"})).status_code == 401


def test_a_session_ends_with_its_time_and_when_there_are_too_many() -> None:
    now = 0.0
    sessions = Sessions(lambda: now)
    first = sessions.begin()
    assert sessions.knows(first)
    now = 12 * 3600 + 1
    assert not sessions.knows(first)
    kept = [sessions.begin() for _ in range(1_001)]
    assert not sessions.knows(kept[0])
    assert sessions.knows(kept[1])


@pytest.mark.parametrize("name", ["token", "access_token", "TOKEN"])
async def test_a_token_in_the_query_string_is_refused_everywhere(alone: Served, name: str) -> None:
    for path in ("/", "/api/overview", "/api/session", "/api/events", "/api/openapi.json"):
        response = await alone.api.client.get(path, params={name: TOKEN}, headers=BEARER)
        assert response.status_code == 400, path
        assert checked(response, "Problem")["error"] == "token_in_query"


async def test_repeated_wrong_tokens_get_429_and_open_sessions_stay(alone: Served) -> None:
    client = alone.api.client
    await client.post("/api/session", json={"token": TOKEN}, headers=SAME_ORIGIN)
    for _ in range(FAILURES):
        wrong = await client.post("/api/session", json={"token": "guess"}, headers=SAME_ORIGIN)
        assert wrong.status_code == 401
    limited = await client.post("/api/session", json={"token": TOKEN}, headers=SAME_ORIGIN)
    assert limited.status_code == 429, "even the right token has to wait; else the limit would reveal it"
    assert 0 < int(limited.headers["retry-after"]) <= 61
    assert (await client.get("/api/overview", headers=BEARER)).status_code == 429
    assert (await client.get("/api/overview")).status_code == 200, "the cookie of the session"


async def test_a_token_with_any_characters_is_just_wrong(alone: Served) -> None:
    for token in ("", "é", "\ud83d", "\x00", "a" * 1_000):
        body = msgspec.json.encode({"token": token}) if token != "\ud83d" else b'{"token":"\\ud83d"}'
        response = await alone.api.client.post(
            "/api/session", content=body, headers={**SAME_ORIGIN, "content-type": "application/json"}
        )
        assert response.status_code in (400, 401, 422), token


# Hosts and origins


def test_only_allowed_hosts_are_accepted() -> None:
    allowed = frozenset({"localhost", "127.0.0.1", "[::1]", "tasks.example.org"})
    for good in ("localhost", "localhost:8040", "127.0.0.1:1", "[::1]:8040", "TASKS.example.org", "[::1]"):
        assert is_allowed_host(good, allowed), good
    for bad in ("evil.org", "localhost.evil.org", "127.0.0.1.evil.org:80", "", None, "[::1", "[::2]:80", "a@localhost"):
        assert not is_allowed_host(bad, allowed), bad


async def test_a_rebound_name_is_refused_on_every_path(tmp_path: Path) -> None:
    async with Scheduler(tmp_path / "tasks.db") as scheduler:
        page = page_of(scheduler, allowed_hosts=["localhost"])
        async with over(page) as client:
            for path in ("/", "/api/overview", "/api/session", "/api/events"):
                response = await client.get(path, headers={**BEARER, "host": "evil.example:8040"})
                assert response.status_code == 403, path
                assert checked(response, "Problem")["error"] == "host"
            assert (await client.get("/api/overview", headers={**BEARER, "host": "localhost:8040"})).status_code == 200


@pytest.mark.parametrize(
    ("headers", "is_same"),
    [
        ({"sec-fetch-site": "same-origin", "host": "a"}, True),
        ({"sec-fetch-site": "same-site", "origin": "http://a", "host": "a"}, False),
        ({"sec-fetch-site": "none", "host": "a"}, False),
        ({"origin": "http://a:8040", "host": "a:8040"}, True),
        ({"origin": "http://a", "host": "a:80"}, True),
        ({"origin": "https://a", "host": "a:443"}, True),
        ({"origin": "https://a", "host": "a"}, True),
        ({"origin": "http://a:8041", "host": "a:8040"}, False),
        ({"origin": "http://a.evil.org", "host": "a"}, False),
        ({"origin": "null", "host": "a"}, False),
        ({"origin": "http://a:x", "host": "a"}, False),
        ({"origin": "file://a", "host": "a"}, False),
        ({"origin": "http://[::1]:8040", "host": "[::1]:8040"}, True),
        ({"origin": "", "host": "a"}, False),
        ({"origin": "http://a"}, False),
        ({"host": "a"}, True),
    ],
)
def test_a_request_is_of_another_origin_only_if_the_browser_says_so(headers: dict[str, str], is_same: bool) -> None:
    assert is_same_origin(headers) is is_same


async def test_no_page_of_another_origin_makes_a_change_with_a_cookie(alone: Served) -> None:
    client = alone.api.client
    await client.post("/api/session", json={"token": TOKEN}, headers=SAME_ORIGIN)
    for route in [*CHANGES, next(route for route in ROUTES if route.name == "preview_groups")]:
        for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site", "origin": HOST}):
            response = await client.post(_path(route.path), headers=headers, json=BODIES.get(route.name))
            assert response.status_code == 403, route.path
            assert checked(response, "Problem")["error"] == "origin"
    assert (await client.post("/api/pause", headers=SAME_ORIGIN)).status_code == 200
    foreign = await client.post("/api/session", json={"token": TOKEN}, headers={"origin": "http://evil.example"})
    assert foreign.status_code == 403, "another site must not begin a session either"


@pytest.mark.parametrize("request_", [{"json": {"token": TOKEN}}, {"headers": BEARER}], ids=["body", "bearer"])
async def test_a_program_without_an_origin_gets_a_cookie_and_makes_changes_with_it(
    alone: Served, request_: dict[str, Any]
) -> None:
    client = alone.api.client
    assert (await client.post("/api/session", **request_)).status_code == 200
    assert (await client.post("/api/pause")).status_code == 200
    assert (await client.delete("/api/session")).status_code == 204
    assert (await client.post("/api/pause")).status_code == 401


@pytest.mark.parametrize(
    ("request_", "status"),
    [({}, 415), ({"json": {}}, 422), ({"headers": {"authorization": "Bearer wrong"}}, 401)],
    ids=["nothing", "empty", "wrong"],
)
async def test_no_session_begins_without_the_token(alone: Served, request_: dict[str, Any], status: int) -> None:
    refused = await alone.api.client.post("/api/session", **request_)
    assert (refused.status_code, "set-cookie" in refused.headers) == (status, False)


# Headers and files


async def test_every_response_forbids_inline_code_framing_and_sniffing(alone: Served) -> None:
    client = alone.api.client
    for path, status in (("/", 200), ("/nothing", 404), ("/api/overview", 401), ("/api/openapi.json", 200)):
        response = await client.get(path)
        assert response.status_code == status
        for name, value in SECURITY_HEADERS.items():
            assert response.headers[name] == value, (path, name)
    policy = SECURITY_HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    ended = await client.get("/api/overview", headers=BEARER)
    assert ended.headers["cache-control"] == "no-store"


async def test_files_are_served_from_their_folder_only(alone: Served) -> None:
    client = alone.api.client
    index = await client.get("/")
    assert index.headers["content-type"].startswith("text/html")
    again = await client.get("/", headers={"if-none-match": index.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in (
        "/../routes.py",
        "/..%2froutes.py",
        "/%2e%2e/routes.py",
        "/static/index.html",
        "/.hidden",
        "//etc/passwd",
    ):
        assert (await client.get(path)).status_code == 404, path
    assert (await client.post("/")).status_code == 405


async def test_the_page_has_no_inline_code_and_no_foreign_address(alone: Served) -> None:
    html = (await alone.api.client.get("/")).text
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []
    assert re.findall(r"\son\w+=|style=|javascript:", html) == []
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", html) == []


# Reading only, authorize, redact


async def test_reading_only_refuses_every_change(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        page = page_of(scheduler, read_only=True)
        async with over(page) as client:
            assert len(CHANGES) > 10
            for route in CHANGES:
                response = await client.post(_path(route.path), headers=BEARER, json=BODIES.get(route.name))
                assert response.status_code == 403, route.path
                assert checked(response, "Problem")["error"] == "read_only"
            preview = await client.post("/api/groups/preview", headers=BEARER, json={"groups": {"a": {"weight": 2}}})
            assert preview.status_code == 200, "a preview changes nothing"
            assert (await client.get("/api/session", headers=BEARER)).json()["access"] == "read"


@pytest.mark.parametrize(("answer", "reads", "changes"), [(True, 200, 200), ("read", 200, 403), (False, 403, 403)])
@pytest.mark.parametrize("is_async", [True, False])
async def test_authorize_decides(tmp_path: Path, answer: Any, reads: int, changes: int, is_async: bool) -> None:
    seen: list[str] = []

    def authorize(request: Request) -> Any:
        seen.append(request.url.path)
        return answer

    async def authorize_later(request: Request) -> Any:
        await asyncio.sleep(0)
        return authorize(request)

    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        page = dashboard(scheduler, authorize=authorize_later if is_async else authorize)
        assert page.token is None
        async with over(page) as client:
            assert (await client.get("/api/overview")).status_code == reads
            assert (await client.get("/")).status_code == reads
            assert (await client.post("/api/pause")).status_code == changes
            assert (await client.post("/api/pause", headers=SAME_ORIGIN)).status_code == changes
            assert (await client.post("/api/pause", headers=BEARER)).status_code == changes
            if answer is True:
                foreign = await client.post("/api/pause", headers={"origin": "http://evil.example"})
                assert foreign.status_code == 403, "the origin is checked all the same"
                assert (await client.post("/api/session", json={"token": "x"}, headers=SAME_ORIGIN)).status_code == 409
    assert "/api/overview" in seen


@pytest.mark.parametrize("answer", ["yes", 1, object(), "full"])
async def test_an_unclear_answer_of_authorize_denies_access(tmp_path: Path, answer: Any) -> None:
    async with (
        scheduler_of(str(tmp_path / "tasks.db")) as scheduler,
        over(dashboard(scheduler, authorize=lambda request: answer)) as client,
    ):
        assert (await client.get("/api/overview")).status_code == 500


async def test_without_authorize_a_mounted_page_has_a_token_of_its_own(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        one, other = dashboard(scheduler), dashboard(scheduler)
        assert one.token is not None
        assert len(one.token) >= 43
        assert one.token != other.token
        assert one.token not in repr(one)
        async with over(one) as client:
            assert (await client.get("/api/overview")).status_code == 401
            headers = {"authorization": f"Bearer {one.token}"}
            assert (await client.get("/api/overview", headers=headers)).status_code == 200


SECRET = "s3cret"


def _redact(record: TaskRecord | HistoryRecord) -> TaskRecord | HistoryRecord:
    hidden: dict[str, Any] = {"payload": {}, "key": None, "label": None, "tags": {}, "last_error": None, "errors": ()}
    if isinstance(record, HistoryRecord):
        hidden |= {"result": None, "error": None}
    return msgspec.structs.replace(record, **hidden)


async def test_nothing_leaves_before_redact(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler, scheduler.running():
        page = page_of(scheduler, redact=_redact)
        async with over(page) as client:
            sent = await send.options(label=SECRET, tags={"who": SECRET}).submit(SECRET)
            lost = await lose.options(label=SECRET).submit(SECRET)
            for handle in (sent, lost):
                await handle.wait()
            series = await send.options(every=3600, key=f"{SECRET} 2", run_after=3600).submit(SECRET)
            waits = await send.options(depends_on=[series.id], key=f"{SECRET} 3").submit(SECRET)
            paths = [_path(route.path) for route in ROUTES if route.method == "GET" and "{" not in route.path]
            paths += [f"/api/tasks/{handle.id}" for handle in (sent, lost, series, waits)]
            paths += ["/api/suggest?field=key", "/api/suggest?field=tag&prefix=who=", f"/api/tasks?key={SECRET}"]
            paths.remove("/api/suggest")
            assert len(paths) > 12
            for path in paths:
                response = await client.get(path, headers=BEARER)
                assert response.status_code == 200, path
                assert SECRET not in response.text, path


async def test_a_refused_retry_names_no_key(tmp_path: Path) -> None:
    async with (
        scheduler_of(str(tmp_path / "tasks.db")) as scheduler,
        scheduler.running(),
        over(page_of(scheduler, redact=_redact)) as client,
    ):
        lost = await lose.options(key=SECRET).submit("it")
        await lost.wait()
        await lose.options(key=SECRET, run_after=3600).submit("it")
        one = await client.post(f"/api/tasks/{lost.id}/retry", headers=BEARER)
        many = await client.post("/api/tasks/bulk", json={"action": "retry", "ids": [lost.id]}, headers=BEARER)
        assert (one.status_code, many.status_code) == (409, 200)
        for response in (one, many):
            assert f"holds the key of task {lost.id}" in response.text
            assert SECRET not in response.text


async def test_a_redact_that_fails_shows_nothing(tmp_path: Path) -> None:
    def broken(record: Any) -> Any:
        raise ValueError(record.payload)

    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        await send.options(run_after=60).submit(SECRET)
        for redact in (broken, lambda record: None, lambda record: {"payload": SECRET}):
            async with over(page_of(scheduler, redact=redact)) as client:
                response = await client.get("/api/tasks", headers=BEARER)
                assert response.status_code == 500
                assert SECRET not in response.text


# Limits and the audit log


async def test_bodies_are_limited(alone: Served) -> None:
    headers = {**BEARER, "content-type": "application/json"}
    large = b'{"groups": {"' + b"a" * 70_000 + b'": {"weight": 1}}}'

    async def pieces() -> Any:
        for at in range(0, len(large), 1_000):
            yield large[at : at + 1_000]

    for content in (large, pieces()):
        response = await alone.api.client.post("/api/groups/preview", content=content, headers=headers)
        assert response.status_code == 413
    await alone.api.refused(
        415, "POST", "groups/preview", content=b"{}", headers={**BEARER, "content-type": "text/plain"}
    )
    await alone.api.refused(400, "POST", "groups/preview", content=b"{", headers=headers)
    await alone.api.refused(422, "POST", "groups/preview", content=b'{"groups": {}, "more": 1}', headers=headers)
    await alone.api.refused(422, "POST", "groups/preview", content=b"[" * 60_000, headers=headers)


async def test_unknown_and_repeated_parameters_are_refused_by_name(alone: Served) -> None:
    assert "'stat'" in (await alone.api.refused(422, "GET", "tasks?stat=running"))["message"]
    assert "limit" in (await alone.api.refused(422, "GET", "tasks?limit=201"))["message"]
    assert "limit" in (await alone.api.refused(422, "GET", "tasks?limit=1&limit=2"))["message"]
    assert "tag" in (await alone.api.refused(422, "GET", "tasks?tag=user"))["message"]
    await alone.api.refused(422, "GET", "overview?limit=1")
    await alone.api.refused(400, "GET", "tasks?key=%ff")
    await alone.api.refused(422, "GET", "suggest")


async def test_every_change_is_logged_with_sender_and_outcome(alone: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "taskmill.audit"):
        handle = await send.options(run_after=60).submit("x")
        await alone.api.post(f"tasks/{handle.id}/cancel")
        await alone.api.post("groups/a%0Ab", {"weight": 2})
        await alone.api.refused(409, "POST", f"tasks/{handle.id}/retry")
        await alone.api.get("overview")
    logged = [record.getMessage() for record in caplog.records if record.name == "taskmill.audit"]
    assert len(logged) == 3, "reading is not logged"
    assert logged[0] == f'bearer at 127.0.0.1: cancel {{"id":{handle.id}}} : done'
    assert '"a\\nb"' in logged[1], "a name cannot forge a line"
    assert '{"weight":2.0}' in logged[1]
    assert "refused" in logged[2]


# Settings and serving


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"read_only": 1}, "read_only"),
        ({"authorize": "yes"}, "authorize"),
        ({"redact": 3}, "redact"),
        ({"allowed_hosts": "localhost"}, "allowed_hosts"),
        ({"allowed_hosts": ["http://localhost"]}, "allowed_hosts"),
        ({"allowed_hosts": [""]}, "allowed_hosts"),
    ],
)
async def test_wrong_settings_are_refused_by_name(tmp_path: Path, settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        dashboard(Scheduler(tmp_path / "tasks.db"), **settings)
    with pytest.raises(ConfigError, match="scheduler"):
        dashboard(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_other_machines_are_served_only_with_a_token_of_the_users_own(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        page_server(Scheduler(tmp_path / "tasks.db"), host=host, port=0)


async def test_a_closed_scheduler_is_an_error_that_says_so(tmp_path: Path) -> None:
    page = page_of(scheduler_of(str(tmp_path / "tasks.db")))
    async with over(page) as client:
        for path in ("/api/overview", "/api/events", "/api/session"):
            response = await client.get(path, headers=BEARER)
            assert response.status_code == 503, path
            assert "not open" in checked(response, "Problem")["message"]


async def test_a_page_server_serves_on_loopback_and_ends_with_its_block(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        server = page_server(scheduler, port=0, token=TOKEN)
        assert server.link == f"{server.address}#token={TOKEN}"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", server.address)
        async with (
            server.running(),
            httpx.AsyncClient(base_url=server.address, verify=False, trust_env=False) as client,
        ):
            overview = await client.get("/api/overview", headers=BEARER)
            assert overview.status_code == 200
            assert "server" not in overview.headers
            rebound = await client.get("/api/overview", headers={**BEARER, "host": "evil.example"})
            assert rebound.status_code == 403


async def test_no_answer_waits_for_the_acknowledgement_of_its_headers(tmp_path: Path) -> None:
    async with scheduler_of(str(tmp_path / "tasks.db")) as scheduler:
        server = page_server(scheduler, port=0, token=TOKEN)
        async with (
            server.running(),
            httpx.AsyncClient(base_url=server.address, verify=False, trust_env=False) as client,
        ):
            await client.get("/api/overview", headers=BEARER)
            (connection,) = server.server_state.connections
            accepted = connection.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
