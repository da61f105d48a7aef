"""The files of the page: HTML, CSS, ES modules and pictures of the folder ``static``, and no others."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.responses import Response

FOLDER = Path(__file__).with_name("static")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
}


def is_file(name: str) -> bool:
    """True if the folder has this file, of a known type. Names that could lead out of the folder are refused."""
    parts = name.split("/")
    if any(not part or part.startswith(".") or "\\" in part or "%" in part for part in parts):
        return False
    return Path(name).suffix in _TYPES and FOLDER.joinpath(*parts).is_file()


def file_response(name: str, known: str | None) -> Response:
    """Return the file, or a 304 response if the browser already has it."""
    content = FOLDER.joinpath(*name.split("/")).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if known == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, 200, headers, _TYPES[Path(name).suffix])
