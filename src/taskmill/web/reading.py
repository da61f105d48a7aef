"""Reading requests: the path as it was sent, the query string and the body, checked against their shapes."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_origin
from urllib.parse import parse_qsl, quote

import msgspec
from starlette.requests import ClientDisconnect, Request

from taskmill.web.problems import RequestRefused
from taskmill.web.schemas import fields_of
from taskmill.web.shapes import Body, Query

Q = TypeVar("Q", bound=Query)
B = TypeVar("B", bound=Body)

MOST_BODY = 64 * 1024
MOST_PARAMETERS = 100
_SECRETS = frozenset({"token", "access_token", "authorization"})
_AT = re.compile(r" - at `\$\.?(.*?)`")


def relative_path(request: Request) -> str:
    """Return the quoted path below the mount, without the leading slash.

    The path must stay quoted until it is split, because the name of a group may contain slashes.
    """
    scope = request.scope
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.decode("ascii", "replace").partition("?")[0]
    for _ in range(scope.get("root_path", "").rstrip("/").count("/")):
        path = "/" + path.removeprefix("/").partition("/")[2] if "/" in path.removeprefix("/") else ""
    return path.removeprefix("/")


def parameters(request: Request) -> dict[str, list[str]]:
    """Return the query string; raise a 400 if it is malformed or has a token."""
    raw: bytes = request.scope.get("query_string", b"")
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS, errors="strict")
    except (ValueError, UnicodeError):
        raise RequestRefused(400, "query", "the query string is malformed") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        if name.lower() in _SECRETS:
            raise RequestRefused(
                400,
                "token_in_query",
                "a token in the query string ends up in logs; send Authorization: Bearer, or use #token= in a browser",
            )
        found.setdefault(name, []).append(value)
    return found


def checked_query(given: dict[str, list[str]], kind: type[Q] | None) -> Q | None:
    """Return the query as its shape; raise a 422 that names a wrong or unknown parameter."""
    if kind is None:
        if given:
            raise RequestRefused(422, "unknown_parameter", f"unknown parameter {min(given)!r}; this path takes none")
        return None
    fields = {name: annotation for name, annotation, _ in fields_of(kind)}
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if name not in fields:
            known = ", ".join(sorted(fields))
            raise RequestRefused(422, "unknown_parameter", f"unknown parameter {name[:40]!r}; known are {known}")
        if _is_list(fields[name]):
            values[name] = texts
        elif len(texts) > 1:
            raise RequestRefused(422, "repeated_parameter", f"{name} is given {len(texts)} times")
        else:
            values[name] = texts[0]
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as wrong:
        raise _invalid(wrong) from None


def _is_list(annotation: Any) -> bool:
    inner = getattr(annotation, "__origin__", annotation)
    return get_origin(inner) is list


async def checked_body(request: Request, kind: type[B] | None, *, is_needed: bool) -> B | None:
    """Return the body as its shape; raise a 400, 413, 415 or 422 otherwise."""
    if kind is not None and is_needed:
        return await needed_body(request, kind)
    raw = await _read(request)
    if kind is None:
        if raw.strip() not in (b"", b"{}", b"null"):
            raise RequestRefused(422, "unknown_body", "this path takes no body")
        return None
    return _decoded(request, raw, kind) if raw else None


async def needed_body(request: Request, kind: type[B]) -> B:
    """Return the body as its shape; raise a 400, 413, 415 or 422 otherwise."""
    return _decoded(request, await _read(request), kind)


def _decoded(request: Request, raw: bytes, kind: type[B]) -> B:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":
        raise RequestRefused(415, "media_type", f"send application/json, not {media[:60] or 'nothing'!r}")
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as wrong:
        raise _invalid(wrong) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as wrong:
        raise RequestRefused(400, "json", f"the body is not JSON: {str(wrong)[:200]}") from None


async def _read(request: Request) -> bytes:
    too_large = RequestRefused(413, "too_large", f"a body has at most {MOST_BODY:,} bytes")
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > MOST_BODY:
        raise too_large
    raw = b""
    try:
        async for piece in request.stream():
            raw += piece
            if len(raw) > MOST_BODY:
                raise too_large
    except ClientDisconnect:
        raise RequestRefused(400, "disconnected", "the client left before its body was complete") from None
    return raw


def _invalid(wrong: msgspec.ValidationError) -> RequestRefused:
    text = str(wrong)
    found = _AT.search(text)
    if found is None:
        return RequestRefused(422, "invalid", text[:300])
    return RequestRefused(422, "invalid", f"{found[1] or 'the body'}: {_AT.sub('', text)}"[:300])
